"""AnchorNet-I (Yang et al. 2020): three branches whose cells see patches of 63, 95 and 111 pixels, 8 pixels apart.

No convolution is padded, so every cell has a patch that lies in the picture whole. The tables' squeeze-and-excitation
pools over the whole picture, which lets every cell depend on every pixel: `se="global"` is the paper's table,
`se="local"` the same two layers without the pooling, `se="none"` leaves them out. Only of the last two may it be said
that a cell's evidence comes from its own patch."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice, nearest
from fovea.models.anchoring import PAPER, AnchorNetOutput, Branch, Branched, BranchOptions, output_of
from fovea.networks import Network, geometry, model
from fovea.networks.geometry import Geometry
from fovea.pictures import Prepare

SE = Literal["local", "none", "global"]
Row = tuple[int, int, int, bool, type[nn.Module], int]  # kernel, expansion, output, SE, non-linearity, stride

HEAD: tuple[Row, ...] = (  # Table 1, after its first convolution
    (3, 16, 16, False, nn.ReLU, 2),
    (3, 72, 24, False, nn.ReLU, 2),
    (1, 88, 24, False, nn.ReLU, 1),
    (1, 96, 40, True, nn.Hardswish, 1),
    (1, 240, 40, True, nn.Hardswish, 1),
    (1, 240, 40, True, nn.Hardswish, 1),
    (1, 120, 48, True, nn.Hardswish, 1),
    (3, 144, 48, True, nn.Hardswish, 1),
    (3, 288, 96, True, nn.Hardswish, 1),
)
BRANCHES: tuple[tuple[Row, ...], ...] = (  # Table 2; the last row of each is the attention's
    ((3, 480, 96, True, nn.Hardswish, 1), (1, 576, 96, True, nn.Hardswish, 1), (1, 192, 96, True, nn.Hardswish, 1)),
    ((3, 480, 96, True, nn.Hardswish, 1), (5, 576, 96, True, nn.Hardswish, 1), (1, 192, 96, True, nn.Hardswish, 1)),
    ((5, 480, 96, True, nn.Hardswish, 1), (5, 576, 96, True, nn.Hardswish, 1), (1, 192, 96, True, nn.Hardswish, 1)),
)
STEM, SMALLEST = 16, 111  # channels of the first convolution; what the widest branch needs


class Excitation(nn.Module):
    """Squeeze and excitation by a quarter of the channels, with batch norm, of the whole map or of each cell alone."""

    def __init__(self, channels: int, pooled: bool) -> None:
        super().__init__()
        self.pooled = pooled
        self.squeeze = nn.Conv2d(channels, channels // 4, 1, bias=False)
        self.squeeze_norm = nn.BatchNorm2d(channels // 4)
        self.excite = nn.Conv2d(channels // 4, channels, 1, bias=False)
        self.excite_norm = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        seen = x.mean((2, 3), keepdim=True) if self.pooled else x
        hidden = F.relu(self.squeeze_norm(self.squeeze(seen)))
        return x * F.hardsigmoid(self.excite_norm(self.excite(hidden)))


class Depthwise(nn.Conv2d):
    """A filter a channel. One of a single pixel is a product, which libraries take for a slow convolution."""

    def __init__(self, channels: int, kernel: int, stride: int) -> None:
        super().__init__(channels, channels, kernel, stride, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.kernel_size == (1, 1) and self.stride == (1, 1):
            return x * self.weight.view(1, -1, 1, 1).to(x.dtype)
        return super().forward(x)


class Bottleneck(nn.Module):
    """MobileNetV3's, without padding: expand, filter each channel, project, excite; the shortcut is cut to fit."""

    def __init__(self, given: int, row: Row, se: SE) -> None:
        super().__init__()
        kernel, wide, out, excited, act, stride = row
        self.expand = nn.Sequential(nn.Conv2d(given, wide, 1, bias=False), nn.BatchNorm2d(wide), act())
        self.filter = nn.Sequential(Depthwise(wide, kernel, stride), nn.BatchNorm2d(wide), act())
        self.project = nn.Sequential(nn.Conv2d(wide, out, 1, bias=False), nn.BatchNorm2d(out))
        self.excite = Excitation(out, se == "global") if excited and se != "none" else nn.Identity()
        self.shortcut: nn.Module | None = None
        if stride == 1:
            fits = given == out
            conv = nn.Conv2d(given, out, 1, bias=False)
            self.shortcut = nn.Identity() if fits else nn.Sequential(conv, nn.BatchNorm2d(out))
        self.rim = kernel // 2

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.excite(self.project(self.filter(self.expand(x))))
        if self.shortcut is None:
            return y
        rim = self.rim
        inner = x[:, :, rim : x.shape[2] - rim, rim : x.shape[3] - rim] if rim else x
        kept: Tensor = self.shortcut(inner)
        return y + kept


class AnchorNet(Branched):
    abilities = frozenset({"branches"})

    def __init__(self, classes: int, se: SE = "local", form: BranchOptions = PAPER) -> None:
        super().__init__()
        self.se = se
        stem = nn.Sequential(nn.Conv2d(3, STEM, 3, 2, bias=False), nn.BatchNorm2d(STEM), nn.Hardswish())
        self.head = nn.Sequential(stem, *_bottlenecks(STEM, HEAD, se))
        self.branches = nn.ModuleList(self._branch(rows, classes, se, form) for rows in BRANCHES)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    @staticmethod
    def _branch(rows: tuple[Row, ...], classes: int, se: SE, form: BranchOptions) -> Branch:
        *before, last = rows
        width, attended = before[-1][2], Bottleneck(before[-1][2], last, se) if form.attention else None
        features = nn.Sequential(*_bottlenecks(HEAD[-1][2], before, se))
        return Branch(features, (width, last[2], classes), attended, nn.Conv2d, form)

    def forward(self, x: Tensor) -> AnchorNetOutput:
        if x.ndim != 4 or x.shape[1] != 3:
            raise BadChoice(f"AnchorNet takes color pictures, N,3,H,W; got {tuple(x.shape)}")
        if min(x.shape[2:]) < SMALLEST:
            height, width = x.shape[2:]
            got = f"the patch of its widest branch; got {width} x {height}"
            raise BadChoice(f"AnchorNet needs pictures of at least {SMALLEST} x {SMALLEST} pixels, {got}")
        features = self.head(x)
        return output_of([branch(features) for branch in self.branches])

    def cells(self, x: Tensor) -> list[tuple[Tensor, Tensor | None]]:
        """What each cell of every branch has by itself."""
        features = self.head(x)
        return [branch.cells(features) for branch in self.branches]  # type: ignore[operator]

    @property
    def proven(self) -> bool:
        """Whether a cell's evidence comes from its own patch alone: not where the excitation sees everything."""
        return self.se != "global"

    def geometries(self, size: tuple[int, int]) -> tuple[Geometry, ...]:
        """The patches of every branch's cells."""
        return _geometries(tuple(size))


@lru_cache(maxsize=64)
def _geometries(size: tuple[int, int]) -> tuple[Geometry, ...]:
    """Followed through a twin without excitation, which changes no patch."""
    with torch.inference_mode(False), torch.random.fork_rng(devices=[]):
        twin = AnchorNet(1, "none", BranchOptions(attention=False))
        nothing = torch.zeros(1, 3, *size)
        return geometry.of_tensors(twin, nothing, lambda out: [branch.evidence for branch in out.branches])


def _bottlenecks(given: int, rows: "tuple[Row, ...] | list[Row]", se: SE) -> list[Bottleneck]:
    widths = [given, *(row[2] for row in rows)]
    return [Bottleneck(width, row, se) for width, row in zip(widths, rows, strict=False)]


@dataclass(frozen=True)
class AnchorNetOptions(BranchOptions):
    se: SE = "local"
    side: int = 224  # pictures are squashed to side x side, as the paper does when it tests

    def __post_init__(self) -> None:
        if self.se not in get_args(SE):
            raise BadChoice(f"se is local, none or global; got {self.se!r}{nearest(str(self.se), get_args(SE))}")
        if self.side < SMALLEST:
            raise BadChoice(f"AnchorNet needs pictures of at least {SMALLEST} pixels a side; got side={self.side}")


@model(
    "anchornet",
    about="three branches whose cells see patches of 63, 95 and 111 pixels",
    can=("branches",),
    readings=({"se": "global"}, {"se": "local"}, {"se": "none"}),
)
def build(classes: int, options: AnchorNetOptions) -> Network:
    transform = Prepare((options.side, options.side), (0.5,) * 3, (0.5,) * 3, None, "bicubic")
    module = AnchorNet(classes, options.se, options)
    return Network(module, transform, tuple(map(str, range(classes))), "head")
