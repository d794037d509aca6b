"""What every way of cutting shares: a cut, a batch inside it, and a new root for the head's graph."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fovea.basics import BadChoice, BadNetwork
from fovea.networks.cutting.heads import Fold, Head, SecondPart, folded
from fovea.networks.layout import Layout, layout_of

Trunk = Callable[[], Tensor]
# a batch, and whether gradients shall reach the trunk, to: features, output, head, trunk, any number of samples?
Enter = Callable[[Tensor, bool], tuple[Tensor, Tensor, Head, Trunk, bool]]


@dataclass(frozen=True)
class Alone:
    """A head of a hooked network that is run without what comes before it."""

    run: Head

    def __call__(self, features: Tensor) -> Tensor:
        return self.run(features)


@dataclass(frozen=True)
class Opened:
    """A batch inside a cut network: features at the cut, the output they give, the head to try other features on."""

    features: Tensor  # B,... where B is N, or N*T when the network looks at T frames one by one
    output: Tensor  # N,...  connected to `features`
    head: Head
    trunk: Trunk  # the trunk once more, for the whole-network path
    layout: Layout
    frames: int | None  # T, or None when the input has no frames
    whole: bool  # the head cannot be run alone: each call runs the whole network
    free: bool  # the head takes any samples
    input: Tensor | None = None  # what the features are of; None where they were put together otherwise
    curved: set[Any] = field(default_factory=set)  # methods whose formulas were found not to hold for this head
    fold: Fold | None = None  # what filters the features, where their way through the head was prepared

    @property
    def separable(self) -> bool:
        """Whether some of the pictures can be taken."""
        return self.free or (isinstance(self.head, SecondPart) and self.head.of_rows is not None)

    def take(self, rows: Tensor) -> "Opened":
        """The pictures of these indices (M), in any order and as often as they are named. Not their trunk."""
        every = rows
        if self.frames:
            every = (rows.unsqueeze(1) * self.frames + torch.arange(self.frames, device=rows.device)).flatten()
        features = self._fixed[every]
        return replace(
            self,
            features=features,
            output=(self.output.detach() if self.features.is_leaf else self.output)[rows],
            head=self.head.take(every) if isinstance(self.head, SecondPart) else self.head,
            trunk=lambda: features,
            input=None if self.input is None else self.input[rows],
            fold=None if self.fold is None else self.fold.take(rows),
        )

    def filtered(self, f: Tensor) -> Tensor:
        """The output with every cell multiplied by its number; f is B,P. A gradient reaches the features only if they
        are connected to the trunk."""
        return self.fold(f) if self.fold else self.head(self.layout.times(self._fixed, f))

    def folded(self) -> "Opened":
        """Made ready for many filters: where the head begins with an affine layer that is costly, such as VGG's first
        linear one, it is run once for every cell, and no more. The same elsewhere, and where gradients reach the
        trunk."""
        head = self.head
        if not isinstance(head, SecondPart) or not self.separable or self.frames or not self.features.is_leaf:
            return self
        return replace(self, fold=folded(head, self._fixed, self.layout))

    @property
    def _fixed(self) -> Tensor:
        return self.features.detach() if self.features.is_leaf else self.features


@dataclass(frozen=True)
class Cut:
    """A network divided at one layer."""

    layer: str
    how: Literal["timm", "graph", "hook"]
    enter: Enter
    current: Callable[[], bool] = lambda: True  # False once the network no longer is what was cut
    time_first: bool = False  # frames are folded as T,N instead of N,T
    quiet: bool = False  # runs a graph, not the forward of the user's own, and draws no random numbers
    curved: set[Any] = field(default_factory=set)  # as in Opened, from batch to batch

    def open(self, batch: Tensor, differentiable: bool = False) -> Opened:
        features, output, head, trunk, free = self.enter(batch, differentiable)
        frames = _frames(features, batch)
        if frames and self.time_first:
            features, head, trunk = _picture_first(features, head, trunk, len(batch), frames, differentiable)
            output = head(features)
        layout = layout_of(features, batch)
        if layout is None or layout.cells < 1:
            raise BadChoice(f"layer {self.layer!r} gives {tuple(features.shape)}: no spatial map to look at")
        whole = self.how == "hook" and not isinstance(head, Alone)
        return Opened(features, output, head, trunk, layout, frames, whole, free, batch, self.curved)


def alike(given: Tensor, expected: Tensor) -> bool:
    """Whether two ways of working an output out differ by rounding alone."""
    half = expected.dtype in (torch.float16, torch.bfloat16)
    size = 0.02 * float(expected.abs().nan_to_num().amax()) if half else 1e-4
    return torch.allclose(given, expected, rtol=0.02 if half else 1e-3, atol=size, equal_nan=True)


def version(value: Any) -> int:
    """Counts what was written on a tensor in place."""
    return value._version if isinstance(value, Tensor) else 0


def root(features: Tensor, differentiable: bool) -> Tensor:
    """A new root for the head's graph, so that none exists for the trunk."""
    if differentiable and features.requires_grad:
        return features
    return features.detach().requires_grad_()


def one_map(value: Any, layer: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise BadChoice(f"layer {layer!r} gives a {type(value).__name__}, not one map: name one that gives a tensor")
    return value


def need_space(layer: str, features: Any, batch: Tensor) -> None:
    layout = layout_of(one_map(features, layer), batch)
    if layout is None or layout.cells < 2:
        why = "no spatial extent to look at; name a layer before the pooling, or leave layer out to have one found"
        raise BadChoice(f"layer {layer!r} gives {tuple(features.shape[1:])} per picture: {why}")


def _frames(features: Tensor, batch: Tensor) -> int | None:
    """T when a N,T,C,H,W batch reaches the cut as N*T pictures."""
    if batch.ndim == 5 and features.ndim in (3, 4) and len(features) == len(batch) * batch.shape[1]:
        return batch.shape[1]
    if len(features) != len(batch):
        mend = "name one that sees each picture once"
        raise BadNetwork(f"the layer sees {len(features)} samples for {len(batch)} pictures: {mend}")
    return None


def _picture_first(
    features: Tensor, head: Head, trunk: Trunk, samples: int, frames: int, differentiable: bool
) -> tuple[Tensor, Head, Trunk]:
    def swap(value: Tensor, a: int, b: int) -> Tensor:
        return value.view(a, b, *value.shape[1:]).transpose(0, 1).flatten(0, 1)

    turned = root(swap(features, frames, samples), differentiable)
    return turned, lambda own: head(swap(own, samples, frames)), lambda: swap(trunk(), frames, samples)
