"""Numbers of a device that the host wants to know, read together: to read is to wait until the device is done."""

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from numpy.typing import NDArray
from torch import Tensor

Numbers: TypeAlias = NDArray[Any]  # in double precision, which holds whatever else a tensor can
Read: TypeAlias = Callable[[], Numbers]
DOUBLE = {"mps": torch.float32}  # which has no other; up to 16,777,216 classes it does as well
FEW = 5  # best classes, which are asked for most


def is_far(values: Tensor) -> bool:
    """Whether to read these numbers is to wait for a device."""
    return values.device.type != "cpu"


class Reader:
    """What is wanted is noted, and comes with the first of it that is asked for: one transfer, one wait."""

    def __init__(self) -> None:
        self.waiting: list[list[Tensor | Numbers]] = []
        self.ranks: dict[int, tuple[Tensor, Read]] = {}

    def want(self, values: Tensor) -> Read:
        """A way to have the values on the host."""
        wanted: list[Tensor | Numbers] = [values]
        if is_far(values):
            self.waiting.append(wanted)

        def read() -> Numbers:
            if self.waiting:
                self.fetch()
            found = wanted[0]
            if isinstance(found, Tensor):
                found = wanted[0] = found.detach().double().numpy()
            return found

        return read

    def fetch(self) -> None:
        waiting, self.waiting = self.waiting, []
        tensors = [wanted[0] for wanted in waiting if isinstance(wanted[0], Tensor)]
        with torch.no_grad():
            counts = [values.numel() for values in tensors]
            device = tensors[0].device
            room = torch.empty(sum(counts), dtype=DOUBLE.get(device.type, torch.float64), device=device)
            together: Numbers = torch.cat([values.flatten() for values in tensors], out=room).cpu().numpy()
        start = 0
        for wanted, values, count in zip(waiting, tensors, counts, strict=True):
            wanted[0] = together[start : start + count].reshape(values.shape)
            start += count

    def ranked(self, output: Tensor, count: int) -> tuple[Tensor, Read]:
        """The places of the greatest in every row, at least so many, in their order: sorted once for all who ask."""
        count, known = min(count, output.shape[1]), self.ranks.get(id(output))
        if known is None or known[0].shape[1] < count:
            places = output.detach().topk(min(max(count, FEW), output.shape[1]), dim=1).indices
            known = self.ranks[id(output)] = places, self.want(places)
        return known
