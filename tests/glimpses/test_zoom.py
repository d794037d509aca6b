"""What zooming tells: the descent in the picture's own pixels, what each glimpse says, what it all cost."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.basics import BadChoice, BadPicture
from fovea.models.glimpsing import Pixels, Scene, Walk, boxes_of, running_mean
from fovea.networks import Network, macs
from fovea.pictures import Prepare

GRAY = Prepare((4, 4), (0.5,), (0.5,), None)


class Quarters(nn.Module):
    """Reads the picture at 4 x 4, then its quarters, the brightest first; the brighter, the more it says "light"."""

    most = 4
    abilities = frozenset({"glimpses"})

    def __init__(self, overview: bool = True) -> None:
        super().__init__()
        self.least = 0 if overview else 1
        self.overview, self.gain, self.noise = overview, nn.Linear(1, 2, bias=False), nn.Dropout(0.5)
        self.gain.weight.data = torch.tensor([[0.0], [2.0]])

    def walk(self, scene: Scene, glimpses: int | None = None) -> Walk:
        count = 2 if glimpses is None else glimpses
        n, (height, width) = scene.count, scene.size
        at = torch.zeros(n, 1, 2, dtype=torch.long)
        small = scene.read(at, scene.size, 4)
        bright = nn.functional.adaptive_avg_pool2d(small, 2).mean(1).flatten(1)  # N,4
        share, cell = bright.softmax(1).sort(1, descending=True)
        corners = torch.stack([cell % 2 * (width // 2), cell // 2 * (height // 2)], 2)[:, :count]
        extent = height // 2, width // 2
        boxes, levels, values = [boxes_of(at, scene.size)], [1], [small.mean((1, 2, 3)).view(n, 1)]
        if count:
            values.append(scene.read(corners, extent, 4).mean((1, 2, 3)).view(n, count))
            boxes.append(boxes_of(corners, extent))
            levels += [2] * count
        skip = 0 if self.overview else 1
        each = self.gain(torch.cat(values, 1)[:, skip:].unsqueeze(2))
        after = running_mean(each)
        parents = [-1] + [0 if self.overview else -1] * count
        where = torch.cat(boxes, 1)[:, skip:], tuple(levels[skip:]), tuple(parents[skip:])
        return Walk(after[:, -1], after, each, *where, share[:, :count].log())


def quarters(overview: bool = True) -> Network:
    return Network(Quarters(overview), GRAY, ("dark", "light"), name="quarters")


def picture(width: int = 16, height: int = 8) -> Image.Image:
    """Black, but for a white quarter at the top right and a gray one at the bottom left."""
    values = np.zeros((height, width), dtype=np.uint8)
    values[: height // 2, width // 2 :] = 255
    values[height // 2 :, : width // 2] = 102
    return Image.fromarray(values)


@pytest.fixture(scope="module")
def tnet() -> Network:
    torch.manual_seed(0)
    return fovea.load("tnet-bagnet77", classes=4, options={"width": 0.0625})


@pytest.fixture(scope="module")
def deep() -> Network:
    torch.manual_seed(0)
    return fovea.load("tnet/test_resnet", pretrained=False, classes=3, options={"base": 32, "levels": 3})


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_a_descent_worked_out_by_hand() -> None:
    (answer,) = fovea.zoom(quarters(), picture(), glimpses=2)
    white, gray = answer.glimpses
    assert (white.box, gray.box) == ((8, 0, 16, 4), (0, 4, 8, 8))
    assert [(one.number, one.level, one.parent) for one in answer.glimpses] == [(1, 2, 0), (2, 2, 0)]
    assert answer.overview is not None
    assert (answer.overview.number, answer.overview.level, answer.overview.parent) == (0, 1, None)
    # means after normalizing: -0.3, 1, -0.2; logits are 0 and twice that
    alone, so_far = light(-0.3, 1.0, -0.2), light(-0.3, 0.7 / 2, 0.5 / 3)
    assert (white.label, white.probability) == ("light", pytest.approx(alone[1], abs=1e-3))
    assert (gray.label, gray.probability) == ("dark", pytest.approx(1 - alone[2], abs=1e-3))
    assert (answer.label, answer.probability) == ("light", pytest.approx(so_far[2], abs=1e-3))
    assert [one.answer for one in answer.after] == pytest.approx(so_far, abs=1e-3)
    assert [one.label for one in answer.after] == ["dark", "light", "light"]
    assert answer.after[0].probability == pytest.approx(1 - so_far[0], abs=1e-3)


def light(*means: float) -> list[float]:
    return [float(torch.tensor(2 * mean).sigmoid()) for mean in means]


def test_how_probable_a_glimpse_was() -> None:
    (answer,) = fovea.zoom(quarters(), picture(4, 4), glimpses=4)  # as large as its overview
    expected = torch.tensor([-1.0, 1.0, -0.2, -1.0]).softmax(0).tolist()
    assert [one.chosen for one in answer.glimpses] == pytest.approx([expected[i] for i in (1, 2, 0, 3)])


def test_what_it_costs() -> None:
    (answer,) = fovea.zoom(quarters(), picture(), glimpses=2)
    assert answer.cost.pixels == 128
    assert answer.cost.pixels_read == 128 + 2 * 32
    assert (answer.cost.share, answer.cost.resolution) == (0.5, 0.5)  # windows of 8 x 4 at 4 x 4
    assert answer.cost.macs == 3 * 2  # a linear layer of 1 to 2, three times
    assert "50 % of the picture's pixels read at 0.5 of full resolution" in answer.line()


def test_the_page_shows_what_was_read_as_it_was_read() -> None:
    (answer,) = fovea.zoom(quarters(), picture(), glimpses=2)
    view = answer.view()
    assert (view.size, view.deep) == ((16, 8), False)
    assert [(part.name, part.box, part.panel, part.level) for part in view.parts] == [
        ("overview", (0, 0, 16, 8), 1, 1),
        ("1", (8, 0, 16, 4), 2, 2),
        ("2", (0, 4, 8, 8), 3, 2),
    ]
    assert [part.share for part in view.parts] == [after.answer for after in answer.after]
    assert [part.ahead for part in view.parts] == ["dark", "", ""]
    whole, overview, white, gray = view.pictures()
    assert whole.size == (16, 8)
    assert overview.size == white.size == gray.size == (8, 4)  # read at 4 x 4, in their proportions
    assert [glimpse.pixels for glimpse in answer.glimpses] == [(4, 4), (4, 4)]
    assert {image.getpixel((3, 2)) for image in (white, gray)} == {(255, 255, 255), (102, 102, 102)}
    assert "8 x 4 pixels at 8, 0, read at 4 x 4. Alone it says light" in view.panels[2].caption
    assert view.table == (
        ("", "read", "reading all"),
        ("pixels at 0.5 of full resolution", "64 (50 %)", "128"),
        ("multiplications", "6", "about 16"),
    )


def test_a_count_is_made_once_for_all_pictures_read_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    network, walks = quarters(), []
    walk = Quarters.walk
    monkeypatch.setattr(Quarters, "walk", lambda *given: walks.append(1) or walk(*given))
    fovea.zoom(network, [picture(), picture(20, 30), picture()], glimpses=2)
    assert len(walks) == 3 + 1
    fovea.zoom(network, picture(), glimpses=2)
    assert len(walks) == 3 + 1 + 1
    fovea.zoom(network, picture(), glimpses=3)
    assert len(walks) == 3 + 1 + 1 + 2


def test_a_network_without_an_overview() -> None:
    (answer,) = fovea.zoom(quarters(overview=False), picture(), glimpses=2)
    assert answer.overview is None
    boxes = [(one.number, one.parent, one.box) for one in answer.glimpses]
    assert boxes == [(1, None, (8, 0, 16, 4)), (2, None, (0, 4, 8, 8))]
    assert [one.number for one in answer.after] == [1, 2]
    answer.draw()
    with pytest.raises(BadChoice, match="reads 1 to 4 glimpses of a picture; got 0"):
        fovea.zoom(quarters(overview=False), picture(), glimpses=0)


def test_the_overview_alone() -> None:
    (answer,) = fovea.zoom(quarters(), picture(), glimpses=0)
    assert (answer.glimpses, len(answer.after), answer.label) == ((), 1, "dark")
    assert answer.cost.share == 1
    answer.draw()


def test_tensors_are_read_as_the_networks_own_forward_reads_them(tnet: Network) -> None:
    batch = torch.randn(3, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    answers = fovea.zoom(tnet, batch, batch=2)
    with torch.no_grad():
        walk = tnet.module.eval()(batch)
    assert len(answers) == 3
    for i, answer in enumerate(answers):
        assert answer.probability == pytest.approx(float(walk.logits[i].softmax(0).max()), abs=1e-5)
        assert [one.box for one in answer.glimpses] == [tuple(box) for box in walk.boxes[i, 1:].tolist()]
        assert [one.chosen for one in answer.glimpses] == pytest.approx(walk.log_probability[i].exp().tolist())
    assert answers[0].cost.macs == macs(tnet, batch[:1])


def test_a_picture_of_the_networks_size_is_answered_as_its_tensor_is(tnet: Network) -> None:
    image = Image.fromarray(np.asarray(noise(14, 14).resize((224, 224), Image.Resampling.BICUBIC)))
    (as_picture,) = fovea.zoom(tnet, image, glimpses=3)
    (as_tensor,) = fovea.zoom(tnet, tnet.prepare(image)[0], glimpses=3)
    assert as_picture.probability == pytest.approx(as_tensor.probability, abs=0.01)
    assert as_picture.overview is not None
    assert as_picture.overview.box == (0, 0, 224, 224)


def test_glimpses_of_glimpses(deep: Network) -> None:
    (answer,) = fovea.zoom(deep, noise(300, 200), glimpses=6)
    assert [one.level for one in answer.glimpses] == [2, 2, 2, 3, 3, 3]
    by_number = {one.number: one for one in answer.glimpses}
    for one in answer.glimpses[3:]:
        outer = by_number[one.parent or 0].box
        assert one.box[2] - one.box[0] == 75
        assert one.box[3] - one.box[1] == 50
        assert all(inner >= out - 1 for inner, out in zip(one.box[:2], outer[:2], strict=True))
        assert all(inner <= out + 1 for inner, out in zip(one.box[2:], outer[2:], strict=True))
    assert [crop.size for crop in answer.crops()] == [(150, 100)] * 3 + [(75, 50)] * 3
    assert answer.note == ""


@pytest.mark.parametrize("size", [(2, 2), (9, 3), (20, 20), (3000, 40), (40, 3000), (31, 33), (225, 223)])
@pytest.mark.parametrize("glimpses", [0, 1, 5])
def test_pictures_of_any_size(deep: Network, size: tuple[int, int], glimpses: int) -> None:
    (answer,) = fovea.zoom(deep, noise(*size), glimpses=glimpses)
    assert (answer.size, len(answer.glimpses)) == (size, glimpses)
    for one in answer.glimpses:
        x0, y0, x1, y1 = one.visible
        assert 0 <= x0 <= x1 <= size[0]
        assert 0 <= y0 <= y1 <= size[1]
        assert (x0 < x1 and y0 < y1) or min(size) < 4  # three windows of a pixel on two: one is beside them
    assert 0 < answer.cost.share <= 1
    assert ("enlarged" in answer.note) == (max(size) // 2 ** min(glimpses, 2) < 32)
    assert min(answer.draw().size) > 100


def test_a_gray_picture_and_an_array(tnet: Network) -> None:
    gray = noise(90, 80).convert("L")
    answers = fovea.zoom(tnet, [gray, np.asarray(gray), np.asarray(gray.convert("RGB"))], glimpses=1)
    assert len({one.probability for one in answers}) == 1
    assert [one.name for one in answers] == ["picture-0", "picture-1", "picture-2"]


def test_a_folder_with_a_broken_file(tnet: Network, tmp_path: Path) -> None:
    noise(40, 30).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"no picture")
    noise(30, 40).save(tmp_path / "c.png")
    with pytest.warns(UserWarning, match=r"1 picture\(s\) skipped: .*b\.png is not a picture"):
        answers = fovea.zoom(tnet, tmp_path, glimpses=2)
    assert [Path(one.name).name for one in answers] == ["a.png", "c.png"]
    assert [Path(name).name for name, _ in answers.skipped] == ["b.png"]
    rows = answers.save(tmp_path / "out", files=True)
    kept = json.loads((tmp_path / "out" / "results.json").read_text())
    assert kept["results"] == rows
    assert kept["skipped"][0]["name"].endswith("b.png")
    assert rows[0]["glimpses"][0]["box"] == list(answers[0].glimpses[0].box)
    assert (tmp_path / "out" / rows[1]["files"]["figure"]).is_file()
    with pytest.raises(BadPicture, match="not a picture"):
        fovea.zoom(tnet, tmp_path / "b.png")


class TooSmall(Quarters):
    def walk(self, scene: Scene, glimpses: int | None = None) -> Walk:
        if scene.size[0] < 8:
            raise BadPicture("a picture of fewer than 8 rows")
        return super().walk(scene, glimpses)


def test_a_picture_that_the_network_cannot_walk_through_is_skipped() -> None:
    network = Network(TooSmall(), GRAY, ("dark", "light"))
    with pytest.warns(UserWarning, match="fewer than 8 rows"):
        answers = fovea.zoom(network, [picture(), picture(8, 4)])
    assert (len(answers), answers.skipped[0][0]) == (1, "picture-1")


def test_the_network_is_left_as_found() -> None:
    network = quarters()
    network.module.train()
    before, weight = torch.get_rng_state(), network.module.gain.weight  # type: ignore[union-attr]
    (first,) = fovea.zoom(network, picture())
    assert torch.equal(torch.get_rng_state(), before)
    assert all(one.training for one in network.module.modules())
    assert (weight.requires_grad, weight.grad) == (True, None)
    with torch.inference_mode():
        assert fovea.zoom(network, picture())[0].to_dict() == first.to_dict()


def test_what_cannot_zoom(pooled: nn.Module, tnet: Network) -> None:
    with pytest.raises(BadChoice, match=r"Pooled reads pictures as a whole and cannot zoom.*fovea models tnet"):
        fovea.zoom(pooled, picture())
    with pytest.raises(BadChoice, match="reads 0 to 25 glimpses of a picture; got 26"):
        fovea.zoom(tnet, picture(), glimpses=26)
    with pytest.raises(BadChoice, match="glimpses is 0 to 1,000; got -1"):
        fovea.zoom(Quarters(), picture(), glimpses=-1)
    with pytest.raises(BadChoice, match="no transform, so it takes tensors only"):
        fovea.zoom(Quarters(), picture())
    with pytest.raises(BadChoice, match=r"Prepare\(\.\.\.\), or give tensors"):
        fovea.zoom(Network(Quarters(), lambda image: torch.zeros(1, 8, 8)), picture())
    with pytest.raises(BadChoice, match="takes 3 channels"):
        fovea.zoom(tnet, torch.zeros(1, 1, 80, 80))
    with pytest.raises(BadChoice, match="no network 'tnet-nothing'"):
        fovea.zoom("tnet-nothing", picture())
    assert len(fovea.zoom(Quarters(), torch.zeros(2, 1, 8, 8))) == 2


@pytest.mark.parametrize(
    ("name", "options", "has_overview"),
    [("saccader", {"side": 96}, False), ("dram", {"side": 48, "glimpse": 16, "locations": 3}, True)],
)
def test_other_networks_that_read_glimpses(name: str, options: dict[str, int], has_overview: bool) -> None:
    torch.manual_seed(0)
    network = fovea.load(name, classes=4, options={"width": 0.125, **options})
    for size in ((200, 120), (3, 2), (400, 5)):
        (answer,) = fovea.zoom(network, noise(*size), glimpses=3)
        assert (answer.overview is not None) == has_overview
        assert [(one.number, one.level) for one in answer.glimpses] == [(1, 2), (2, 2), (3, 2)]
        assert len(answer.after) == 3 + has_overview
        assert answer.after[-1].answer == pytest.approx(answer.probability)
        assert answer.cost.macs > 0
        for one in answer.glimpses:
            assert one.chosen is None if has_overview else 0 < (one.chosen or 0) <= 1  # DRAM's is a density
        answer.draw()
    tensor = network.prepare(noise(200, 120))[0].unsqueeze(0)
    with torch.no_grad():
        expected = network.module.eval().walk(Pixels(tensor), 3).logits.softmax(1).max()  # type: ignore[operator]
    assert fovea.zoom(network, tensor, glimpses=3)[0].probability == pytest.approx(float(expected))


def test_the_figure_shows_the_boxes_in_the_levels_colors(deep: Network) -> None:
    (answer,) = fovea.zoom(deep, Image.new("RGB", (300, 200), "white"), glimpses=4)
    values = np.asarray(answer.draw()).reshape(-1, 3)
    for color in ((230, 159, 0), (86, 180, 233)):
        assert (values == color).all(1).sum() > 500


def test_what_has_no_map_says_where_to_ask() -> None:
    network = fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625})
    with pytest.raises(fovea.BadNetwork, match=r"fovea\.zoom tells"):
        fovea.explain(network, torch.zeros(1, 3, 224, 224))
