import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from fovea import BadChoice
from fovea.networks import Network
from fovea.networks import loading as zoo
from fovea.patches import Opened, Shape, kinds, open_source, parsed, without_folders
from fovea.pictures import Prepare

AS_IT_IS = Prepare((10, 10), (0.0,) * 3, (1.0,) * 3, None, "nearest")


class Colors(nn.Module):
    """As many cells as pixels; a class for each color, by how much of it there is."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 3, 1, bias=False)
        self.trunk.weight.data = torch.eye(3).view(3, 3, 1, 1)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(3, 3, bias=False)
        self.fc.weight.data = torch.eye(3)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.pool(self.trunk(x)).flatten(1))


@dataclass
class Alike:
    maps: Tensor
    similarity: Tensor


class Prototypes(nn.Module):
    """Four prototypes: red, half as much green, red once more, and one that is like everything a little."""

    abilities = frozenset({"prototypes"})

    def forward(self, x: Tensor) -> Alike:
        maps = torch.stack([x[:, 0], x[:, 1] / 2, x[:, 0], torch.full_like(x[:, 0], 0.1)], 1)  # N,4,h,w
        return Alike(maps, maps.flatten(2).amax(2))


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Has zoo.load know a network by its name."""
    known: dict[str, Network] = {}

    def know(name: str, network: Network) -> str:
        network.name = name
        known[name] = network
        return name

    def load(name: str, *args: object, **options: object) -> Network:
        return known[name] if name in known else built(name, *args, **options)

    built: Callable[..., Network] = zoo.load
    monkeypatch.setattr(zoo, "load", load)
    return know


@pytest.fixture
def colors(named: Callable[..., str]) -> str:
    return named("colors", Network(Colors().eval(), AS_IT_IS, ("red", "green", "blue")))


def picture(*marks: tuple[int, tuple[int, int, int, int], int], size: tuple[int, int] = (10, 10)) -> Image.Image:
    """Black, with (channel, box, value) marked."""
    pixels = np.zeros((size[1], size[0], 3), dtype=np.uint8)
    for channel, (x0, y0, x1, y1), value in marks:
        pixels[y0:y1, x0:x1, channel] = value
    return Image.fromarray(pixels)


def photograph(seed: int, size: tuple[int, int]) -> Image.Image:
    values = np.random.default_rng(seed).integers(0, 256, (size[1] // 8 + 1, size[0] // 8 + 1, 3), dtype=np.uint8)
    return Image.fromarray(values).resize(size, Image.Resampling.BICUBIC)


@pytest.fixture
def opened(named: Callable[..., str]) -> Callable[[str], Opened]:
    """Any kind, over a small untrained network that it can use."""

    def build(kind: str) -> Opened:
        torch.manual_seed(0)
        if kind in ("whole", "random"):
            return open_source(kind)
        name = {"anchornet": "anchornet", "prototypes": "protopnet/timm/resnet10t"}.get(kind, "smallnet")
        if kind in ("tnet", "saccader", "dram"):
            name = "tnet-bagnet77"
        if kind.startswith("rollout"):
            name = "timm/test_vit"
        options = {"tnet-bagnet77": {"width": 0.25}, "smallnet": {"side": 64}}.get(name, {})
        network = zoo.load(name, pretrained=False, classes=3, options=options)
        return open_source(f"{kind}:{named('network', network)}")

    return build


@pytest.mark.parametrize("kind", kinds())
def test_every_kind_finds_boxes_inside_that_do_not_hang_on_the_other_pictures(
    kind: str, opened: Callable[[str], Opened]
) -> None:
    source = opened(kind)
    images = [photograph(0, (60, 40)), photograph(1, (33, 70))]
    found = source(images)
    assert source.text.startswith(kind)
    for one, image in zip(found, images, strict=True):
        assert len(one.boxes) == len(one.scores) >= 1
        for x0, y0, x1, y1 in one.boxes:
            assert 0 <= x0 < x1 <= image.width
            assert 0 <= y0 < y1 <= image.height
    again, (alone,) = source(images), source(images[1:])
    assert again == found
    np.testing.assert_allclose(alone.boxes, found[1].boxes, atol=1.01)  # rounding may move a map's edge by a pixel
    np.testing.assert_allclose(alone.scores, found[1].scores, rtol=1e-2)
    assert source([]) == []


def test_the_map_is_of_the_class_that_the_network_predicts_with_a_box_a_threshold(colors: str) -> None:
    image = picture((0, (1, 2, 4, 4), 255), (2, (3, 3, 9, 9), 128), (2, (4, 4, 6, 6), 255))  # more blue than red
    (found,) = open_source(f"cam:{colors},thresholds=0.25/0.75,least=0")([image])
    assert found.boxes == ((3, 3, 9, 9), (4, 4, 6, 6))
    blue, bright = 32 * 128 + 4 * 255, 4 * 255
    assert found.scores == (1.0, pytest.approx(bright / blue, rel=1e-5))


def test_boxes_are_in_the_pictures_own_pixels_and_the_whole_of_it_is_seen(named: Callable[..., str]) -> None:
    cropping = Prepare((10, 10), (0.0,) * 3, (1.0,) * 3, 0.5, "nearest")
    name = named("cropping", Network(Colors().eval(), cropping, ("red", "green", "blue")))
    (found,) = open_source(f"cam:{name},least=0,thresholds=0.9")([picture((1, (60, 0, 80, 20), 255), size=(100, 20))])
    x0, y0, x1, y1 = found.boxes[0]
    assert (y0, y1) == (0, 20)
    assert abs(x0 - 60) <= 5  # half a cell
    assert abs(x1 - 80) <= 5


def test_a_blank_map_gives_the_whole_picture_with_a_score_of_nothing(colors: str) -> None:
    (found,) = open_source(f"cam:{colors}")([picture()])
    assert found.boxes == ((0, 0, 10, 10),)
    assert found.scores == (0.0,)


def test_anchornet_finds_what_localize_finds(named: Callable[..., str]) -> None:
    torch.manual_seed(0)
    network = zoo.load("anchornet", pretrained=False, classes=3)
    image = photograph(2, (90, 60))
    (found,) = open_source(f"anchornet:{named('anchors', network)},count=3,overlap=0.3,share=0.5")([image])
    (wanted,) = fovea.localize(network, [image], count=3, overlap=0.3, share=0.5)
    assert len(found.boxes) == len(wanted.patches) > 1
    for box, score, patch in zip(found.boxes, found.scores, wanted.patches, strict=True):
        assert box == tuple(round(min(max(side, 0), end), 2) for side, end in zip(patch.box, (90, 60) * 2, strict=True))
        assert score == pytest.approx(patch.evidence, rel=1e-5)


def test_prototypes_by_hand(named: Callable[..., str]) -> None:
    """Four of a hundred pixels are red, as many green: the 97th percentile of each map is the mark's own value."""
    name = named("alike", Network(Prototypes(), AS_IT_IS))
    image = picture((0, (1, 2, 3, 4), 255), (1, (6, 6, 8, 8), 255))
    (found,) = open_source(f"prototypes:{name},percentile=97,least=0")([image])
    assert found.boxes == (
        (1, 2, 3, 4),
        (6, 6, 8, 8),
    )  # red's copy is the same box, and what is like everything has none
    assert found.scores == (1.0, 0.5)
    (best,) = open_source(f"prototypes:{name},percentile=97,least=0,count=1")([image])
    assert best.boxes == ((1, 2, 3, 4),)
    (few,) = open_source(f"prototypes:{name},percentile=97,least=0,count=2,among=2")([image])
    assert few.boxes == ((1, 2, 3, 4),)  # the second most active is red's copy, and no third is looked at
    (usual,) = open_source(f"prototypes:{name},least=0")([image])
    assert usual.boxes == ((0, 0, 10, 10),)  # the 95th percentile is black


def test_glimpses_are_the_deepest_first_and_cut_off_at_the_edge(opened: Callable[[str], Opened]) -> None:
    source = opened("tnet")
    assert source.network is not None
    image = photograph(3, (64, 48))
    (found,) = source([image])
    (answer,) = fovea.zoom(source.network, [image])
    levels = {glimpse.visible: glimpse.level for glimpse in answer.glimpses}
    assert {tuple(map(int, box)) for box in found.boxes} == set(levels)
    order = [levels[tuple(map(int, box))] for box in found.boxes]  # type: ignore[index]
    assert order == sorted(order, reverse=True)


def test_random_squares_hang_on_the_picture_and_the_seed_alone() -> None:
    images = [photograph(0, (40, 30)), photograph(1, (40, 30))]
    first, second = open_source("random:count=3")(images)
    assert open_source("random:count=3")(images[::-1]) == [second, first]
    assert first != second
    assert open_source("random:count=3,seed=1")(images[:1]) != [first]
    sides = np.array(first.boxes)[:, 2:] - np.array(first.boxes)[:, :2]
    np.testing.assert_allclose(sides, 15, atol=0.011)  # half of the shorter side, corners to two digits


@pytest.mark.parametrize(
    ("shape", "box", "wanted"),
    [
        (Shape(least=0), (2, 3, 8, 5), (2, 3, 8, 5)),
        (Shape(least=0), (-4, 3, 8.126, 25), (0, 3, 8.13, 20)),  # cut off
        (Shape(least=0), (30, 3, 40, 5), None),  # beyond the edge
        (Shape(pad=0.5, least=0), (10, 10, 14, 12), (8, 9, 16, 13)),
        (Shape(least=0.5), (10, 4, 12, 16), (6, 4, 16, 16)),  # at least half of 20 wide, around the same middle
        (Shape(least=0.5), (0, 4, 2, 16), (0, 4, 10, 16)),  # moved inside
        (Shape(square="yes", least=0), (2, 8, 10, 12), (2, 6, 10, 14)),
        (Shape(square="yes", least=0), (2, 0, 10, 4), (2, 0, 10, 8)),  # moved inside
        (Shape(square="yes", least=0), (0, 8, 28, 12), (0, 0, 28, 20)),  # no higher than the picture
        (Shape(least=0), (5, 5, 5.001, 5.001), (4.5, 4.5, 5.5, 5.5)),  # never less than a pixel
    ],
)
def test_shapes(shape: Shape, box: tuple[float, ...], wanted: tuple[float, ...] | None) -> None:
    assert shape(box, (30, 20)) == wanted


def test_a_line_in_its_parts() -> None:
    assert parsed("l2caf:net,thresholds=0.25/0.5") == ("l2caf", "net", {"thresholds": "0.25/0.5"})
    assert parsed("random:seed=0, count=2") == ("random", "", {"seed": "0", "count": "2"})
    assert parsed("whole") == ("whole", "", {})
    assert parsed("tnet:runs/lr=0.1/best.safetensors")[1] == "runs/lr=0.1/best.safetensors"
    assert without_folders("tnet:/home/someone/best.safetensors,count=3") == "tnet:best.safetensors,count=3"
    assert without_folders("cam:timm/resnet18") == "cam:timm/resnet18"
    assert without_folders("whole") == "whole"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("l2cav:colors", "did you mean 'l2caf'"),
        ("l2caf", "needs a network"),
        ("whole:colors", "takes no network"),
        ("cam:colors,treshold=0.5", "did you mean 'thresholds'"),
        ("cam:colors,thresholds=1.5", "is 0 to 1; got 1.5"),
        ("cam:colors,thresholds=a/b", "0.25/0.5"),
        ("cam:colors,square=maybe", "yes or no"),
        ("cam:colors,pad=-1", "pad= is 0 to 100; got -1"),
        ("cam:colors,least=2", "0 to 1"),
        ("cam:colors,pad=0.1,pad=0.2", "twice"),
        ("cam:colors,pad", "key=value"),
        ("anchornet:colors", "branches"),
        ("anchornet:colors,count=0", "count= is 1 to 10,000; got 0"),
        ("anchornet:anchornet", "no trained weights"),
        ("prototypes:protopnet/timm/resnet18", "no trained weights"),
        ("prototypes:colors", "a ProtoPNet"),
        ("prototypes:colors,percentile=100", "percentile= is 0.001 to 99.999; got 100"),
        ("prototypes:colors,count=9,among=3", "at least count=9"),
        ("tnet:colors", "reads pictures as a whole"),
        ("random:count=0", "count= is 1 to 10,000; got 0"),
        ("random:side=2", "side= is 0.001 to 1; got 2"),
        ("random:count=many", "whole number"),
    ],
)
def test_errors_at_the_door(text: str, says: str, colors: str) -> None:
    with pytest.raises(BadChoice, match=says):
        open_source(text)


def test_a_missing_network_is_named() -> None:
    with pytest.raises(BadChoice, match="did you mean 'efficientnet_lite0-cub100'"):
        open_source("l2caf:efficientnet_lite0-cub10")


def test_a_network_that_reads_text_finds_no_patches() -> None:
    with pytest.raises(BadChoice, match="does not take pictures"):
        open_source("l2caf:textcnn-mr")


def test_the_weights_tell_networks_apart_that_are_called_the_same(colors: str) -> None:
    source = open_source(f"cam:{colors}")
    before = source.weights
    assert source.network is not None
    with torch.no_grad():
        source.network.module.get_submodule("fc").weight.add_(1)
    assert source.weights != before
    assert open_source("whole").weights == ""


MINE = """
from fovea.heatmaps.methods import method
from fovea.patches.sources import patch_source

@patch_source("middle", about="the middle of the picture")
def middle(share: float = 0.5):
    def finder(images):
        edge = (1 - share) / 2
        return [[((w * edge, h * edge, w * (1 - edge), h * (1 - edge)), 1.0)] for w, h in (i.size for i in images)]
    return finder

@method("brightest", about="where the features are", passes=1)
def of_cells(look, aim):
    return look.cells.sum(1)

def undeclared(network, seed: int = 0):
    return lambda images: [[((0, 0, 5, 5), seed)] for _ in images]

def untyped(share=0.5):
    return lambda images: []

def no_finder():
    return []

def box_alone():
    return lambda images: [(0, 0, 5, 5) for _ in images]

def too_few():
    return lambda images: [[((0, 0, 5, 5), 1.0)]]

def another_shape():
    return lambda images: [[((0, 0, 5), 1.0)] for _ in images]

def a_tensor():
    import torch
    return lambda images: torch.zeros(len(images), 1, 4)

class AsClass:
    pass
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_sources.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_source_of_the_users_own(mine: None, colors: str) -> None:
    image = picture(size=(20, 10))
    (found,) = open_source("my_sources:middle:share=0.2,least=0")([image])
    assert found.boxes == ((8, 4, 12, 6),)
    assert open_source("middle:share=1")([image])[0].boxes == ((0, 0, 20, 10),)  # its file is imported by now
    assert "middle" in kinds()
    (found,) = open_source(f"my_sources:undeclared:{colors},seed=3")([image])
    assert (found.boxes, found.scores) == (((0, 0, 5, 5),), (3.0,))
    bright = picture((0, (2, 3, 5, 6), 255))
    (found,) = open_source(f"my_sources:brightest:{colors},least=0")([bright])  # every method is a source
    assert found.boxes == ((2, 3, 5, 6),)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("untyped", "its option share needs a type and a default"),
        ("AsClass", "give a function"),
        ("no_finder", "returns a finder, a function of pictures"),
        ("box_alone", r"got 0 in place of \(box, score\)"),
        ("too_few", "got 1 lists for 2 pictures"),
        ("another_shape", r"got the box \(0, 0, 5\)"),
        ("a_tensor", "got a Tensor"),
        ("nothing", "has no patch source 'nothing'"),
    ],
)
def test_authors_are_told_what_is_wrong(name: str, says: str, mine: None) -> None:
    with pytest.raises(BadChoice, match=says):
        open_source(f"my_sources:{name}")([picture(), picture()])


def test_sources_are_named_without_torch() -> None:
    code = "import sys; from fovea.patches.sources import patch_source; print(*patch_source, 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "False"
    assert {"anchornet", "whole", "random", "tnet", "saccader", "dram", "prototypes"} <= set(done.stdout.split())
