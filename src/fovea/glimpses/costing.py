"""The multiplications of a walk, counted once for all pictures that are read alike."""

from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fovea.glimpses.reading import Blank, Counted
from fovea.models.glimpsing import Glimpsing
from fovea.networks.cost import macs
from fovea.networks.network import Network, wrap

# counting takes as long as a walk, so a network that zooms again and again is counted once; it is not kept alive by it
_known: WeakKeyDictionary[nn.Module, dict[Any, int]] = WeakKeyDictionary()


def macs_of_walk(network: Network, read: Counted, channels: int, glimpses: int | None) -> int:
    """Of one picture that was read so. What is on it does not matter, so a blank one is walked through."""
    counts = _known.setdefault(network.module, {})
    key = (read.windows, channels, glimpses)
    if key not in counts:
        like = torch.zeros(1, channels, 1, 1, device=network.device, dtype=network.dtype)
        counts[key] = macs(wrap(_Walking(network.module, read.size, glimpses)), like)
    return counts[key]


class _Walking(nn.Module):
    """A walk through a blank picture of a size, as a module that takes pictures."""

    def __init__(self, module: nn.Module, size: tuple[int, int], glimpses: int | None) -> None:
        super().__init__()
        self.module, self.size, self.glimpses = module, size, glimpses

    def forward(self, like: Tensor) -> Tensor:
        return cast(Glimpsing, self.module).walk(Blank(self.size, like), self.glimpses).logits
