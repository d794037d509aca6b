"""What ran before a cut, kept: with only the layer's output replaced, it would give the same again."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor, nn

from fovea.networks.running import layers
from fovea.networks.threads import PLAIN, heard, hooked

STATELESS = PLAIN | {"transformers"}  # packages whose layers keep nothing between calls


class Replay:
    """Records the layers that are done before a layer runs, and answers for them in later runs on the same batch."""

    def __init__(self, module: nn.Module, layer: str) -> None:
        parts = layers(module)
        packages = {type(part).__module__.partition(".")[0] for part in parts}
        names = [] if hooked(parts) or not packages <= STATELESS else [name for name, _ in module.named_modules()]
        inside = [name for name in names if name and not f"{layer}.".startswith(f"{name}.")]
        self.outer = {name: module.get_submodule(name) for name in inside if not name.startswith(f"{layer}.")}
        self.kept: dict[str, Any] = {}
        self.calls: dict[str, int] = dict.fromkeys(self.outer, 0)
        self.done = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        def record(name: str, _: nn.Module, __: Any, out: Any) -> None:
            self.calls[name] += 1
            if not self.done:
                for inner in [kept for kept in self.kept if kept.startswith(f"{name}.")]:
                    del self.kept[inner]  # the outermost is enough
                self.kept[name] = _copied(out)

        with heard((layer, partial(record, name)) for name, layer in self.outer.items()):
            yield
        self.kept = {name: out for name, out in self.kept.items() if self.calls[name] == 1}

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """In this thread; others run the layers as they are."""
        thread = threading.get_ident()
        parts = [(self.outer[name], out) for name, out in self.kept.items()]
        for layer, out in parts:
            layer.__dict__["forward"] = _answer(type(layer).forward.__get__(layer), out, thread)
        try:
            yield
        finally:
            for layer, _ in parts:
                layer.__dict__.pop("forward", None)


def _answer(forward: Any, out: Any, thread: int) -> Any:
    return lambda *args, **named: _copied(out) if threading.get_ident() == thread else forward(*args, **named)


def _copied(out: Any) -> Any:
    """As it was when it was given, whatever is done to it in place."""
    if isinstance(out, Tensor):
        return out.clone()
    return tuple(map(_copied, out)) if type(out) is tuple else out
