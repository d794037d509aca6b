"""The recurrent retrieval network of L2-CAF 4.3 (its Fig. 8): frames in, one embedding of the clip out.

A frozen, pretrained network gives a map of every frame. A shallow CNN, the same for all frames, makes it narrow; an
LSTM reads one frame's cells after the other's, each cell at its own place, so that where things are, and with that how
they move, is not pooled away; a linear layer gives the embedding. `fovea.explain` cuts between CNN and LSTM."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

import torch
from timm.layers import register_notrace_module
from timm.models import GraphExtractNet
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.basics import BadChoice, BadNetwork, nearest
from fovea.models.trunks import Trunk, prepare_of, trunk_of
from fovea.networks import Network, model
from fovea.pictures import Prepare

DIMENSIONS = 128
Size = tuple[int, int]  # height, width


@dataclass(frozen=True)
class VideoNetOutput:
    embedding: Tensor  # N,D  as the ranking losses take it, of any length
    maps: Tensor  # N*T,width,h,w: what the LSTM reads of every frame


class Features(Tensor):
    """What the frozen network gives for the frames of clips, N,T,channels,h,w: a type of its own tells it from frames.
    Networks are trained on it, so that the frozen part runs once for a frame and not at every step."""


@register_notrace_module  # so that the network can be traced, whatever its features are
class Frozen(nn.Module):
    """Always in eval mode, and without gradients."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body.eval().requires_grad_(False)

    def train(self, mode: bool = True) -> "Frozen":
        return super().train(False)

    @torch.no_grad()
    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


@dataclass(frozen=True)
class VideoOptions:
    layer: str | None = None  # where the features end, as blocks.2; their last map unless given
    size: int | None = None  # frames are squashed to size x size, or the network's own
    width: int = 32  # channels of the CNN
    narrow: int = 2  # and those that the LSTM reads of every cell
    hidden: int = 128  # numbers of the LSTM
    dimensions: int = DIMENSIONS
    drop: float = 0.3  # the share of cells that is left out in training

    def __post_init__(self) -> None:
        for name in ("size", "width", "narrow", "hidden", "dimensions"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < 1):
                raise BadChoice(f"video: {name} is a whole number, at least 1; got {value!r}")
        if not 0 <= self.drop < 1:
            raise BadChoice(f"video: drop is a share of the cells, 0 or more and below 1; got {self.drop!r}")


class VideoNet(nn.Module):
    """Clips of any number of frames, all of one `size`.

    What all cells of a frame have in common says nothing about where something is. It is taken away before the CNN,
    which has no biases, so an empty background gives cells of zeros, which the LSTM does not see. The CNN looks at each
    cell alone, so that no cell sees more than the features' own do. In training a share `drop` of the cells is left
    out: the LSTM learns to do without any of them, as attention filters make it."""

    abilities = frozenset({"embedding", "frames"})

    takes_frames = True

    def __init__(self, features: nn.Module, size: Size, channels: int, grid: Size, options: VideoOptions) -> None:
        super().__init__()
        self.features = Frozen(features)
        self.size, self.channels, self.grid, self.drop = size, channels, grid, options.drop
        width, narrow, hidden = options.width, options.narrow, options.hidden
        first, second = nn.Conv2d(channels, width, 1, bias=False), nn.Conv2d(width, narrow, 1, bias=False)
        self.shallow = nn.Sequential(nn.InstanceNorm2d(channels), first, nn.ReLU(), second, nn.ReLU())
        for layer in (first, second):
            nn.init.kaiming_normal_(layer.weight)
        self.lstm = nn.LSTM(narrow * grid[0] * grid[1], hidden, batch_first=True)
        self.embed = nn.Linear(hidden, options.dimensions)

    def look(self, x: Tensor) -> Tensor:
        """The frozen part: N,T,C,H,W to N,T,channels,h,w."""
        n, t = x.shape[:2]
        return self.features(x.flatten(0, 1)).unflatten(0, (n, t))

    def forward(self, x: Tensor) -> VideoNetOutput:
        """Frames, N,T,C,H,W, or `Features` of them."""
        if isinstance(x, Features):
            seen = x.as_subclass(Tensor)
        else:
            if isinstance(x, Tensor):  # while the network is traced it is none
                self._check(x)
            seen = self.look(x)
        n, t = seen.shape[:2]  # N,T,channels,h,w
        maps = self.shallow(seen.flatten(0, 1))  # N*T,narrow,h,w
        kept = maps * F.dropout(torch.ones_like(maps[:, :1]), self.drop) if self.training else maps
        told, _ = self.lstm(kept.flatten(1).unflatten(0, (n, t)))  # N,T,hidden
        return VideoNetOutput(self.embed(told[:, -1]), maps)

    def _check(self, x: Tensor) -> None:
        if x.ndim != 5 or x.shape[1] < 1 or tuple(x.shape[3:]) != self.size:
            height, width = self.size
            raise BadChoice(
                f"this network takes clips, N,T,C,H,W, of frames of {height} x {width} (height x width), which it sees "
                f"in {self.grid[0]} x {self.grid[1]} cells; got {tuple(x.shape)}. Frames of another size: "
                "fovea.load('video/NAME', options={'size': SIDE})"
            )


@model("video", about="one embedding per clip, by an LSTM over frames", over="network", can=("embedding", "frames"))
def build(features: Network, options: VideoOptions) -> Network:
    """A clip's embedding over the frozen features of any network."""
    layer, size = options.layer, options.size
    prepare = prepare_of(features)
    prepare = replace(prepare, crop=None, size=prepare.size if size is None else (size, size))
    trunk: nn.Module = trunk_of(replace(features, transform=prepare))
    if layer is not None:
        trunk = _until(trunk, layer, features.name)
    found = _map_of(trunk, prepare, layer)
    module = VideoNet(trunk, prepare.size, found[0], found[1:], options)
    return Network(module, prepare, None, "shallow", output=attrgetter("embedding"))


def _until(trunk: nn.Module, layer: str, name: str) -> nn.Module:
    assert isinstance(trunk, Trunk)
    known = [one for one, _ in trunk.body.named_modules() if one]
    if layer not in known:
        raise BadChoice(f"video: no layer {layer!r} in {name or 'the network'}{nearest(layer, known)}")
    try:
        cut: nn.Module = GraphExtractNet(trunk.body, [layer])
        return cut.eval()
    except Exception as error:  # whatever tracing meets in a network that it cannot follow
        why = f"{name or 'the network'} cannot be cut at {layer!r} ({type(error).__name__}); leave layer= out"
        raise BadNetwork(f"video: {why}") from None


def _map_of(trunk: nn.Module, prepare: Prepare, layer: str | None) -> tuple[int, int, int]:
    """Channels and grid of the map that the features give."""
    like = next(trunk.parameters(), torch.zeros(1))
    with torch.no_grad():
        found = trunk(torch.zeros(1, len(prepare.mean), *prepare.size).to(like))
    shape: Sequence[int] = found.shape if isinstance(found, Tensor) else ()
    if len(shape) != 4 or min(shape[2:]) < 2:
        what = f"layer {layer!r} gives" if layer else "the features give"
        raise BadChoice(
            f"video: {what} {tuple(shape[1:])} for frames of {prepare.size[0]} x {prepare.size[1]}, and a map of "
            "at least 2 x 2 cells (channels, height, width) is needed: name an earlier layer=, or take a larger size="
        )
    return int(shape[1]), int(shape[2]), int(shape[3])


def video_of(network: Network) -> VideoNet:
    if not isinstance(network.module, VideoNet):
        raise BadChoice(f"{network.name or 'the network'} is no network for clips: give a video/NAME")
    return network.module
