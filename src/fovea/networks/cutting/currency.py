"""Is a network still what was cut? Layers, their code and what it reads are compared with what they were."""

from collections.abc import Sequence
from typing import Any

from torch import fx, nn


def runs_whole(layer: nn.Module) -> bool:
    """Whether a graph calls the layer as it is at that time: torch's own, and some of timm's."""
    from timm.models._features_fx import get_notrace_modules

    return isinstance(layer, tuple(get_notrace_modules())) or fx.Tracer().is_leaf_module(layer, "")


class Snapshot:
    """What the code of layers is and reads: their attributes, hooks and classes. What changes as the network runs is no
    sign that somebody changed it."""

    def __init__(self, parts: Sequence[nn.Module]) -> None:
        self.parts = parts  # kept, so that no other layer can have their ids
        opened = [vars(part) for part in parts if not runs_whole(part)]
        kinds = {kind for part in parts for kind in type(part).__mro__ if kind not in nn.Module.__mro__}
        hooks = [vars(part)[name] for part in parts for name in ("_forward_hooks", "_forward_pre_hooks")]
        self.now: list[Any] = [*opened, *map(vars, kinds), *hooks]
        self.then = list(map(dict, self.now))
        self.restless: list[set[str]] = [set()] * len(self.now)

    def settle(self) -> None:
        """The network has run once."""
        self.restless = [set(_differing(*pair)) for pair in zip(self.now, self.then, strict=True)]

    def same(self) -> bool:
        try:
            if self.now == self.then:
                return True
        except Exception:  # tensors and arrays do not compare
            pass
        pairs = zip(self.now, self.then, self.restless, strict=True)
        return not any(set(_differing(now, then)) - restless for now, then, restless in pairs)


def _differing(now: dict[str, Any], then: dict[str, Any]) -> list[str]:
    return [name for name in {**now, **then} if name not in now or name not in then or now[name] is not then[name]]
