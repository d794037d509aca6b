"""A network and a method as one function of tensors, traced into plain operations: the head's gradient, too, becomes
operations of the graph, so that whoever runs it needs no autograd."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import adaptive_avg_pool2d
from torch.overrides import TorchFunctionMode

from fovea.heatmaps import Aim, Look, Weighted, weighing
from fovea.networks import Cut, Head, Layout, Network, Opened, heard, one_map, root
from fovea.pictures import Prepare

Values = Callable[[Look, Aim], Tensor]  # one value per picture and cell, N,P
Also = Callable[[Any, Tensor], list[Tensor]]  # of what the module returned and the classes: further outputs
Graph = Callable[..., tuple[Tensor, ...]]


@dataclass(frozen=True)
class Takes:
    """What a graph is given: pictures as bytes, N,H,W,C, or, where a transform is not ours, as that gives them."""

    shape: tuple[int, int, int]  # C,H,W
    prepare: Prepare | None
    step: int  # by which H and W may differ from these; 0: not at all

    @property
    def name(self) -> str:
        return "tensors" if self.prepare is None else "pixels"

    @property
    def count(self) -> int:
        """Of the pictures that are traced: another number than of the channels, which are taken for the same else."""
        return 3 if self.shape[0] == 2 else 2

    def example(self, count: int, seed: int = 0, steps: tuple[int, int] = (0, 0)) -> Tensor:
        """Noise; its sides so many steps longer than usual."""
        channels, height, width = self.shape
        height, width = height + steps[0] * self.step, width + steps[1] * self.step
        generator = torch.Generator().manual_seed(seed)
        if self.prepare is None:
            return torch.randn(count, channels, height, width, generator=generator)
        return torch.randint(0, 256, (count, height, width, channels), generator=generator, dtype=torch.uint8)

    def batch(self, given: Tensor) -> Tensor:
        """As the network takes it, N,C,H,W."""
        if self.prepare is not None:
            mean, std = (torch.tensor(row).view(-1, 1, 1) for row in (self.prepare.mean, self.prepare.std))
            given = (given.permute(0, 3, 1, 2).contiguous().float() / 255 - mean) / std
        return (
            given if self.step else given.reshape(given.shape[0], *self.shape)
        )  # the sizes of all that follows are then known

    def given(self, batch: Tensor) -> Tensor:
        """The way back, of pictures that came as bytes."""
        if self.prepare is None:
            return batch
        mean, std = (torch.tensor(row).view(-1, 1, 1) for row in (self.prepare.mean, self.prepare.std))
        return ((batch * std + mean) * 255).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()

    @property
    def dynamic(self) -> dict[int, Any]:
        height, width = (2, 3) if self.prepare is None else (1, 2)
        return {0: Dim.AUTO, **({height: Dim.AUTO, width: Dim.AUTO} if self.step else {})}


@dataclass(frozen=True)
class Traced:
    """What of a network goes into a graph."""

    network: Network  # on the CPU, in eval mode
    made: Cut
    layout: Layout
    takes: Takes
    hooked: bool = False  # whatever the cut, for what the module returned

    def open(self, batch: Tensor) -> tuple[Opened, Any]:
        """A batch at the cut, and what the module returned, where the cut tells."""
        head: Head = _run_once
        if self.hooked or self.made.how == "hook":
            features, output, said = _hooked(self.network, self.made.layer, batch)
        else:
            features, output, head, *_ = self.made.enter(batch, False)
            said = None
        layout = self.layout
        if self.takes.step:
            grid = features.shape[2:] if layout.kind == "channels first" else features.shape[1:-1]
            layout = replace(layout, grid=tuple(grid))
        return Opened(features, output, head, lambda: features, layout, None, False, True, batch), said

    def explaining(self, values: Values, also: Also | None = None) -> Graph:
        """pixels, target -> logits, heatmap, explained, and what else there is."""

        def graph(given: Tensor, target: Tensor) -> tuple[Tensor, ...]:
            opened, said = self.open(self.takes.batch(given))
            output = opened.output
            classes = torch.where(target < 0, output.detach().argmax(1), target)
            score = Weighted(partial(weighing, output.detach(), classes, 1.0, 0.0))
            heatmap = values(Look(opened), Aim((), score, classes, "explained"))
            more = also(said, classes) if also else []
            shaped = heatmap.reshape(output.shape[0], *opened.layout.grid)
            return tuple(one.detach() for one in (output, shaped, classes, *more))

        return graph


def alone(network: Network, takes: Takes) -> Graph:
    """pixels -> logits."""

    def graph(given: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            return (network.read(network.answer(takes.batch(given))),)

    return graph


class _Pooling(TorchFunctionMode):
    """Global pooling as a mean. What torch makes of it where channels come last in memory writes strides, which are
    no operation of a graph."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is adaptive_avg_pool2d and args[1] in (1, (1, 1), [1, 1]):
            return args[0].mean((-2, -1), keepdim=True)
        return func(*args, **(kwargs or {}))


def _run_once(_: Tensor) -> Tensor:
    raise NotImplementedError("a hooked network runs its head once")


def _hooked(network: Network, layer: str, batch: Tensor) -> tuple[Tensor, Tensor, Any]:
    roots = list[Tensor]()

    def reroot(_: Any, __: Any, out: Any) -> Tensor:
        torch.set_grad_enabled(True)  # from here on: the head
        roots.append(root(one_map(out, layer), False))
        return roots[-1].clone()

    with torch.no_grad(), heard([(network.module.get_submodule(layer), reroot)]):
        said = network.answer(batch)
        return roots[0], network.read(said), said


def _convolution_backward(grad: Tensor, given: Tensor, weight: Tensor, *options: Any) -> Any:
    """A convolution's gradient with respect to what it was given: a transposed convolution. No other is asked for."""
    _, stride, padding, dilation, transposed, _, groups, mask = options
    if transposed or mask[1] or mask[2]:
        return NotImplemented
    lost = [
        given.shape[axis + 2] - (grad.shape[axis + 2] - 1) * s + 2 * p - d * (weight.shape[axis + 2] - 1) - 1
        for axis, (s, p, d) in enumerate(zip(stride, padding, dilation, strict=True))
    ]
    lost = [0 if s == 1 else rows for s, rows in zip(stride, lost, strict=True)]
    return torch.ops.aten.convolution(grad, weight, None, stride, padding, dilation, True, lost, groups), None, None


TAKEN_APART = {torch.ops.aten.convolution_backward.default: _convolution_backward}


def program(graph: Graph, examples: tuple[Tensor, ...], dynamic: tuple[dict[int, Any], ...]) -> ExportedProgram:
    """The graph as operations alone, for any number of pictures."""
    with torch.random.fork_rng(devices=[]), sdpa_kernel(SDPBackend.MATH), _Pooling():
        made = make_fx(graph, TAKEN_APART, "symbolic", _allow_non_fake_inputs=True)(*examples)
        return torch.export.export(made, examples, dynamic_shapes=dynamic, strict=False)
