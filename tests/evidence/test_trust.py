from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
import made_twostream
from checks import left_as_found
from conftest import Pooled, Through, seeded
from fovea.evidence.trust import AGREES, HANGS, HOLDS, ChangedMap, Copy, Trust, trusted
from fovea.evidence.where import again, see
from fovea.heatmaps import rank_correlation
from fovea.pictures import Placement, Prepare, Shown
from made_evidence import counted

SIDE, CELL = 56, 8  # pixels; a shift by one cell
PREPARE = Prepare((SIDE, SIDE), (0.0,), (1.0,), None)
WELL = {"shift": ChangedMap(0.9, "a", True), "flip": ChangedMap(0.9, "a", True)}


def shown(tensors: Tensor) -> list[Shown]:
    return [Shown(str(i), Placement.identity(SIDE, SIDE), row) for i, row in enumerate(tensors)]


def checked(network: fovea.Network, tensors: Tensor) -> list[Trust]:
    return trusted(Copy(network), tensors, shown(tensors), see(network, tensors, shown(tensors), None))


class Cells(nn.Module):
    """Cells are means of 8 x 8 pixels. Class a has their sum, or, with `where`, that of some of them; b is below it."""

    def __init__(self, where: Tensor | None = None) -> None:
        super().__init__()
        self.cells = nn.Sequential(nn.AvgPool2d(CELL), nn.Conv2d(1, 1, 1, bias=False))
        self.fc = nn.Linear(49, 2)
        nn.init.ones_(self.cells[1].weight)
        self.fc.weight.data = torch.stack([torch.ones(7, 7) if where is None else where, torch.zeros(7, 7)]).flatten(1)
        self.fc.bias.data = torch.tensor([0.0, -1.0])

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.cells(x).flatten(1))


def cells(where: Tensor | None = None, transform: Prepare | None = PREPARE) -> fovea.Network:
    return fovea.wrap(Cells(where).eval(), transform, labels=["a", "b"], layer="cells.1")


def blocks(seed: int = 0, count: int = 1) -> Tensor:
    """N,1,56,56: a gray for every cell, no two alike."""
    grays = [np.random.default_rng(seed + i).permutation(49) for i in range(count)]
    values = torch.tensor(np.array(grays) / 60 + 0.1, dtype=torch.float32).view(-1, 1, 7, 7)
    return values.repeat_interleave(CELL, 2).repeat_interleave(CELL, 3)


def test_a_map_of_cells_goes_where_the_picture_goes() -> None:
    """Cells alone make the map: it is shifted and mirrored exactly as the picture is, and laid back it is the same."""
    (trust,) = checked(cells(), blocks())
    assert list(trust.changes) == ["shift", "flip", "jpeg"]
    assert {change: held.label for change, held in trust.changes.items()} == dict.fromkeys(trust.changes, "a")
    assert trust.changes["shift"].correlation == pytest.approx(1)
    assert trust.changes["flip"].correlation == pytest.approx(1)
    assert trust.changes["jpeg"].correlation > 0.9


def test_shift_and_flip_by_hand() -> None:
    """A network that sees the left three columns alone: mirrored, its map is of others."""
    where = torch.zeros(7, 7)
    where[:, :3] = 1
    picture = blocks()
    (trust,) = checked(cells(where), picture)
    values = picture[0, 0, ::CELL, ::CELL].numpy()
    own, mirrored = values * where.numpy(), values[:, ::-1] * where.numpy()
    assert trust.changes["flip"].correlation == pytest.approx(rank_correlation(own, mirrored[:, ::-1]))
    moved = np.pad(values, ((1, 0), (1, 0)), mode="edge")[:7, :7] * where.numpy()  # by one cell, the edge repeated
    assert trust.changes["shift"].correlation == pytest.approx(rank_correlation(own[:-1, :-1], moved[1:, 1:]))
    assert trust.changes["flip"].correlation < HOLDS
    assert any(doubt.startswith("mirrored, it has another map") for doubt in trust.doubts)


def test_a_change_that_changes_the_answer() -> None:
    """Bright on the left for class a, which a mirrored picture is not."""
    where = torch.zeros(7, 7)
    where[:, :3] = 1
    picture = torch.zeros(1, 1, SIDE, SIDE)
    picture[..., :24] = 1
    network = cells(where)
    network.module.fc.bias.data[1] = 10.0
    (trust,) = checked(network, picture)
    assert trust.changes["flip"] == ChangedMap(0.0, "b", False)  # a map of nothing ranks nothing
    assert (trust.changes["shift"].same, trust.changes["shift"].label) == (True, "a")
    assert "mirrored, it is taken for b" in trust.doubts


def test_jpeg_is_of_the_pixels_that_the_picture_had() -> None:
    network = fovea.wrap(seeded(Pooled), Prepare((SIDE, SIDE)), labels=list("abcde"))
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    passed = list[Tensor]()
    network.module.trunk[0].register_forward_pre_hook(lambda _, given: passed.append(given[0]))
    assert isinstance(network.transform, Prepare)
    checked(network, network.transform.normalize(torch.from_numpy(pixels).permute(2, 0, 1))[None])
    buffer = BytesIO()
    Image.fromarray(pixels).save(buffer, "jpeg", quality=50)
    saved = torch.from_numpy(np.array(Image.open(buffer))).permute(2, 0, 1)
    wanted = network.transform.normalize(saved)
    assert any(torch.allclose(row, wanted, atol=1e-5) for batch in passed for row in batch)


def test_where_pixels_are_not_known_there_is_no_jpeg() -> None:
    network = cells(transform=None)
    (trust,) = checked(network, blocks())
    assert list(trust.changes) == ["shift", "flip"]
    assert "jpeg" not in trust.to_dict()["changes"]


@pytest.mark.parametrize("channels", [2, 4, 6])
def test_what_is_no_photograph_is_not_saved_as_one(channels: int) -> None:
    torch.manual_seed(0)
    layers = nn.Conv2d(channels, 6, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 3)
    bands = Prepare((SIDE, SIDE), (0.5,) * channels, (0.5,) * channels, None)
    network = fovea.wrap(nn.Sequential(*layers).eval(), bands, labels=3)
    (trust,) = checked(network, torch.randn(1, channels, SIDE, SIDE, generator=torch.Generator().manual_seed(0)))
    assert list(trust.changes) == ["shift", "flip"]


@pytest.mark.parametrize("ignored", [True, False])
def test_a_map_that_ignores_the_last_layer_is_doubted(ignored: bool) -> None:
    """The layer that gives the classes is multiplied by 0, or by 1."""
    last = seeded(Pooled, seed=1)
    weights = torch.randn(5, 8, generator=torch.Generator().manual_seed(0))  # no layer's

    def forward(x: Tensor, first: nn.Module, last: nn.Module) -> Tensor:
        return first(x).relu().mean((2, 3)) @ weights.T if ignored else last(x)

    convolution = seeded(lambda: nn.Conv2d(3, 8, 3))
    module = Through(forward, convolution, last)
    tensors = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    found = checked(fovea.wrap(module.eval(), labels=5), tensors)
    for trust in found:
        assert (trust.random > HANGS) == ignored
        assert any("random last layer" in doubt for doubt in trust.doubts) == ignored
    if ignored:
        assert [trust.random for trust in found] == pytest.approx([1, 1])


@pytest.mark.parametrize("training", [False, True])
def test_the_network_is_left_as_found(training: bool) -> None:
    network = fovea.wrap(seeded(Pooled), Prepare((SIDE, SIDE)), labels=5)
    network.module.train(training)
    network.module.fc.weight.requires_grad_(False)
    tensors = torch.randn(2, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    seen = see(network, tensors, shown(tensors), None)
    copy = Copy(network)
    with left_as_found(network.module):
        trusted(copy, tensors, shown(tensors), seen)
    other = copy.of(tensors)
    assert other is copy.of(tensors)  # made once
    assert other.module is not network.module
    same = {name: torch.equal(a, b) for (name, a), b in zip(
        network.module.named_parameters(), other.module.parameters(), strict=True
    )}  # fmt: skip
    assert {name for name, is_same in same.items() if not is_same} == {"fc.weight", "fc.bias"}


def test_one_pass_for_each_check() -> None:
    """Three changes of two pictures pass together; the copy is another network."""
    network = cells()
    tensors = blocks(count=2)
    seen = see(network, tensors, shown(tensors), None)
    rows = counted(network.module.cells[0])
    copy = Copy(network)
    trusted(copy, tensors, shown(tensors), seen)
    rows.clear()
    trusted(copy, tensors, shown(tensors), seen)
    assert sum(rows) == (3 + 1) * 2


def test_pictures_of_a_batch_are_checked_as_if_alone() -> None:
    network = fovea.wrap(seeded(Pooled), Prepare((SIDE, SIDE)), labels=5)
    tensors = torch.randn(3, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    together = checked(network, tensors)
    for row, trust in zip(tensors, together, strict=True):
        (alone,) = checked(network, row[None])
        assert alone.random == pytest.approx(trust.random, abs=1e-6)
        assert dict(alone.methods) == pytest.approx(dict(trust.methods), abs=1e-6)
        assert {k: h.same for k, h in alone.changes.items()} == {k: h.same for k, h in trust.changes.items()}
        for change, held in alone.changes.items():
            assert held.correlation == pytest.approx(trust.changes[change].correlation, abs=1e-6)


@pytest.mark.parametrize(
    ("trust", "doubts"),
    [
        (Trust(HANGS, {"gradcam": AGREES}, WELL), []),
        (Trust(0.81, {}, {}), ["a random last layer gives nearly the same map (rank correlation 0.81)"]),
        (Trust(0.0, {"gradcam": 0.9, "layercam": 0.2}, {}), ["layercam shows another map (rank correlation 0.20)"]),
        (Trust(0.0, {}, {"shift": ChangedMap(0.3, "a", True)}),
         ["shifted by a few pixels, it has another map (rank correlation 0.30)"]),
        (Trust(0.0, {}, {"jpeg": ChangedMap(0.3, "snow_leopard", False)}),
         ["saved as JPEG of quality 50, it is taken for snow leopard"]),
        (Trust(-0.9, {}, {"flip": ChangedMap(-0.25, "a", True)}),
         ["mirrored, it has another map (rank correlation -0.25)"]),
    ],
)  # fmt: skip
def test_doubts_in_words(trust: Trust, doubts: list[str]) -> None:
    assert trust.doubts == doubts
    assert trust.to_dict()["doubts"] == doubts


@pytest.mark.parametrize("name", ["anchornet", "twostream"])
def test_the_random_layer_is_one_that_the_map_hangs_on(name: str) -> None:
    """AnchorNet's last is the attention of its last branch, a two-stream network's that of its local stream."""
    torch.manual_seed(0)
    network = made_twostream.made() if name == "twostream" else fovea.load(name, pretrained=False, classes=3)
    side = 32 if name == "twostream" else 128
    tensors = torch.rand(4, 3, side, side, generator=torch.Generator().manual_seed(0))
    places = [Shown(str(i), Placement.identity(side, side), row) for i, row in enumerate(tensors)]
    seen = see(network, tensors, places, None)
    maps, _ = again(Copy(network).of(tensors), tensors, places, seen.classes[:, 0])
    assert not any(torch.allclose(a, b) for a, b in zip(maps.values[:, 0], seen.shares.values[:, 0], strict=True))
