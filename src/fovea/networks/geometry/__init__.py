"""Which input pixels each cell of a feature map can see, computed from any module.

The module runs once on noise. Beside every tensor that it makes goes its *reach*: for each element, how far towards
either end of each input axis it looks, as numbers of which a larger one always sees more (the start is negated). Then

- an operation that mixes elements (convolution, pooling, sum, softmax, matrix product) takes the largest reach of those
  it reads: for a convolution those under its kernel, for a mean over space all of them;
- one that moves elements (slice, permute, view, roll, cat) moves their reach in the same way;
- one that is not known is taken to read all it was given, and is named in `Geometry.assumed`.

So a cell is never said to see less than it can; branches, crops, windows and attention need no rule of their own.
Padding is followed twice: as nothing, which gives the pixels seen (`Geometry.boxes`), and as if the map went on, which
gives the receptive field of the textbooks (`Field`), the same for every cell and beyond the border where it must."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from fovea.basics import BadChoice, BadNetwork, nearest
from fovea.networks.checking import checked, cuttable, refusing
from fovea.networks.geometry.cells import Field as Field
from fovea.networks.geometry.cells import Geometry as Geometry
from fovea.networks.geometry.cells import geometry_of
from fovea.networks.geometry.following import Follower, Sight, Watch
from fovea.networks.running import Runnable, as_found
from fovea.networks.threads import alone, heard

SIZE = 224  # of an input, where nothing says otherwise
Pick = Callable[[Any], Sequence[Tensor]]
Size = Sequence[int] | int | None


def of(
    module: nn.Module | Runnable,
    layer: str | None = None,
    size: Size = None,
    channels: int | None = None,
    output: Callable[[Any], Tensor] | None = None,
) -> Geometry:
    """What the cells of a layer, or of what the module returns, can see of an input of `size` (height, width). `output`
    picks the tensor where there are several. A layer that runs more than once is taken at its last run. Without `size`
    it is that of the network's transform, or 224; channels and axes are those of the first convolution."""
    network, inputs = _asked(module, size, channels)
    return _run(network, inputs, layer, _one(network, layer, output))[0]


def of_tensors(module: nn.Module | Runnable, inputs: Tensor, pick: Pick) -> tuple[Geometry, ...]:
    """What the cells of several tensors can see, picked out of what the module returns for `inputs`, in one run."""
    network = module if isinstance(module, Runnable) else Runnable(module)
    return tuple(_run(network, inputs, None, pick))


def noise_for(network: Runnable) -> Tensor:
    """One input of the size that a network takes, whatever its medium."""
    transform: Any = network.transform
    if network.can("texts"):
        return torch.full((1, transform.length), 2, device=network.device)  # a word's number, not padding's
    if network.can("sounds"):
        return _noise(network, (1, transform.bands, SIZE))
    return _asked(network, None, None)[1]


def _asked(module: nn.Module | Runnable, size: Size, channels: int | None) -> tuple[Runnable, Tensor]:
    """The network, and noise of the shape that was asked for."""
    network = module if isinstance(module, Runnable) else Runnable(checked(module))
    convs = (layer for layer in network.module.modules() if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d))
    first = next(convs, None)
    if size is None and network.transform is not None:
        with alone(network.device):  # a transform may draw random numbers
            found, *space = network.prepare(Image.new("RGB", (256, 256)))[0].shape
        channels = channels or found
    elif size is None or isinstance(size, int):
        space = [SIZE if size is None else size] * (2 if first is None else len(first.kernel_size))
    else:
        space = list(size)
    if not space or min(space) < 1 or (channels is not None and channels < 1):
        raise BadChoice(f"an input has at least one channel and one position an axis; got {channels} and {size}")
    shape = (1, channels or (3 if first is None else first.in_channels), *space)
    return network, _noise(network, shape)


def _noise(network: Runnable, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(network.device, network.dtype)


def _one(network: Runnable, layer: str | None, output: Callable[[Any], Tensor] | None) -> Pick:
    """The one tensor to look at among what a layer, or the module, gave."""
    output = output or (network.output if layer is None else None)

    def pick(out: Any) -> Sequence[Tensor]:
        found = getattr(out, "logits", out) if output is None else output(out)
        if not isinstance(found, Tensor):
            who = "the network" if layer is None else f"layer {layer!r}"
            raise BadNetwork(f"{who} gives a {type(found).__name__}, not a tensor: pick it with output=lambda out: ...")
        return (found,)

    return pick


def _run(network: Runnable, inputs: Tensor, layer: str | None, pick: Pick) -> list[Geometry]:
    """Run the module once, following it; what a layer gives is read at once, before a later one writes over it."""
    if layer is not None:
        cuttable(network.module)
    inputs = inputs.detach().clone()  # a network may write over its input
    follower = Follower(inputs)

    def look(out: Any) -> list[tuple[torch.Size, Sight]]:
        return [(one.shape, follower.sight(one)) for one in pick(out)]

    with (
        alone(network.device),
        as_found(network),
        _buffers_kept(network.module),
        torch.no_grad(),
        _caught(network.module, layer, look) as caught,
        follower,
        Watch(follower),
    ):
        with refusing(network.module, inputs):
            returned = network.module(inputs)
        if layer is None:
            caught.append(look(returned))
    if not caught:
        raise BadNetwork(f"layer {layer!r} did not run for this input")
    return [geometry_of(shape, sight, inputs) for shape, sight in caught[-1]]


@contextmanager
def _caught(module: nn.Module, layer: str | None, read: Callable[[Any], Any] = lambda out: out) -> Iterator[list[Any]]:
    """What a layer gives, call by call."""
    caught: list[Any] = []
    if layer is None:
        yield caught
        return
    named = dict(module.named_modules())
    if layer not in named:
        raise BadChoice(f"no layer {layer!r}{nearest(layer, filter(None, named))}")
    with heard([(named[layer], lambda _, __, out: caught.append(read(out)))]):
        yield caught


@contextmanager
def _buffers_kept(module: nn.Module) -> Iterator[None]:
    owned = [(part, name, one) for part in module.modules() for name, one in part._buffers.items() if one is not None]
    before = [(part, name, one, one.clone()) for part, name, one in owned]
    try:
        yield
    finally:
        for part, name, one, value in before:
            part._buffers[name] = one
            if not torch.equal(one, value):
                one.copy_(value)
