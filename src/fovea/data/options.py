"""What is written after a data set's name: 'name:key=value,key=value'. The opening function says what is allowed."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin

from fovea.basics import REFERENCE, BadChoice, nearest

Size = tuple[int, int]  # width, height
COMMON = ("labels", "limit", "layout")


def parsed(given: str) -> tuple[str, dict[str, str]]:
    """'name:key=value,key=value' in its parts; the name of a layout of the user's own is package.module:name.

    A path that exists is taken as it is.
    """
    if os.path.exists(os.path.expanduser(given)):
        return given, {}
    own = re.match(rf"{REFERENCE.pattern}(?=:|$)", given)
    is_own = own is not None and find_spec(given.partition(".")[0].partition(":")[0]) is not None
    name = own[0] if own is not None and is_own else given.partition(":")[0]
    options = {}
    for text in filter(None, map(str.strip, given.removeprefix(name)[1:].split(","))):
        key, equals, value = text.partition("=")
        if not equals:
            hint = f" (to import a layout of your own, there is no module {name!r})" if own else ""
            raise BadChoice(f"options of data are written name:key=value,key=value; got {text!r} in {given!r}{hint}")
        options[key.strip()] = value.strip()
    return name, options


def typed(name: str, function: Callable[..., object], given: Mapping[str, str]) -> dict[str, Any]:
    """The text options as the function's own parameters: each has its type, and no other exists."""
    parameters = inspect.signature(function, eval_str=True).parameters
    options = {key: parameter for key, parameter in parameters.items() if key not in ("folder", "names")}
    for key in given:
        if key not in options:
            known = sorted({*options, *COMMON})
            raise BadChoice(
                f"data {name!r} has no option {key!r}{nearest(key, known)} (its options: {', '.join(known)})"
            )
    return {key: value_of(f"{name}: {key}=", text, options[key].annotation) for key, text in given.items()}


def value_of(what: str, text: str, kind: Any) -> Any:
    """One value of a type; `what` begins the error."""
    if get_origin(kind) is UnionType:
        kind = next(member for member in get_args(kind) if member is not NoneType)
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            raise BadChoice(f"{what} takes {' or '.join(get_args(kind))}; got {text!r}{nearest(text, get_args(kind))}")
        return text
    if kind is int:
        if not re.fullmatch(r"[+-]?\d+", text):
            raise BadChoice(f"{what} takes a whole number; got {text!r}")
        return int(text)
    if kind is float:
        try:
            return float(text)
        except ValueError:
            raise BadChoice(f"{what} takes a number; got {text!r}") from None
    if kind == tuple[float, ...]:
        try:
            return tuple(float(number) for number in text.split("/"))
        except ValueError:
            raise BadChoice(f"{what} takes numbers with strokes between, as 0.25/0.5; got {text!r}") from None
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


def demand_least(name: str, least: Mapping[str, int], **values: int | None) -> None:
    """Every option has its least value, where it is given."""
    for key, value in values.items():
        if value is not None and value < least[key]:
            raise BadChoice(f"{name}: {key}= is at least {least[key]}; got {value}")


def splits_asked(name: str, asked: str | None, there: Sequence[str]) -> tuple[str, ...]:
    """The one split asked for, or all there are."""
    if asked is None:
        return tuple(there)
    if asked not in there:
        has = f"it has: {', '.join(sorted(there))}" if any(there) else "it is not split"
        raise BadChoice(f"{name} has no split {asked!r}{nearest(asked, there)} ({has})")
    return (asked,)
