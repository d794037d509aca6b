"""Numbers of a device that the host wants to know, read together: to read is to wait until the device is done."""

from collections.abc import Callable

import torch
from torch import Tensor


def is_far(values: Tensor) -> bool:
    """Whether to read these numbers is to wait for a device."""
    return values.device.type != "cpu"


class Reader:
    """What is wanted is noted, and comes with the first of it that is asked for: one transfer, one wait."""

    def __init__(self) -> None:
        self.waiting: list[list[Tensor]] = []

    def want(self, values: Tensor) -> Callable[[], Tensor]:
        """A way to have the values on the host."""
        wanted = [values.detach()]
        if is_far(values):
            self.waiting.append(wanted)

        def read() -> Tensor:
            if self.waiting:
                self.fetch()
            return wanted[0]

        return read

    def fetch(self) -> None:
        waiting = sorted(self.waiting, key=lambda wanted: -wanted[0].element_size())  # so that all begin at a multiple
        self.waiting = []
        together = torch.cat([wanted[0].flatten().view(torch.uint8) for wanted in waiting]).cpu()
        start = 0
        for wanted in waiting:
            values, stop = wanted[0], start + wanted[0].nbytes
            wanted[0] = together[start:stop].view(values.dtype).view(values.shape)
            start = stop
