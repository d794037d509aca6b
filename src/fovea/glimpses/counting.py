"""The multiplications of a walk, without walking again: what is on a picture does not matter, so parts are counted once
for each network, on a blank one."""

from collections import Counter
from collections.abc import Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fovea.glimpses.reading import Blank
from fovea.models.glimpsing import Glimpsing
from fovea.networks import Network, macs, wrap

# a network that zooms again and again is counted once; it is not kept alive by it
_known: WeakKeyDictionary[nn.Module, dict[Any, int]] = WeakKeyDictionary()


def work(network: Network, channels: int, read: Sequence[int], levels: int, together: bool = False) -> int:
    """Of one picture of which things of these levels were read, in a walk that may go down so many; `together`: those
    of a level at once, as a usual walk does, which shares a little work."""
    glimpses, module = sum(level > 1 for level in read), cast(Glimpsing, network.module)
    if not hasattr(module, "read_regions"):
        if glimpses < 3 or not network.can("steps"):
            return _counted(network, channels, ("walk", glimpses), lambda like: _walked(module, like, glimpses))
        alone, two = (work(network, channels, (2,) * count, levels) for count in (1, 2))
        return alone + (glimpses - 1) * (two - alone)  # of those in turn, all are alike after the first
    total = 0
    for level, count in Counter(read).items():
        alone, two = (_part(network, channels, level, levels, windows) for windows in (1, 2))
        total += alone + (count - 1) * (two - alone if together else alone)
    return total


def _part(network: Network, channels: int, level: int, levels: int, windows: int) -> int:
    """Of so many windows of a level."""
    module: Any = network.module
    onwards, known = level < levels, min(level, int(module.levels))  # deeper ones cost as much as the deepest known

    def run(like: Tensor) -> Tensor:
        base = int(module.extractor.base)
        cells = torch.zeros(windows, 2, dtype=torch.long, device=like.device)
        answer: Tensor = module.read_regions(like.new_zeros(windows, channels, base, base), cells, known - 1, onwards)[
            0
        ]
        return answer

    return _counted(network, channels, (known, onwards, windows), run)


def _walked(module: Glimpsing, like: Tensor, glimpses: int) -> Tensor:
    side = int(getattr(module, "side", 224))
    return module.walk(Blank((side, side), like), glimpses).logits


def _counted(network: Network, channels: int, key: Any, run: Any) -> int:
    counts = _known.setdefault(network.module, {})
    if (key, channels) not in counts:
        like = torch.zeros(1, channels, 1, 1, device=network.device, dtype=network.dtype)
        counts[key, channels] = macs(wrap(_Running(network.module, run)), like)
    return counts[key, channels]


class _Running(nn.Module):
    """What a module does with a blank picture, as a module that takes pictures."""

    def __init__(self, module: nn.Module, run: Any) -> None:
        super().__init__()
        self.module, self.run = module, run

    def forward(self, like: Tensor) -> Tensor:
        answer: Tensor = self.run(like)
        return answer
