"""What a network's output says: whether its numbers are classes, and which are the best."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor, nn

from fovea.basics import Later
from fovea.networks.checking import cuttable
from fovea.networks.reader import Reader
from fovea.networks.running import Runnable, as_found
from fovea.networks.threads import alone, heard

N = TypeVar("N", bound=Runnable)
Counts = Callable[[nn.Module], bool]  # whether a layer does
Best = tuple[tuple[str, float], ...]  # labels with their probabilities
POINTWISE = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def labeled(network: N, batch: Tensor, parts: Sequence[nn.Module] | None = None) -> N:
    """The network with numbers for class names if it has no labels and plainly is a classifier, else as it is. Plainly
    a classifier is what is not declared an embedding, and whose last layer that runs is linear, or a 1x1 convolution,
    with one output per number of the network's own. An output of unit length is an embedding's."""
    if network.labels is not None or network.can("embedding"):
        return network
    key = tuple(map(id, parts or network.parts))  # a replaced layer makes another network
    if key not in network._classes:
        count = _classes(network, batch[:1])
        network._classes.clear()
        network._classes[key] = count
    count = network._classes.get(key)
    return network if count is None else replace(network, labels=tuple(map(str, range(count))))


def _classes(network: Runnable, batch: Tensor) -> int | None:
    name, output = last_to_run(network, batch)
    if name is None or output.ndim != 2 or output.shape[1] < 2:
        return None
    layer = network.module.get_submodule(name)
    if isinstance(layer, POINTWISE):
        width = layer.out_channels if max(layer.kernel_size) == 1 else None
    else:
        width = layer.out_features if isinstance(layer, nn.Linear) else None
    unit = bool((output.norm(dim=1) - 1).abs().max() < 1e-3) and bool((output < 0).any())
    return width if width == output.shape[1] and not unit else None


def has_weights(layer: nn.Module, axes: int = 1) -> bool:
    """Whether the layer itself has weights of at least so many axes."""
    return any(weights.ndim >= axes for weights in layer.parameters(recurse=False))


def last_to_run(network: Runnable, batch: Tensor, counts: Counts = has_weights) -> tuple[str | None, Tensor]:
    """The name of the last layer that runs, of those that count; and the output."""
    cuttable(network.module)
    ran: list[str] = []
    named = ((name, layer) for name, layer in network.module.named_modules() if counts(layer))
    hooks = ((layer, lambda *_, name=name: ran.append(name)) for name, layer in named)
    with alone(network.device), as_found(network), torch.no_grad(), heard(hooks):
        output = network(batch)
    return (ran[-1] if ran else None), output


def shares_of(network: Runnable, output: Tensor) -> Tensor:
    """The probability of every class, calibrated where the network is: …,classes."""
    logits = output.detach().float()
    logits = logits if network.temperature is None else logits / network.temperature
    return logits.sigmoid() if network.can("several") else logits.softmax(-1)


def predictions(network: Runnable, output: Tensor, most: int = 5, reader: Reader | None = None) -> Sequence[Best]:
    """The best labels with their probabilities; nothing for a network without labels."""
    if network.labels is None or output.ndim != 2 or (output.shape[1] < 2 and not network.can("several")):
        return [()] * len(output)
    reader, most = reader or Reader(), min(most, output.shape[1])
    places, indices = reader.ranked(output, most)
    shares = reader.want(shares_of(network, output).gather(1, places))

    def rows() -> Iterator[Best]:
        for row, row_shares in zip(indices()[:, :most].astype(int).tolist(), shares().tolist(), strict=True):
            yield tuple(zip(map(network.label, row), row_shares, strict=False))

    return Later(len(output), rows)
