"""What is written after a data set's name: 'name:key=value,key=value'. The opening function says what is allowed."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from fovea.basics.errors import BadChoice, nearest

Size = tuple[int, int]  # width, height
COMMON = ("split", "labels", "limit", "layout")


def parsed(given: str) -> tuple[str, dict[str, str]]:
    """'name:key=value,key=value' in its parts; a path that exists is taken as it is."""
    name, colon, rest = given.partition(":")
    if not colon or os.path.exists(os.path.expanduser(given)):
        return given, {}
    options = {}
    for one in filter(None, map(str.strip, rest.split(","))):
        key, equals, value = one.partition("=")
        if not equals:
            raise BadChoice(f"options of data are written name:key=value,key=value; got {one!r} in {given!r}")
        options[key.strip()] = value.strip()
    return name, options


def typed(name: str, function: Callable[..., object], given: Mapping[str, str]) -> dict[str, Any]:
    """The text options as the function's own parameters: each has its type, and no other exists."""
    parameters = inspect.signature(function, eval_str=True).parameters
    own = {key: one for key, one in parameters.items() if key not in ("folder", "names")}
    for key in given:
        if key not in own:
            known = sorted({*own, *COMMON})
            raise BadChoice(
                f"data {name!r} has no option {key!r}{nearest(key, known)} (its options: {', '.join(known)})"
            )
    return {key: value_of(f"{name}: {key}=", text, own[key].annotation) for key, text in given.items()}


def value_of(what: str, text: str, kind: Any) -> Any:
    """One value of a type; `what` begins the error."""
    if get_origin(kind) is UnionType:
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise BadChoice(f"{what} takes {' or '.join(get_args(kind))}; got {text!r}{nearest(text, get_args(kind))}")
        return text
    if kind is int:
        if not re.fullmatch(r"[+-]?\d+", text):
            raise BadChoice(f"{what} takes a whole number; got {text!r}")
        return int(text)
    if kind == Size:
        match = re.fullmatch(r"(\d+)(?:[xX×](\d+))?", text)
        if match is None:
            raise BadChoice(f"{what} takes a size in pixels, as 1000 or 1500x800 (width x height); got {text!r}")
        return int(match[1]), int(match[2] or match[1])
    return text


def numbers(text: str) -> set[int]:
    """'0-49' or '3+5+8-10' as numbers."""
    found: set[int] = set()
    for part in text.split("+"):
        match = re.fullmatch(r"\s*(\d+)(?:\s*-\s*(\d+))?\s*", part)
        if match is None:
            raise BadChoice(f"labels are written 0-49 or 3+5+8; got {text!r}")
        found |= set(range(int(match[1]), int(match[2] or match[1]) + 1))
    return found


def splits_asked(name: str, asked: str | None, there: Sequence[str]) -> tuple[str, ...]:
    """The one split asked for, or all there are."""
    if asked is None:
        return tuple(there)
    if asked not in there:
        has = f"it has: {', '.join(sorted(there))}" if any(there) else "it is not split"
        raise BadChoice(f"{name} has no split {asked!r}{nearest(asked, there)} ({has})")
    return (asked,)
