"""What a door is given is of the kinds that it names, by its own annotations: checked once, before anything else."""

import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from numbers import Integral, Real
from typing import Annotated, Any, Union, get_args, get_origin

from fovea.basics.errors import BadChoice, nearest, shown

WIDER: dict[Any, type] = {int: Integral, float: Real}  # numpy's numbers are numbers
WORDS = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "a text",
    types.NoneType: "None",
    Callable: "a function",
}
DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")


def demand_kinds(door: Callable[..., Any], given: Mapping[str, Any], but: str = "") -> None:
    """Refuses arguments of a door that are of no kind it takes. It looks itself into what may be anything iterable, and
    into the argument that `but` names."""
    for name, kinds in _kinds(door).items():
        value = given.get(name)
        if name in given and name != but and not any(_is(value, kind) for kind in kinds):
            words = [WORDS.get(kind, f"a {kind.__name__}") for kind in kinds]
            listed = " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))
            raise BadChoice(f"{name} takes {listed}; got {shown(value)}")


def _is(value: Any, kind: Any) -> bool:
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return kind in (bool, object)
    if isinstance(value, (bytes, bytearray)):  # which are sequences of numbers, to Python
        return kind is bytes
    return isinstance(value, WIDER.get(kind, kind))


@lru_cache
def _kinds(door: Callable[..., Any]) -> dict[str, tuple[Any, ...]]:
    every = {name: _flat(one.annotation) for name, one in inspect.signature(door).parameters.items()}
    return {name: tuple(dict.fromkeys(kinds)) for name, kinds in every.items() if kinds}


def _flat(annotation: Any) -> list[Any]:
    """The classes that an annotation names; none where it says more than classes do, or takes what can be gone
    through."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _flat(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        parts = [_flat(part) for part in get_args(annotation)]
        return [kind for part in parts for kind in part] if all(parts) else []
    kind = annotation if origin is None else origin
    return [kind] if isinstance(kind, type) and kind not in (inspect.Parameter.empty, Iterable, Any) else []


def spelled_device(given: object) -> str:
    """One of DEVICES, with its number where there are several: cuda:1."""
    text = str(given)
    kind, colon, number = text.partition(":")
    if kind not in DEVICES or (colon and (kind == "auto" or not re.fullmatch("[0-9]{1,3}", number))):
        near = nearest(kind, DEVICES)
        raise BadChoice(f"a device is {', '.join(DEVICES)}, or a numbered one, as cuda:1; got {shown(text)}{near}")
    return text
