"""Architectures by name: each file of models/ declares how its networks are built.

    @model("smallnet", about="learns in minutes on a CPU")
    def build(classes: int, side: int = 128) -> Network: ...

A builder takes the number of classes and options, by keyword or as a dataclass called `options`. With `over` it is
given a network first and named KIND/NAME: over the features of any "network", a trained "classifier", or a network of
"timm" without its last layer. `can` are abilities; `readings` are ways to read a paper's table, the paper's
configuration first. `opens` are options that name another network, which a weights file may do only with fovea's."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, get_type_hints

from fovea.basics import REFERENCE, BadChoice, BadNetwork, Entry, Registry, nearest

OVER = ("network", "classifier", "timm")
USUAL = 10  # classes, where nothing says otherwise


@dataclass(frozen=True)
class Builder:
    """What builds networks of one kind, and the options that it takes."""

    entry: Entry
    make: Callable[..., Any]
    types: Mapping[str, Any]  # of the options, by name
    config: type | None  # the dataclass that options become
    has_classes: bool
    any_option: bool  # it takes options by any name

    @property
    def options(self) -> tuple[str, ...]:
        return tuple(self.types)

    @property
    def over(self) -> str:
        return str(self.entry.traits.get("over", ""))

    def take(self, options: dict[str, Any]) -> dict[str, Any]:
        """The options that are the builder's own, taken out of all: the others are for the network it is built over."""
        return {key: options.pop(key) for key in list(options) if key in self.options or self.any_option}

    def __call__(self, features: tuple[Any, ...], classes: int | None, options: Mapping[str, Any]) -> Any:
        given: dict[str, Any] = {} if not self.has_classes else {"classes": USUAL if classes is None else classes}
        made = {"options": self.config(**options)} if self.config is not None else options
        return self.make(*features, **given, **made)


def _builder(entry: Entry, thing: Any) -> Builder:
    if not callable(thing):
        raise BadNetwork(f"model {entry.name}: give a function of the number of classes that returns a network")
    if entry.traits.get("over", "network") not in OVER:
        raise BadNetwork(f"model {entry.name}: over is {', '.join(OVER)}; got {entry.traits['over']!r}")
    parameters = dict(inspect.signature(thing).parameters)
    if entry.traits.get("over"):
        parameters.pop(next(iter(parameters), ""), None)  # the network that it is built over
    has_classes = parameters.pop("classes", None) is not None
    asked = parameters.get("options")
    config: Any = asked.annotation if asked is not None and is_dataclass(asked.annotation) else None
    known = get_type_hints(config or thing)
    names = [field.name for field in fields(config)] if config is not None else list(parameters)
    types = {name: known.get(name, Any) for name in names}
    open_ended = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return Builder(entry, thing, types, config, has_classes, open_ended and config is None)


model: Registry[Builder] = Registry("model", ("fovea.models",), _builder)


def split(name: str) -> tuple[str, str]:
    """KIND/NAME of a network that is built over another: its kind and the other's name; no kind for any other name."""
    kind, slash, inner = name.partition("/")
    return (kind, inner) if slash and inner and kind in model and model.entry(kind).traits.get("over") else ("", name)


def is_untrained(name: str) -> bool:
    """Whether a name only says how a network is built, so that its weights are random until a file of them is named."""
    kind, inner = split(name)
    return not Path(name).is_file() and (bool(kind) or inner in model or REFERENCE.fullmatch(inner) is not None)


def refused(builder: Builder, options: Mapping[str, Any]) -> BadChoice:
    """For options that nobody takes."""
    name = next(iter(options))
    known = f"{nearest(name, builder.options)} (its options: {', '.join(builder.options) or 'none'})"
    return BadChoice(f"{builder.entry.name} has no option {name!r}{known}")
