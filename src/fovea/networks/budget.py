"""How large a network may become, checked before memory is taken for it."""

import math
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from fovea.basics import BadNetwork

MOST = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 8  # values: half of the memory, as float32
SPARE = 2**26  # values that a network may have beside those of its file, such as a borrowed part's
RANDOM = {torch.ops.aten.normal_.default, torch.ops.aten.uniform_.default}  # what initial weights are drawn by
LEAST = 2**12  # what a small tensor counts as, so that their number has an end too


class Budget(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While a network is built, its tensors together have at most so many values; random ones only where they are
    `drawn`, since weights that come from a file would replace them."""

    def __init__(self, name: str, values: int = MOST, drawn: bool = True) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.name, self.values, self.left, self.drawn = name, values, values, drawn

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        shapes = [value.shape for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if not shapes and "device" in kwargs:  # a new tensor: it is made without memory first
            count = func(*args, **(kwargs | {"device": torch.device("meta"), "pin_memory": None})).numel()
            self.left -= max(count, LEAST)
        else:
            count = 0
            if len(shapes) > 1 and torch.Tag.pointwise in func.tags:
                count = math.prod(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
        if self.left < 0 or count > self.values:
            raise BadNetwork(
                f"{self.name} would have more than {self.values:,} numbers, which is refused: its options, or the "
                "number of its classes, are too large"
            )
        return args[0].zero_() if not self.drawn and func in RANDOM else func(*args, **kwargs)


def budget_of(state: Mapping[str, Tensor]) -> int:
    """What the weights of a file leave room for."""
    return min(MOST, SPARE + 4 * sum(max(value.numel(), LEAST) for value in state.values()))
