"""What many tests check: that a call is refused in words, and that it leaves a network as it was."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fovea


def raises(error: type[Exception], words: str, call: Callable[..., object], /, *given: object, **how: object) -> None:
    """The call is refused, in words that match."""
    with pytest.raises(error, match=words):
        call(*given, **how)


refused = partial(raises, fovea.BadChoice)


@contextmanager
def left_as_found(module: nn.Module) -> Iterator[None]:
    """Modes, gradients, hooks, buffers, weights and random numbers are after the block what they were before."""
    before = _state(module)
    yield
    after = _state(module)
    assert not [what for what in before if not _same(before[what], after[what])], "these changed"


def _state(module: nn.Module) -> dict[str, Any]:
    return {
        "modes": [one.training for one in module.modules()],
        "grads": [None if p.grad is None else p.grad.clone() for p in module.parameters()],
        "requires": [p.requires_grad for p in module.parameters()],
        "hooks": [
            len(one._forward_hooks) + len(one._forward_pre_hooks) + len(one._backward_hooks) for one in module.modules()
        ],
        "buffers": [b.clone() for b in module.buffers()],
        "weights": [p.detach().clone() for p in module.parameters()],
        "rng": torch.get_rng_state(),
        "grad mode": torch.is_grad_enabled(),
    }


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and torch.equal(a, b)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)
