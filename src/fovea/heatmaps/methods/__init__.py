"""Ways to find where a network looks, one per file.

    from fovea.heatmaps.look import Look, score_of
    from fovea.heatmaps.methods import method
    from fovea.heatmaps.targets import Aim

    @method("elementwise", about="features times gradients where that is positive", passes=1)
    def elementwise(look: Look, aim: Aim) -> Tensor:
        return (look.gradient(*score_of(aim)) * look.cells).relu().sum(1)  # B,P

A method is called with a `Look`, one batch seen once, and an `Aim`, what to explain of it; it returns one value per
cell, B,P, as a tensor or as a `Finding`, which can say more. It is a function, or a class that is made without
arguments (or with the `options` declared) and called. What may be declared of it:

- `passes`: how often the network runs for a picture. Where that is no fixed number, the class has a method
  `passes(look)` that works it out, and `look.tell(done, total)` shows how far it is.
- `costly=True`: it takes many passes. It runs where it is named, or all are asked for, never by itself, and says
  beforehand how long it will take; `instead` names a quicker one.
- `through="head"`: its passes are of the layers after the cut alone.
- `on`: what its values are of, "cells" of the cut, "pixels" of the input, or patches that "attention" is paid to.
- `oblivious=True`: it ignores the target, and so has one map whatever was asked for.
- `paper`, `takes` and `needs`: who proposed it, what it takes (one pass if nothing is said) and what a network must
  have, in words, for listings.

One that cannot be used on a network raises `DoesNotApply`, with the reason."""

import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, TypeAlias, get_type_hints

import fovea.data
from fovea.basics import BadChoice, Registry, bound_of, demand_bounds, importable, nearest

DEFAULT = "l2caf"
ALL = "all"
PLAIN = (int, float, str)
Run: TypeAlias = Callable[[Any, Any], Any]  # Look, Aim -> Finding or Tensor


@dataclass(frozen=True)
class Method:
    """A method as it is used: what its author declared, checked."""

    name: str
    run: Run
    oblivious: bool = False
    passes: int | Callable[[Any], int] | None = None  # a number, or Look -> a number
    costly: bool = False
    through: str = "network"
    on: str = "cells"
    instead: str = ""  # a quicker method
    optional: bool = False  # left out where it does not apply

    def passes_of(self, look: Any) -> int:
        return self.passes(look) if callable(self.passes) else self.passes or 1


MethodLike: TypeAlias = str | Method | Run  # a name, package.module:name, a function, an instance, a class


def find(given: MethodLike) -> Method:
    """A method by name, or of the user's own."""
    if isinstance(given, Method):
        return given
    if not isinstance(given, str):
        return _made(given, "", {}, {})
    name, options = parted(given)
    return _with(method.get(name), options)


def parted(text: str) -> tuple[str, dict[str, str]]:
    """'name:key=value,key=value' in its parts."""
    match = re.fullmatch(r"([^=]+):(\w+=.*)", text)
    if match is None:
        if (name := text.partition(":")[0]) in method and name != text and not importable(name):
            raise BadChoice(f"options of a method are written {name}:key=value,key=value; got {text!r}")
        return text, {}
    pairs = [piece.partition("=") for piece in match[2].split(",")]
    return match[1], {key.strip(): value.strip() for key, _, value in pairs}


def _with(plain: Method, given: Mapping[str, str]) -> Method:
    """The method with options set: fields of its class that are numbers, texts or choices."""
    if not given:
        return plain
    options = {k: kind for k, kind in _fields(plain.run).items() if not isinstance(kind, type) or kind in PLAIN}
    for key in given:
        if key not in options:
            has = f"its options: {', '.join(options)}" if options else "it has none"
            raise BadChoice(f"method {plain.name!r} has no option {key!r}{nearest(key, options)} ({has})")
    values = {key: fovea.data.value_of(f"{plain.name}: {key}=", text, options[key]) for key, text in given.items()}
    text = ",".join(f"{key}={value}" for key, value in given.items())
    run: Any = replace(plain.run, **values)  # type: ignore[type-var]
    passes = run.passes if callable(plain.passes) else plain.passes
    return replace(plain, name=f"{plain.name}:{text}", run=run, passes=passes)


def chosen(given: MethodLike | list[Any] | tuple[Any, ...]) -> list[Method]:
    """The methods named; for "all" every one, those left out that turn out not to apply."""
    found = list[Method]()
    for item in given if isinstance(given, (list, tuple)) else [given]:
        found += [replace(find(name), optional=True) for name in names()] if item == ALL else [find(item)]
    return found


def known(name: str) -> None:
    """Refuse a name that is no method's, nor "all", before torch is imported."""
    if name != ALL:
        method.entry(parted(name)[0])
    if "=" in name:
        find(name)


def names() -> list[str]:
    """All methods: the default first, then plain ones, variants, and those that cost most."""
    entries = method.entries()
    costly = {name for name in entries if entries[name].traits.get("costly")}
    return sorted(entries, key=lambda name: (name != DEFAULT, name in costly, bool(entries[name].options)))


def in_words() -> str:
    """The names for a help text: variants beside what they vary, costly ones last."""
    entries, words = method.entries(), {False: list[str](), True: list[str]()}
    for name in (name for name in names() if not entries[name].options):
        variants = (other for other in entries if entries[other].options and other.startswith(f"{name}-"))
        tails = [other.removeprefix(name) for other in variants]
        words[bool(entries[name].traits.get("costly"))].append(f"{name} ({', '.join(tails)})" if tails else name)
    return f"{', '.join(words[False])}; slow: {', '.join(words[True])}; all that apply; your own, package.module:name"


def usual() -> list[str]:
    """Those to run where none was named: fovea's own but for costly ones and those on pixels, and of the user's
    those that take one pass."""
    entries = method.entries()
    traits = {name: entry.traits for name, entry in entries.items()}
    cheap = [name for name in names() if not traits[name].get("costly") and traits[name].get("on") != "pixels"]
    own = [name for name in cheap if entries[name].module.startswith(f"{__name__}.")]
    return [name for name in cheap if name in own or entries[name].traits.get("passes") == 1]


def _fields(run: Any) -> dict[str, Any]:
    return get_type_hints(type(run), include_extras=True) if is_dataclass(run) else {}


def _made(thing: Any, name: str, options: Mapping[str, Any], traits: Mapping[str, Any]) -> Method:
    words = f"method {name or getattr(thing, '__name__', type(thing).__name__)!r}"
    made = thing
    if inspect.isclass(thing):
        try:
            inspect.signature(thing).bind(**options)
        except (TypeError, ValueError) as error:
            mend = "give it a default, declare it with options={...}, or give an instance"
            raise BadChoice(f"{words}: its class is made without arguments, and {error}: {mend}") from None
        made = thing(**options)
    if not callable(made):
        got = f"a method is a function (look, aim), or has __call__(self, look, aim); got a {type(made).__name__}"
        raise BadChoice(f"{words} cannot be called: {got}")
    try:
        inspect.signature(made).bind(None, None)
    except TypeError as error:
        raise BadChoice(f"{words} is called with a Look and an Aim, and {error}: (look, aim)") from None
    bounds = {key: bound for key, kind in _fields(made).items() if (bound := bound_of(kind))}
    demand_bounds({key: getattr(made, key) for key in bounds}, bounds, f"{words}: ")
    own = getattr(made, "name", None) or getattr(thing, "__name__", None)
    name = name or (own if isinstance(own, str) else "")
    if not name or name == "<lambda>":
        raise BadChoice(f"{words} has no name to call its results by: give it an attribute `name`")
    traits = {"passes": getattr(made, "passes", None), "oblivious": getattr(made, "oblivious", False), **traits}
    unknown = [trait for trait in traits if trait not in (*TRAITS, *WORDS)]
    if unknown:
        near = nearest(unknown[0], TRAITS)
        raise BadChoice(f"{words} declares {unknown[0]!r}{near} (there are: {', '.join(TRAITS)})")
    return Method(name, made, **{trait: value for trait, value in traits.items() if trait in TRAITS})


TRAITS = ("passes", "costly", "through", "instead", "on", "oblivious")
WORDS = ("paper", "takes", "needs")
method: Registry[Method] = Registry(
    "method", (__name__,), lambda entry, thing: _made(thing, entry.name, entry.options, entry.traits)
)
