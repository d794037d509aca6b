"""Ways to find where a network looks, one per file.

    from fovea.heatmaps.look import Look, score_of
    from fovea.heatmaps.methods import method
    from fovea.heatmaps.targets import Aim

    @method("layercam", about="gradients weigh each cell on its own", passes=1)
    def layercam(look: Look, aim: Aim) -> Tensor:
        return (look.gradient(*score_of(aim)).relu() * look.cells).sum(1)  # B,P

A method is called with a `Look`, one batch seen once, and an `Aim`, what to explain of it; it returns one value per
cell, B,P, as a tensor or as a `Finding`, which can say more. It is a function, or a class that is made without
arguments (or with the `options` declared) and called. `passes` is how many times the network runs per batch, where that
is a number; `oblivious=True` says that it ignores the target, and so has one map whatever was asked for.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from fovea.basics import BadChoice, Registry

DEFAULT = "l2caf"
Run: TypeAlias = Callable[[Any, Any], Any]  # Look, Aim -> Finding or Tensor


@dataclass(frozen=True)
class Method:
    """A method as it is used: what its author declared, checked."""

    name: str
    run: Run
    oblivious: bool = False
    passes: int | None = None


MethodLike: TypeAlias = str | Method | Run  # a name, package.module:name, a function, an instance, a class


def find(given: MethodLike) -> Method:
    """A method by name, or of the user's own."""
    if isinstance(given, Method):
        return given
    return method.get(given) if isinstance(given, str) else _made(given, "", {}, {})


def names() -> list[str]:
    """All methods: the default first, then plain ones, then variants."""
    entries = method.entries()
    return sorted(entries, key=lambda name: (name != DEFAULT, bool(entries[name].options)))


def usual() -> list[str]:
    """Those to run where none was named: fovea's own, and of the user's those that take one pass."""
    entries = method.entries()
    own = [name for name in names() if entries[name].module.startswith(f"{__name__}.")]
    return [name for name in names() if name in own or entries[name].traits.get("passes") == 1]


def _made(thing: Any, name: str, options: Mapping[str, Any], traits: Mapping[str, Any]) -> Method:
    words = f"method {name or getattr(thing, '__name__', type(thing).__name__)!r}"
    made = thing
    if inspect.isclass(thing):
        try:
            inspect.signature(thing).bind(**options)
        except (TypeError, ValueError) as error:
            raise BadChoice(
                f"{words}: its class is made without arguments, and {error}: give it a default, declare it with "
                f"options={{...}}, or give an instance"
            ) from None
        made = thing(**options)
    if not callable(made):
        raise BadChoice(
            f"{words} cannot be called: a method is a function (look, aim), or has __call__(self, look, aim); got a "
            f"{type(made).__name__}"
        )
    try:
        inspect.signature(made).bind(None, None)
    except TypeError as error:
        raise BadChoice(f"{words} is called with a Look and an Aim, and {error}: (look, aim)") from None
    own = getattr(made, "name", None) or getattr(thing, "__name__", None)
    name = name or (own if isinstance(own, str) else "")
    if not name or name == "<lambda>":
        raise BadChoice(f"{words} has no name to call its results by: give it an attribute `name`")
    oblivious = traits.get("oblivious", getattr(made, "oblivious", False))
    return Method(name, made, bool(oblivious), traits.get("passes"))


method: Registry[Method] = Registry(
    "method", (__name__,), lambda entry, thing: _made(thing, entry.name, entry.options, entry.traits)
)
