"""A batch read by a two-stream network, and its maps: of the pictures as a whole, and of every patch at every step."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import cast

import torch
from torch import Tensor

from fovea.basics import BadChoice, nearest
from fovea.heatmaps import HeatMaps, MethodLike, Target, find, look_at, look_into
from fovea.models.localstream import LocalStream, Steps
from fovea.models.twostream import GlobalStream, TwoStream, TwoStreamOutput
from fovea.networks import Head, Layout, Network, Opened, wrap
from fovea.pictures import Placement, Shown

SELF_ATTENTION = "self-attention"
METHODS = ("gradcam", "l2caf", SELF_ATTENTION)
WHOLE, LOCAL = "global stream", "local stream"  # what the maps that are looked at are called


@dataclass(frozen=True)
class Read:
    """What the network made of N pictures and K patches of each."""

    out: TwoStreamOutput
    cells: Tensor  # N*K,C,h,w: F of every patch
    steps: Steps  # of the N*K patches
    boxes: Tensor  # N,K,4 in shares of the input


@dataclass(frozen=True)
class Streams:
    """A two-stream network to look at. What is asked of it is asked in eval mode."""

    network: Network
    module: TwoStream
    local: LocalStream
    classifier: Network  # the global stream, whose last map is searched for once where it does not give it

    @staticmethod
    def of(network: Network, *methods: str) -> "Streams":
        """Or an error that says why it cannot look longer, or not by one of these methods."""
        name = network.name or type(network.module).__name__
        if not network.can("streams"):
            why = "(with local='none' there is a global stream alone); fovea.explain shows where it looks"
            raise BadChoice(f"{name} has no local stream that looks in steps {why}")
        module = cast(TwoStream, network.module)
        local = cast(LocalStream, module.local)
        for method in methods:
            if method not in METHODS:
                near = nearest(method, METHODS)
                raise BadChoice(f"steps are looked at by {', '.join(METHODS)}; not {method!r}{near}")
        if SELF_ATTENTION in methods and (local.recurrent is None or local.recurrent.ask is None):
            mend = "build it with self_attention=true, or use gradcam or l2caf"
            raise BadChoice(f"{name} was built without self-attention: {mend}")
        return Streams(network, module, local, wrap(module.whole, labels=network.labels))

    @property
    def classes(self) -> int:
        return self.local.classifier.out_features

    @torch.no_grad()
    def read(self, batch: Tensor) -> Read:
        """N,C,H,W as the network takes it."""
        out: TwoStreamOutput = self.network.answer(batch)
        assert out.boxes is not None  # there is a local stream
        assert out.steps is not None
        assert out.cells is not None
        return Read(out, out.cells, out.steps, out.boxes)

    def patches(self, seen: Read, shown: Sequence[Shown]) -> list[Shown]:
        """Every patch as a part of its picture: N*K."""
        pairs = zip(shown, seen.boxes.tolist(), strict=True)
        return [windowed(one, box, self.module.patch) for one, boxes in pairs for box in boxes]

    def whole_map(self, seen: Read, method: MethodLike, classes: Target, shown: Sequence[Shown]) -> HeatMaps:
        """Where the global stream looks for a class a picture (N). It has no self-attention: Grad-CAM stands in."""
        own = find("gradcam" if method == SELF_ATTENTION else method)
        windows = zip(shown, seen.out.seen.tolist(), strict=True)
        placed = [windowed(one, window, self.module.size) for one, window in windows]
        if seen.out.map is None:
            assert seen.out.view is not None
            return look_at(self.classifier, seen.out.view, placed, [own], classes)[0][own.name]
        root, classify = seen.out.map.detach().requires_grad_(), cast(GlobalStream, self.module.whole).classify
        opened = _opened(root, classify(root), classify)
        return look_into(self.network, opened, placed, [own], classes, WHOLE)[0][own.name]

    def step_maps(self, seen: Read, method: str, classes: Tensor, patches: Sequence[Shown]) -> list[HeatMaps]:
        """Where each of T steps looks, in all patches (N*K), for a class a picture (N). The trunk is not run again:
        what is looked at is the map that it gave, and what follows is a step's own answer."""
        targets = classes.repeat_interleave(seen.boxes.shape[1])  # N*K
        if method == SELF_ATTENTION:
            return self._attention(seen.steps, targets, patches)
        root = seen.cells.detach().requires_grad_()
        each = self.local(root).each  # N*K,T,classes
        found = []
        for step in range(self.local.steps):
            opened = _opened(root, each[:, step], partial(self._alone, step))
            found.append(look_into(self.network, opened, patches, [find(method)], targets, LOCAL)[0][method])
        return found

    def _alone(self, step: int, features: Tensor) -> Tensor:
        """What one step says: N*K,classes."""
        each: Tensor = self.local(features).each
        return each[:, step]

    def _attention(self, steps: Steps, targets: Tensor, patches: Sequence[Shown]) -> list[HeatMaps]:
        assert steps.maps is not None
        indices = targets.tolist()
        whole = HeatMaps(
            cells=steps.maps,
            shown=tuple(patches),
            targets=tuple((self.network.label(index),) for index in indices),
            method=SELF_ATTENTION,
            layer=LOCAL,
            diagnosis=((None,),) * len(indices),
            classes=tuple((index,) for index in indices),
        )
        return [replace(whole, cells=one.unsqueeze(1)) for one in steps.maps.unbind(1)]  # N*K,1,h,w


def _opened(features: Tensor, output: Tensor, head: Head) -> Opened:
    layout = Layout("channels first", tuple(features.shape[2:]))
    return Opened(features, output, head, lambda: features, layout, None, whole=False, free=True)


def windowed(shown: Shown, window: Sequence[float], side: int) -> Shown:
    """A picture of which a stream was shown a window, in shares of the network's input, at side x side."""
    assert shown.placement is not None  # the network takes pictures
    (width, height), (sx, sy), (ox, oy) = shown.placement.input, shown.placement.scale, shown.placement.offset
    x0, y0, x1, y1 = window
    scale = (x1 - x0) * width * sx / side, (y1 - y0) * height * sy / side
    offset = ox + x0 * width * sx, oy + y0 * height * sy
    return replace(shown, placement=Placement(shown.placement.picture, (side, side), scale, offset))
