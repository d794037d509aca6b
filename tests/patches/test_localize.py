"""Patches of pictures, found by AnchorNet and by ordinary networks, in the user's own pixels."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.basics import iou
from fovea.networks import Network
from fovea.patches import Settings, choice, for_test, look, squares


@pytest.fixture(scope="module")
def anchornet() -> Network:
    torch.manual_seed(0)
    return fovea.load("anchornet", pretrained=False, classes=3, options={"side": 128})


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8))


def test_patches_lie_in_the_users_pixels(anchornet: Network) -> None:
    picture = noise(256, 64)  # squashed to 128 x 128: twice as wide, half as high
    (found,) = fovea.localize(anchornet, picture, count=3, overlap=0.9, share=1.0, branch=63)
    assert len(found.patches) == 3
    for patch in found.patches:
        row, column = patch.cell
        assert patch.box == (16 * column, 4 * row, 16 * column + 126, 4 * row + 31.5)
    assert found.crops()[0].size == (126, 32)
    values = [patch.evidence for patch in found.patches]
    assert values == sorted(values, reverse=True)
    assert values[0] == pytest.approx(float(found.heatmap.max()))


def test_picks_overlap_less_than_asked(anchornet: Network) -> None:
    (found,) = fovea.localize(anchornet, noise(128, 128), count=12, overlap=0.3, share=1.0, branch=63)
    overlaps = iou([one.box for one in found.patches], [one.box for one in found.patches])
    assert len(found.patches) > 1
    assert (overlaps[~np.eye(len(overlaps), dtype=bool)] < 0.3).all()


def test_the_branch_that_localizes_is_the_decisions(anchornet: Network) -> None:
    batch = torch.randn(6, 3, 128, 128, generator=torch.Generator().manual_seed(1))
    seen, out = look(anchornet, batch), anchornet.module(batch)
    assert torch.equal(seen.chosen, out.decision.branch)
    assert torch.equal(seen.label, out.decision.label)
    for number, scale in enumerate(seen.scales):
        expected = out.branches[number].activation[torch.arange(6), seen.label]
        assert torch.allclose(scale.values, expected)


def test_a_class_of_ones_own(anchornet: Network) -> None:
    batch = torch.randn(4, 3, 128, 128)
    found = fovea.localize(anchornet, batch, target=2)
    assert {one.label for one in found} == {"2"}
    out = anchornet.module(batch)
    shares = torch.stack([one.logits.softmax(1)[:, 2] for one in out.branches])
    assert [one.side for one in found] == [(63, 95, 111)[i] for i in shares.argmax(0).tolist()]


def test_every_branch_tells_its_own_answer_and_the_best_patch_for_it(anchornet: Network) -> None:
    batch = torch.randn(8, 3, 128, 128, generator=torch.Generator().manual_seed(5))
    with torch.no_grad():
        out = anchornet.module(batch)
    for i, found in enumerate(fovea.localize(anchornet, batch)):
        assert [one.side for one in found.branches] == [63, 95, 111]
        assert [one.shape for one in found.attention] == [(9, 9), (5, 5), (3, 3)]
        assert found.note == ""
        for branch, answer in zip(out.branches, found.branches, strict=True):
            label = int(branch.logits[i].argmax())
            assert answer.label == str(label)
            row, column = answer.best.cell
            assert answer.best.evidence == pytest.approx(float(branch.activation[i, label].max()), rel=1e-5)
            assert float(branch.activation[i, label, row, column]) == pytest.approx(answer.best.evidence, rel=1e-5)


def test_an_ordinary_network_says_what_its_cells_may_see() -> None:
    net = fovea.load("smallnet", pretrained=False, classes=4, options={"side": 64, "widths": [4, 6]})
    (found,) = fovea.localize(net, noise(64, 64), side=20, count=2)
    assert found.side == 20
    assert "may see the whole picture" in found.note
    assert found.note.startswith("l2caf at stages")
    for patch in found.patches:
        assert patch.box[2] - patch.box[0] == patch.box[3] - patch.box[1] == 20
        assert min(patch.box) >= 0
        assert max(patch.box) <= 64


def test_an_ordinary_network_without_padding_has_patches_of_its_own() -> None:
    """As BagNet: 3x3 convolutions with stride 2 and no padding, so that a cell sees 7 x 7 pixels, 4 apart."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 6, 3, 2), nn.ReLU(), nn.Conv2d(6, 8, 3, 2), nn.ReLU()]
    net = fovea.wrap(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)), labels=3)
    batch = torch.randn(2, 3, 31, 31)
    for found in fovea.localize(net, batch, method="cam", count=2, share=0.2):
        assert (found.side, found.note) == (7, "")
        for patch in found.patches:
            row, column = patch.cell
            assert patch.box == (4 * column, 4 * row, 4 * column + 7, 4 * row + 7)
    (found, _) = fovea.localize(net, batch, method="cam", side=15)
    assert found.side == 15
    assert "may see" in found.note


def test_left_as_found_and_the_same_inside_inference_mode() -> None:
    net = fovea.load("anchornet", pretrained=False, classes=3, options={"side": 136})
    net.module.train()
    before = {key: value.clone() for key, value in net.module.state_dict().items()}
    batch = torch.randn(2, 3, 136, 136)
    numbers, known = torch.get_rng_state(), set(net.module.__dict__)
    with torch.inference_mode():
        inside = fovea.localize(net, batch)
    assert torch.equal(numbers, torch.get_rng_state())
    assert set(net.module.__dict__) == known
    assert [one.patches for one in inside] == [one.patches for one in fovea.localize(net, batch)]
    fovea.localize(net, noise(128, 128))
    assert net.module.training
    assert all(torch.equal(value, before[key]) for key, value in net.module.state_dict().items())


def test_a_network_without_labels(anchornet: Network) -> None:
    bare = fovea.wrap(anchornet.module)
    assert fovea.localize(bare, torch.randn(1, 3, 128, 128), target=2)[0].label == "2"
    with pytest.raises(fovea.BadChoice, match="classes 0 to 2"):
        fovea.localize(bare, torch.randn(1, 3, 128, 128), target=3)
    with pytest.raises(fovea.BadChoice, match="N,3,H,W"):
        fovea.localize(bare, torch.randn(1, 1, 128, 128))
    with pytest.raises(fovea.BadChoice, match="without branches"):
        fovea.localize(anchornet, torch.randn(1, 3, 128, 128), method="cam")


def test_squares_around_the_cells() -> None:
    boxes = squares((2, 2), (8, 8), 4)
    assert boxes.tolist() == [[0, 0, 4, 4], [4, 0, 8, 4], [0, 4, 4, 8], [4, 4, 8, 8]]
    assert squares((1, 3), (6, 6), 4)[:, 0].tolist() == [0, 1, 2]  # moved into the picture


def test_files_of_a_folder(anchornet: Network, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    noise(130, 120).save(tmp_path / "in" / "a.png")
    (tmp_path / "in" / "b.png").write_bytes(b"no picture")
    with pytest.warns(UserWarning, match="1 picture"):
        found = fovea.localize(anchornet, tmp_path / "in", count=2)
    rows = found.save(tmp_path / "out", files=True)
    content = json.loads((tmp_path / "out" / "results.json").read_text())
    assert content["results"] == rows
    assert content["skipped"][0]["name"].endswith("b.png")
    (row,) = rows
    assert len(row["files"]["crops"]) == len(row["patches"]) == len(found[0].patches)
    crop = Image.open(tmp_path / "out" / row["files"]["crops"][0])
    x0, y0, x1, y1 = row["patches"][0]["box"]
    assert crop.size == (round(x1) - round(x0), round(y1) - round(y0))
    assert np.load(tmp_path / "out" / row["files"]["evidence"]).shape == found[0].heatmap.shape


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"count": 0}, "count is 1 to 1,000,000; got 0"),
        ({"overlap": 0.0}, "above 0 and at most 1; got 0"),
        ({"overlap": 1.5}, "overlap is 0 to 1; got 1.5"),
        ({"share": 2.0}, "share is 0 to 1; got 2"),
        ({"share": float("nan")}, "got nan"),
        ({"branch": 64}, "there are: 63, 95, 111"),
        ({"target": 7}, "classes 0 to 2"),
    ],
)
def test_settings_out_of_range(anchornet: Network, wrong: dict[str, float], said: str) -> None:
    with pytest.raises(fovea.BadChoice, match=said):
        fovea.localize(anchornet, noise(128, 128), **wrong)  # type: ignore[arg-type]


def test_too_small_for_the_widest_patch(anchornet: Network) -> None:
    with pytest.raises(fovea.BadChoice, match="at least 111 x 111"):
        fovea.localize(anchornet, torch.zeros(1, 3, 96, 128))
    net = fovea.load("smallnet", pretrained=False, options={"side": 64, "widths": [4, 6]})
    with pytest.raises(fovea.BadChoice, match="between 1 and 64"):
        fovea.localize(net, noise(64, 64), side=65)


def test_settings_as_in_the_paper_unless_given() -> None:
    assert choice(None, None, None)(63, (224, 224)) == for_test(63) == Settings(12, 0.5, 0.05)
    assert choice(3, None, 0.2)(111, (224, 224)) == Settings(3, 0.5, 0.2)


def test_regions_of_a_network(anchornet: Network) -> None:
    assert anchornet.region((2, 3)) == (24, 16, 87, 79)
    assert anchornet.region((0, 1), branch=2) == (8, 0, 119, 111)
    assert anchornet.region((0, 0), layer="head") == (0, 0, 47, 47)
    everything = fovea.load("anchornet", pretrained=False, classes=3, options={"side": 128, "se": "global"})
    assert everything.geometry().everything
    with pytest.raises(fovea.BadChoice, match="branches 0 to 2"):
        anchornet.region((0, 0), branch=3)


def test_regions_of_words_and_moments() -> None:
    words, sounds = fovea.load("anchornet_text-mr"), fovea.load("anchornet_sound-made")
    assert (words.region(3), words.region(3, branch=2)) == ((3, 6), (3, 10))
    assert (sounds.region(3), sounds.region(0, branch=2)) == ((3, 8), (0, 21))  # frames
