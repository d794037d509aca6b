"""Which pixels a cell can see: numbers worked out by hand, then gradients and edited pixels as witnesses."""

import copy
from collections.abc import Callable, Sequence

import pytest
import timm
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

import fovea
from checks import left_as_found, raises, refused
from conftest import Branching, Through, seeded
from fovea.basics import BadChoice, BadNetwork
from fovea.networks import Field, geometry
from fovea.networks.geometry import Geometry
from fovea.pictures import Prepare


def cropped(x: Tensor, wide: nn.Module, narrow: nn.Module) -> Tensor:
    a, b = wide(x), narrow(x)
    rim = (b.shape[-1] - a.shape[-1]) // 2
    return a + b[..., rim:-rim, rim:-rim]


def shifted(x: Tensor, conv: nn.Module) -> Tensor:
    """Every third channel takes its left neighbor's values, written in place."""
    y = conv(x)
    out = torch.zeros_like(y)
    out[:, ::3, :, 1:] = y[:, ::3, :, :-1]
    return out


def shuffled(x: Tensor, conv: nn.Module) -> Tensor:
    """Half the channels see more; a depthwise layer keeps them apart; the half that sees less is kept."""
    y = torch.cat([conv(x), x], 1)
    y = F.conv2d(y, torch.ones(y.shape[1], 1, 3, 3, dtype=y.dtype), padding=1, groups=y.shape[1])
    return y[:, -x.shape[1] :]


def channels_last(x: Tensor, conv: nn.Module, norm: nn.Module, linear: nn.Module) -> Tensor:
    return linear(norm(conv(x).permute(0, 2, 3, 1)))


def windows(x: Tensor) -> Tensor:
    """Sums of 3 x 3 windows that do not overlap, back on every pixel, moved one to the right."""
    n, c, h, w = x.shape
    y = x.view(n, c, h // 3, 3, w // 3, 3)
    y = (y - y.softmax(3).sum((3, 5), keepdim=True)).reshape(n, c, h, w)
    return y.roll(1, 3)


def attention(x: Tensor, conv: nn.Module) -> Tensor:
    y = conv(x).flatten(2).transpose(1, 2)
    return F.scaled_dot_product_attention(*(y[:, None],) * 3)[:, 0].transpose(1, 2).unflatten(2, (7, 7))


def excited(x: Tensor, conv: nn.Module) -> Tensor:
    y = conv(x)
    return y * y.mean((2, 3), keepdim=True).sigmoid()


def conv(
    kernel: int, stride: int = 1, padding: int = 0, dilation: int = 1, channels: int = 4, groups: int = 1
) -> nn.Conv2d:
    return nn.Conv2d(channels, channels, kernel, stride, padding, dilation, groups)


def first(kernel: int = 3, stride: int = 1, padding: int = 0, dilation: int = 1) -> nn.Conv2d:
    return nn.Conv2d(3, 4, kernel, stride, padding, dilation)


def line(kernel: int, stride: int = 1, channels: int = 4, padding: int = 0) -> nn.Conv1d:
    return nn.Conv1d(channels, 4, kernel, stride, padding)


# network, size of the input, field of each axis (stride, start, stop)
BY_HAND = {
    "3 x 3": (first(3, 2), 33, [(2, 0, 3)]),
    "twice": (nn.Sequential(first(3, 2), nn.ReLU(), conv(3, 2)), 33, [(4, 0, 7)]),
    "three times": (nn.Sequential(first(3, 2), conv(3, 2), nn.Hardswish(True), conv(3, 2)), 33, [(8, 0, 15)]),
    "dilated": (first(3, dilation=4), 20, [(1, 0, 9)]),
    "padded": (nn.Sequential(first(3, 2, 1), conv(3, 2, 1)), 32, [(4, -3, 4)]),
    "pooled": (nn.Sequential(first(), nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2)), 22, [(4, -1, 6)]),
    "last pool hangs over": (nn.Sequential(first(), nn.MaxPool2d(2, 2, ceil_mode=True)), 21, [(2, 0, 4)]),
    "sides differ": (nn.Conv2d(3, 4, (1, 5), (1, 3), (0, 2)), (8, 20), [(1, 0, 1), (3, -2, 3)]),
    "grouped": (nn.Sequential(first(), conv(5, groups=4), nn.BatchNorm2d(4)), 16, [(1, 0, 7)]),
    "crop added": (Through(cropped, first(7), first(3)), 20, [(1, 0, 7)]),
    "crop alone": (Through(lambda x, one: one(x)[..., 2:-2, 3:], first()), 20, [(1, 2, 5), (1, 3, 6)]),
    "constant padding": (nn.Sequential(nn.ZeroPad2d((2, 0, 0, 0)), first()), 12, [(1, 0, 3), (1, -2, 1)]),
    "channels last": (Through(channels_last, first(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)), 16, [(4, 0, 4)]),
    "halves apart": (Through(shuffled, first(5, padding=2)), 12, [(1, -1, 2)]),
    "a line": (nn.Sequential(line(3, 2), nn.ReLU(), nn.MaxPool1d(2), line(3, padding=1)), (40,), [(4, -4, 9)]),
    "transposed": (nn.Sequential(first(2, 2), nn.ConvTranspose2d(4, 4, 1, 1)), 12, [(2, 0, 2)]),
}
ROUGH = {  # fields that are no straight line of cells, or ways that the network never uses
    "transposed, overlapping": nn.Sequential(first(3, 2), nn.ConvTranspose2d(4, 4, 3, 2)),
    "nearest": nn.Sequential(first(), nn.Upsample(scale_factor=2)),
    "bilinear": nn.Sequential(first(), nn.Upsample(scale_factor=2, mode="bilinear")),
    "bicubic": nn.Sequential(first(), nn.Upsample(scale_factor=2, mode="bicubic")),
    "reflected": nn.Sequential(nn.ReflectionPad2d(2), first()),
    "round": nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular")),
    "adaptive": nn.Sequential(first(), nn.AdaptiveAvgPool2d(4)),
    "windows": Through(windows),
    "shift": Through(shifted, first(3, padding=1)),
    "instance norm": nn.Sequential(first(), nn.InstanceNorm2d(4), conv(3)),
    "group norm": nn.Sequential(first(), nn.GroupNorm(2, 4), conv(3)),
    "layer norm over space": nn.Sequential(first(5, 4), nn.ReLU(), nn.LayerNorm([2, 2]), nn.GELU()),
    "attention": Through(attention, first(3, 2)),
    "excited": Through(excited, first()),
    "data": Through(lambda x, one: one(x.data), first()),
    "sorted": Through(lambda x, one: one(x).sort(-1).values, first()),
    "weights from the input": Through(lambda x: F.conv2d(x, x[:, :, :3, :3] + 0), *()),
    "written over": Through(lambda x, one: torch.cat([y := one(x), y.view(1, -1).zero_().view(y.shape)], 1), first()),
}
SIZES = {"layer norm over space": 12}
ALL = {name: (module, size) for name, (module, size, _) in BY_HAND.items()}
ALL |= {name: (module, SIZES.get(name, 15)) for name, module in ROUGH.items()}


@pytest.mark.parametrize("name", BY_HAND)
def test_fields_by_hand(name: str) -> None:
    module, size, fields = BY_HAND[name]
    found = geometry.of(module, size=size)
    axes = 1 if isinstance(size, tuple) and len(size) == 1 else 2
    assert found.axes == tuple(Field(*one) for one in (fields * axes)[:axes])
    assert found.assumed == ()
    with torch.no_grad():
        out = module(torch.zeros(1, next(module.parameters()).shape[1], *found.input))
    assert found.grid == tuple(out.shape[1:-1] if name == "channels last" else out.shape[2:])


def seen_by_gradient(
    module: nn.Module,
    found: Geometry,
    cell: Sequence[int],
    channels: int,
    layer: str | None = None,
    tries: int = 4,
    last: bool = False,
) -> tuple[int, ...]:
    """The smallest box of the pixels that a cell's values have a gradient at, over some random inputs, since a ReLU or
    a maximum hides pixels; all zeros where no pixel has a gradient."""
    module = copy.deepcopy(module).double().eval()  # in single precision small gradients vanish
    noise = torch.Generator().manual_seed(0)
    caught: list[Tensor] = []
    if layer is not None:
        module.get_submodule(layer).register_forward_hook(lambda _, __, out: caught.append(out))
    seen = torch.zeros(found.input, dtype=torch.bool)
    for _ in range(tries):
        x = torch.randn(1, channels, *found.input, generator=noise, dtype=torch.double).requires_grad_()
        out = module(x)
        out = caught[-1] if layer is not None else out
        values = (out.movedim(-1, 1) if last else out).flatten(2)[..., found.number(cell)]
        signs = torch.randint(0, 2, values.shape, generator=noise).to(values) * 2 - 1
        total = (values * signs).sum()
        (slope,) = torch.autograd.grad(total, x, allow_unused=True) if total.requires_grad else (None,)
        seen |= False if slope is None else (slope != 0).flatten(0, 1).any(0)
    where = seen.nonzero()  # pixels,axes
    starts, stops = (where.amin(0), where.amax(0) + 1) if len(where) else (seen.new_zeros(seen.ndim, dtype=int),) * 2
    return (*starts.flip(0).tolist(), *stops.flip(0).tolist())


@pytest.mark.parametrize("name", ALL)
def test_a_cell_sees_its_region_and_nothing_else(name: str) -> None:
    """Gradients lie in the region; pixels outside change nothing at all, pixels inside do."""
    torch.manual_seed(0)
    module, size = ALL[name]
    module = module.double().eval()
    found = geometry.of(module, size=size)
    axes = len(found.input)
    channels = 4 if name == "a line" else 3
    x = torch.randn(1, channels, *found.input, dtype=torch.double)
    for cell in {(0,) * axes, tuple(n // 2 for n in found.grid), tuple(n - 1 for n in found.grid)}:
        region = found.region(cell)
        seen = seen_by_gradient(module, found, cell, channels, tries=6, last=name == "channels last")
        starts, stops = region[:axes][::-1], region[axes:][::-1]
        if any(seen):
            assert all(a <= b for a, b in zip(starts, seen[:axes][::-1], strict=True))
            assert all(a >= b for a, b in zip(stops, seen[axes:][::-1], strict=True))
        if name in BY_HAND:
            assert seen == region
        inside = torch.zeros(found.input, dtype=torch.bool)
        inside[tuple(slice(a, b) for a, b in zip(starts, stops, strict=True))] = True
        with torch.no_grad():
            at = (0, *cell, slice(None)) if name == "channels last" else (0, slice(None), *cell)
            before, noise = module(x)[at], torch.randn_like(x)
            assert torch.equal(module(torch.where(inside, x, noise))[at], before)
            if name in BY_HAND:
                assert not torch.equal(module(torch.where(inside, noise, x))[at], before)


def test_borders_are_clipped_and_cells_told_in_reading_order() -> None:
    found = geometry.of(BY_HAND["padded"][0], size=(8, 12))
    assert (found.grid, found.input, found.size, found.stride) == ((2, 3), (8, 12), (7, 7), (4, 4))
    assert found.region((0, 0)) == (0, 0, 4, 4)
    assert found.region((1, 2)) == (5, 1, 12, 8)
    assert found.boxes().tolist() == [list(found.region((row, column))) for row in range(2) for column in range(3)]
    assert found.boxes().dtype is torch.int64
    one = geometry.of(BY_HAND["a line"][0], size=[40])
    assert one.region(0) == one.region((0,)) == (0, 9)
    assert one.boxes().shape == (9, 2)


def test_said_in_words() -> None:
    assert str(geometry.of(BY_HAND["three times"][0], size=63)) == (
        "cells see 15 x 15 pixels, stride 8, grid 7 x 7, input 63 x 63"
    )
    assert str(geometry.of(ROUGH["excited"], size=9)) == "every cell sees the whole input, grid 7 x 7, input 9 x 9"
    assert "up to 10 x 3 pixels" in str(
        geometry.of(first(), size=20, output=lambda y: y.unfold(2, 8, 8).amax(-1)[..., :1])
    )
    assert str(geometry.of(ROUGH["bicubic"], size=9)).endswith("(taken to read all they are given: upsample_bicubic2d)")


@pytest.mark.parametrize("name", ["attention", "excited", "group norm", "bicubic", "sorted in full"])
def test_some_cells_see_everything(name: str) -> None:
    module = ROUGH.get(name) or Through(lambda x, one: one(x).flatten(1).sort().values.view(1, 4, 13, 13), first())
    found = geometry.of(module, size=15)
    assert found.everything
    assert set(map(tuple, found.boxes().tolist())) == {(0, 0, 15, 15)}
    assert found.assumed == (("upsample_bicubic2d",) if name == "bicubic" else ())


def test_an_unknown_operation_is_named_only_where_it_matters() -> None:
    module = nn.Sequential(first(), nn.Upsample(scale_factor=2, mode="bicubic"))
    assert geometry.of(module, "0", size=9).assumed == ()
    pooled = nn.Sequential(first(), nn.AdaptiveAvgPool2d(1), nn.Upsample(scale_factor=2, mode="bicubic"))
    assert geometry.of(pooled, size=9).assumed == ()  # it could not have read more


@pytest.mark.parametrize(
    ("how", "read"),
    [
        ("_local_scalar_dense", lambda x: float(x.sum())),
        ("numpy", lambda x: torch.from_numpy(x.numpy().sum(keepdims=True))),
        ("tolist", lambda x: sum(x.flatten().tolist())),
    ],
)
def test_what_python_reads_may_decide_everything(how: str, read: Callable[[Tensor], float]) -> None:
    found = geometry.of(Through(lambda x, one: one(x) * read(x), first()), size=9)
    assert found.everything
    assert how in found.assumed
    assert geometry.of(seeded(Branching), "inner.trunk", size=16).everything


def test_views_written_to_are_seen_by_their_base() -> None:
    """The base is told too much, never too little; an in-place layer that adds nothing widens nothing."""
    found = geometry.of(ROUGH["shift"], size=9)
    assert found.everything
    assert found.assumed == ("writing through a view",)
    halves = Through(lambda x, one: torch.cat([half.relu_() for half in one(x).chunk(2, 1)], 1), first())
    assert geometry.of(halves, size=9).size == (3, 3)


def test_several_tensors_from_one_run() -> None:
    class Branches(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem = first(3, 2)
            self.branches = nn.ModuleList(conv(k) for k in (1, 3, 5))
            self.runs = 0

        def forward(self, x: Tensor) -> dict[str, list[Tensor]]:
            self.runs += 1
            y = self.stem(x)
            return {"evidence": [branch(y) for branch in self.branches]}

    module = Branches()
    found = geometry.of_tensors(module, torch.randn(2, 3, 31, 31), lambda out: out["evidence"])
    assert [one.size for one in found] == [(3, 3), (7, 7), (11, 11)]
    assert [one.grid for one in found] == [(15, 15), (13, 13), (11, 11)]
    assert [one.stride for one in found] == [(2, 2)] * 3
    assert module.runs == 1
    assert geometry.of(module, size=31, output=lambda out: out["evidence"][1]) == found[1]
    raises(BadNetwork, "gives a dict, not a tensor", geometry.of, module, size=31)


def test_words_of_a_sentence() -> None:
    """Token numbers have no channels; what a cell sees is a span of words."""
    module = Through(lambda x, words, one: one(words(x).transpose(1, 2)), nn.Embedding(50, 4), line(5))
    (found,) = geometry.of_tensors(module, torch.randint(0, 50, (1, 12)), lambda out: [out])
    assert found.axes == (Field(1, 0, 5),)
    assert found.region(3) == (3, 8)


def test_resnet() -> None:
    found = geometry.of(torchvision.models.resnet18(weights=None), "layer4")
    assert found.axes == (Field(32, -217, 218),) * 2
    assert found.size == (435, 435)
    assert found.grid == (7, 7)
    assert found.region((0, 6)) == (0, 0, 224, 218)  # cell 6 begins at 6 x 32 - 217 = -25
    assert not found.everything


def test_convnext() -> None:
    module = timm.create_model("convnext_atto", pretrained=False)
    for parameter in module.parameters():
        if parameter.abs().max() < 1e-3:
            nn.init.normal_(parameter)  # layer scale begins at next to nothing
    # each stage has two 7 x 7, of 6 cells more: 4 + 2 x 6 x 4 = 52, then 52 + 4 + 2 x 6 x 8 = 152
    for layer, size, stride in (("stages.0", 52, 4), ("stages.1", 152, 8)):
        found = geometry.of(module, layer, size=192)
        assert (found.size, found.stride, found.assumed) == ((size, size), (stride, stride), ())
        cell = tuple(n // 2 for n in found.grid)
        assert seen_by_gradient(module, found, cell, 3, layer, tries=1) == found.region(cell)
    last = geometry.of(module, "stages.3", size=192)
    assert last.stride == (32, 32)
    assert last.size == (1136, 1136)


@pytest.mark.parametrize(
    ("name", "layer"), [("vit_tiny_patch16_224", "blocks.0"), ("mobilenetv3_small_050", "blocks.1")]
)
def test_attention_and_excitation_see_everything(name: str, layer: str) -> None:
    found = geometry.of(timm.create_model(name, pretrained=False), layer)
    assert found.everything
    assert found.assumed == ()
    assert found.grid == ((14, 14) if "vit" in name else (28, 28))


def test_picking_by_number_leaves_other_maps_alone() -> None:
    """A label that the network works out widens what it picks, not what it was worked out from."""

    def maps(x: Tensor, one: nn.Module) -> tuple[Tensor, Tensor]:
        y = one(x)
        best = y.mean((2, 3)).argmax(1)
        return y, y[torch.arange(len(y)), best]

    found = geometry.of_tensors(Through(maps, first()), torch.randn(1, 3, 9, 9), lambda out: out)
    assert [one.everything for one in found] == [False, True]  # the second: whichever channel wins
    assert found[0].size == (3, 3)


def test_compiled() -> None:
    found = geometry.of(torch.compile(BY_HAND["twice"][0], backend="eager"), size=33)
    assert found.axes == (Field(4, 0, 7),) * 2


def test_a_network_tells_its_own_size() -> None:
    net = fovea.wrap(BY_HAND["twice"][0], transform=Prepare((40, 24)), output=lambda out: out)
    assert geometry.of(net).input == (40, 24)
    assert geometry.of(net, size=16).input == (16, 16)
    assert geometry.of(nn.Sequential(nn.Flatten(), nn.Linear(12, 5)), size=2).everything  # one cell, the output itself


class Odd(nn.Module):
    """Counts its runs in a buffer, draws random numbers, and may fail."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.conv, self.drop, self.fails = first(), nn.Dropout(), fails
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        y = self.drop(self.conv(x)) + torch.rand(1)
        if self.fails:
            raise RuntimeError("no")
        return y


@pytest.mark.parametrize("fails", [False, True])
def test_module_is_left_as_found(fails: bool) -> None:
    module = Odd(fails).train()
    module.conv.eval()
    with left_as_found(module):
        if fails:
            raises(BadNetwork, "does not run on an input of 3 x 9 x 9: no", geometry.of, module, "conv", size=9)
        else:
            geometry.of(module, "conv", size=9)


def test_bad_choices() -> None:
    module = torchvision.models.resnet18(weights=None)
    refused("no layer 'layer5'; did you mean 'layer4'", geometry.of, module, "layer5", size=32)
    with pytest.raises(BadChoice, match=r"no cell \(0, 7\) in a grid of 7 x 7: the last cell is \(6, 6\)"):
        geometry.of(first(3), size=9).region((0, 7))
    refused("at least one channel and one position", geometry.of, module, size=0)
    raises(BadNetwork, r"does not run on an input of 3 x 2 x 2", geometry.of, first(3), size=2)
