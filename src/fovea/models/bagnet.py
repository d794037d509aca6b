"""BagNet-77 as in TNet's paper (Tables 3 and 4): a residual network whose cells see patches of 77 pixels, 8 apart.

C of the tables' blocks is what they give out, the shortcut's width too; convolutions have a bias and no norm, the third
Leaky ReLU comes after the addition. Convolutions are padded as TensorFlow's SAME, which pads more after than before."""

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice
from fovea.models.norms import scaled
from fovea.networks import Network, model
from fovea.pictures import Prepare

SLOPE = 0.2
STEM, OUT = 64, 512  # channels
SMALLEST = 29  # below it nothing is left for the last unpadded convolution
Row = tuple[int, int, int, bool]  # kernel, channels, stride, padded

BLOCKS: tuple[Row, ...] = (  # Table 4
    (3, 256, 2, True), (3, 256, 1, True), (1, 256, 1, True),
    (3, 512, 2, True), (3, 512, 1, True), (1, 512, 1, True), (1, 512, 1, True),
    (3, 1024, 2, False), (3, 1024, 1, True), *((1, 1024, 1, True),) * 4,
    (3, 2048, 1, False), (3, 2048, 1, True), (1, 2048, 1, True),
)  # fmt: skip
LOOKED_AT = 13  # blocks before the map that TNet chooses locations by


@dataclass(frozen=True)
class BagNetOutput:
    logits: Tensor  # N,classes
    features: Tensor  # N,C,H,W: of cells that see 77 x 77 pixels


class Same(nn.Conv2d):
    """Padded so that the output has 1/stride of the input's cells, rounded up; the odd pixel comes after."""

    def forward(self, x: Tensor) -> Tensor:
        sides = []
        for axis in (3, 2):  # as F.pad takes them
            length, kernel, stride = x.shape[axis], self.kernel_size[axis - 2], self.stride[axis - 2]
            missing = max(((length - 1) // stride) * stride + kernel - length, 0)
            sides += [missing // 2, missing - missing // 2]
        return super().forward(F.pad(x, sides) if any(sides) else x)


class ConvBlock(nn.Module):
    """Narrow, filter, widen, add what came in; an unpadded filter loses the rim, so the shortcut does too."""

    def __init__(self, given: int, row: Row, norm: bool = False) -> None:
        super().__init__()
        kernel, width, stride, padded = row
        conv, changes = Same if padded else nn.Conv2d, stride > 1 or given != width
        self.narrow = _normed(nn.Conv2d(given, width // 4, 1), norm)
        self.filter = _normed(conv(width // 4, width // 4, kernel, stride), norm)
        self.widen = _normed(nn.Conv2d(width // 4, width, 1), norm)
        self.shortcut = _normed(nn.Conv2d(given, width, 1, stride), norm) if changes else nn.Identity()
        self.rim = 0 if padded else kernel - 1

    def forward(self, x: Tensor) -> Tensor:
        y = F.leaky_relu(self.narrow(x), SLOPE)
        y = self.widen(F.leaky_relu(self.filter(y), SLOPE))
        before, after = self.rim // 2, self.rim - self.rim // 2
        inner = x[:, :, before:-after, before:-after] if self.rim else x
        return F.leaky_relu(y + self.shortcut(inner), SLOPE)


def _normed(conv: nn.Conv2d, norm: bool) -> nn.Module:
    return nn.Sequential(conv, nn.BatchNorm2d(conv.out_channels)) if norm else conv


class Bag(nn.Module):
    """The feature extraction of Table 4. `width` multiplies every number of channels, `dropout` drops whole maps,
    `norm` puts batch norm behind every convolution, where the paper has none."""

    def __init__(self, width: float = 1.0, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        stem, out = scaled(STEM, width), scaled(OUT, width)
        rows = [(kernel, scaled(channels, width), stride, padded) for kernel, channels, stride, padded in BLOCKS]
        given = [stem, *(row[1] for row in rows)]
        blocks = [ConvBlock(wide, row, norm) for wide, row in zip(given, rows, strict=False)]
        self.stem = _normed(nn.Conv2d(3, stem, 3), norm)
        self.before = nn.Sequential(*blocks[:LOOKED_AT])
        self.behind = nn.Sequential(*blocks[LOOKED_AT:])
        self.last = _normed(nn.Conv2d(rows[-1][1], out, 1), norm)
        self.dropout = nn.Dropout2d(dropout)
        self.channels, self.width = rows[LOOKED_AT - 1][1], out
        glorot(self)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The map after block 13, whose cells see 45 pixels, and the last one, whose cells see 77."""
        seen = self.before(F.leaky_relu(self.stem(x), SLOPE))
        return seen, self.dropout(F.leaky_relu(self.last(self.behind(seen)), SLOPE))


class BagNet(nn.Module):
    def __init__(self, classes: int, width: float = 1.0, dropout: float = 0.0, norm: bool = False) -> None:
        super().__init__()
        self.features = Bag(width, dropout, norm)
        self.last = nn.Identity()  # where heatmaps are taken
        self.classifier = nn.Linear(self.features.width, classes)
        glorot(self.classifier)

    def forward(self, x: Tensor) -> BagNetOutput:
        if x.ndim != 4 or x.shape[1] != 3 or min(x.shape[2:]) < SMALLEST:
            got = f"got {tuple(x.shape)}"
            raise BadChoice(f"BagNet takes color pictures of at least {SMALLEST} x {SMALLEST} pixels, N,3,H,W; {got}")
        features = self.last(self.features(x)[1])
        return BagNetOutput(self.classifier(features.mean((2, 3))), features)

    def reset_classifier(self, classes: int) -> None:
        """A new, untrained last layer for so many classes."""
        old = self.classifier
        self.classifier = nn.Linear(old.in_features, classes).to(old.weight)
        glorot(self.classifier)


def glorot(module: nn.Module) -> None:
    """Glorot's normal initialization, biases zero, as the paper trains."""
    for layer in module.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_normal_(layer.weight)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)


@model("bagnet77", about="a residual network whose cells see 77 x 77 pixels")
def build(classes: int, width: float = 1.0, dropout: float = 0.0, side: int = 224, norm: bool = False) -> Network:
    """`side`: pictures are squashed to side x side; `norm`: batch norm, which the paper's has not."""
    check(width, dropout)
    if side < SMALLEST:
        raise BadChoice(f"BagNet needs pictures of at least {SMALLEST} pixels a side; got side={side}")
    labels = tuple(map(str, range(classes)))
    return Network(BagNet(classes, width, dropout, norm), prepare(side), labels, "last")


def check(width: float, dropout: float) -> None:
    if not 0 < width <= 4:
        raise BadChoice(f"width multiplies the channels and is above 0 and at most 4; got {width}")
    if not 0 <= dropout < 1:
        raise BadChoice(f"dropout is a share from 0 to below 1; got {dropout}")


def prepare(side: int) -> Prepare:
    """Values from -1 to 1, the whole picture squashed in."""
    return Prepare((side, side), (0.5,) * 3, (0.5,) * 3, None, "bicubic")
