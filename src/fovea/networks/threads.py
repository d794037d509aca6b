"""One module and many threads: nothing of it is switched, hooked or traced in a way that another thread could notice.

- A module's mode is switched once for all who run it, counted layer by layer, and is put back when the last is done.
- A hook hears the thread that placed it.
- What is known to keep nothing between calls (layers of torch, timm, torchvision and fovea, in eval mode and without
  hooks of the user's) is run by any number of threads at once. Anything else, such as a forward of the user's own that
  leaves something on itself, is run by one thread at a time, and so are what draws random numbers and what is traced.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = {"torch", "timm", "torchvision", "fovea"}  # packages whose layers keep nothing between calls in eval mode
Hook = Callable[[nn.Module, Any, Any], Any]

CHILDREN, TRAINING = itemgetter("_modules"), itemgetter("training")
HOOKS = [itemgetter(name) for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")]

_turn = threading.RLock()  # one for all networks: they may share layers, and two locks could wait for each other
_counting = threading.RLock()  # held for moments, never while a network runs; again where garbage is collected then
_in_eval: dict[int, tuple[nn.Module, int]] = {}  # layers that were in training mode, and by how many they are in use

_lent: list[int] = []  # how many threads torch uses, for every loop that has lent them


class Parts(list[nn.Module]):
    """Every layer of a module once, and what it keeps on itself. There are hundreds, and every call asks them: of one
    small picture that is a good part of the time, so it is asked in C."""

    def __init__(self, parts: Iterable[nn.Module]) -> None:
        super().__init__(parts)
        self.own: list[dict[str, Any]] = list(map(vars, self))
        self.inside = [dict(children) for children in map(CHILDREN, self.own)]

    def current(self, module: nn.Module) -> bool:
        """Whether they are the module's still: no layer was replaced."""
        return self[0] is module and list(map(CHILDREN, self.own)) == self.inside


def owned(parts: Iterable[nn.Module]) -> list[dict[str, Any]]:
    """What each layer keeps on itself."""
    return parts.own if isinstance(parts, Parts) else list(map(vars, parts))


@contextmanager
def in_eval(parts: Sequence[nn.Module]) -> Iterator[None]:
    """All layers in eval mode; those that were in training mode are so again when nobody uses them any more."""
    with _counting:
        if not _in_eval and isinstance(parts, Parts) and not any(map(TRAINING, parts.own)):
            switched = list[nn.Module]()
        elif _in_eval:
            switched = [part for part in parts if getattr(part, "training", False) or id(part) in _in_eval]
        else:
            switched = [part for part in parts if getattr(part, "training", False)]  # a frozen jit module has none
        for part in switched:
            _in_eval[id(part)] = part, _in_eval.get(id(part), (part, 0))[1] + 1
            part.training = False
    try:
        yield
    finally:
        with _counting:
            for part in switched:
                _, users = _in_eval.pop(id(part))
                if users > 1:
                    _in_eval[id(part)] = part, users - 1
                else:
                    part.training = True


def plain(things: Iterable[Any]) -> bool:
    """Whether classes or functions are of packages whose layers keep nothing between calls."""
    return {str(getattr(thing, "__module__", "")).partition(".")[0] for thing in things} <= PLAIN


def hooked(parts: Iterable[nn.Module]) -> bool:
    """Whether somebody listens to a layer, or has put another forward in its place."""
    everywhere = nn.modules.module._global_forward_hooks or nn.modules.module._global_forward_pre_hooks
    each = owned(parts)
    return bool(everywhere) or any(any(map(hooks, each)) for hooks in HOOKS) or any(["forward" in own for own in each])


def drawn(device: torch.device) -> tuple[Tensor, ...]:
    """Where the generators stand that a network on this device may draw from."""
    there = (torch.cuda.get_rng_state(device),) if device.type == "cuda" else ()
    return torch.get_rng_state(), *there


@contextmanager
def alone(device: torch.device) -> Iterator[None]:
    """One thread at a time; random numbers are after it as they were before."""
    with _turn:
        before = drawn(device)
        try:
            yield
        finally:
            torch.set_rng_state(before[0])
            for there in before[1:]:
                torch.cuda.set_rng_state(there, device)


def usual_threads() -> int:
    """How many torch uses for an operator, when none are lent."""
    return _lent[0] if _lent else torch.get_num_threads()


@contextmanager
def lent() -> Iterator[None]:
    """In this block torch runs an operator in one thread, here and in threads that begin here, so that each may run
    operators by itself; after it in as many as before."""
    with _counting:
        _lent.append(usual_threads())
    torch.set_num_threads(1)
    try:
        yield
    finally:
        with _counting:
            usual = _lent.pop()
        torch.set_num_threads(usual)


@contextmanager
def heard(hooks: Iterable[tuple[nn.Module, Hook]]) -> Iterator[None]:
    """Forward hooks, for what this thread runs."""
    thread = threading.get_ident()

    def only_here(hook: Hook) -> Hook:
        return lambda module, given, out: hook(module, given, out) if threading.get_ident() == thread else None

    with ExitStack() as placed:
        for module, hook in hooks:
            placed.callback(module.register_forward_hook(only_here(hook)).remove)
        yield
