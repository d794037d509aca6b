"""What is written after a data set's name: 'name:key=value,key=value'. The opening function says what is allowed."""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import numpy as np

from fovea.basics import ANY, BOUNDS, REFERENCE, BadChoice, bound_of, importable, nearest, shown, within
from fovea.data.places import at_home

Size = tuple[int, int]  # width, height
CHOOSE = ("labels", "folds", "part", "fold_seed", "limit", "crop")  # of any set of pictures, some
PARTS = {"fit": "0-8", "choose": "9"}  # folds of a training split: to train on, and to choose settings by
COMMON = (*CHOOSE, "layout")
LONGEST = 1000  # numbers in a list


def parsed(given: str) -> tuple[str, dict[str, str]]:
    """'name:key=value,key=value' in its parts; the name of a layout of the user's own is package.module:name. A path
    that exists is taken as it is."""
    if os.path.exists(at_home(given)):
        return given, {}
    own = re.match(rf"{REFERENCE.pattern}(?=:|$)", given)
    is_own = own is not None and importable(given.partition(":")[0])
    name = own[0] if own is not None and is_own else _before_options(given)
    options = {}
    for text in filter(None, map(str.strip, given.removeprefix(name)[1:].split(","))):
        key, equals, value = text.partition("=")
        if not equals:
            hint = f" (to import a layout of your own, there is no module {name!r})" if own else ""
            raise BadChoice(f"options of data are written name:key=value,key=value; got {text!r} in {given!r}{hint}")
        options[key.strip()] = value.strip()
    return name, options


def _before_options(given: str) -> str:
    """The longest path that exists, which may hold colons itself; else what stands before the first."""
    places = (given[: colon.start()] for colon in reversed([*re.finditer(":", given)]))
    return next((place for place in places if place and os.path.exists(at_home(place))), given.partition(":")[0])


def typed(name: str, function: Callable[..., object], given: Mapping[str, str]) -> dict[str, Any]:
    """The text options as the function's own parameters: each has its type, and no other exists."""
    parameters = inspect.signature(function, eval_str=True).parameters
    options = {key: parameter for key, parameter in parameters.items() if key not in ("folder", "names")}
    for key in given:
        if key not in options:
            known = sorted({*options, *COMMON})
            there = f"{nearest(key, known)} (its options: {', '.join(known)})"
            raise BadChoice(f"data {name!r} has no option {key!r}{there}")
    return {key: value_of(f"{name}: {key}=", text, options[key].annotation) for key, text in given.items()}


def value_of(what: str, text: str, kind: Any) -> Any:
    """One value of a type, within the bounds that are declared beside it; `what` begins the error."""
    bound = bound_of(kind)
    if get_origin(kind) in (UnionType, Union):
        kind = next(member for member in get_args(kind) if member is not NoneType)
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(kind) is Literal:
        if text not in get_args(kind):
            wanted = " or ".join(get_args(kind))
            raise BadChoice(f"{what} takes {wanted}; got {shown(text)}{nearest(text, get_args(kind))}")
        return text
    if kind in ANY:
        return (bound or ANY[kind]).read(what, text)
    if kind == tuple[float, ...]:
        return tuple((bound or ANY[float]).read(f"{what}, as 0.25/0.5,", number) for number in text.split("/", LONGEST))
    if kind == Size:
        match = re.fullmatch(r"([0-9]{1,9})(?:[xX×]([0-9]{1,9}))?", text)
        if match is None:
            raise BadChoice(f"{what} takes a size in pixels, as 1000 or 1500x800 (width x height); got {shown(text)}")
        size = int(match[1]), int(match[2] or match[1])
        (bound or ANY[int]).check(what, size)
        return size
    return text


def numbers(text: str) -> set[int]:
    """'0-49' or '3+5+8-10' as numbers of classes."""
    most = int(BOUNDS["classes"].most) - 1
    kept = np.zeros(most + 1, bool)
    for part in text.split("+"):
        match = re.fullmatch(r"\s*([0-9]{1,30})(?:\s*-\s*([0-9]{1,30}))?\s*", part)
        if match is None:
            raise BadChoice(f"labels are written 0-49 or 3+5+8; got {shown(text)}")
        first, last = int(match[1]), int(match[2] or match[1])
        within("a label", max(first, last), 0, most)
        kept[first : last + 1] = True
    return set(np.flatnonzero(kept).tolist())


def splits_asked(name: str, asked: str | None, there: Sequence[str]) -> tuple[str, ...]:
    """The one split asked for, or all there are."""
    if asked is None:
        return tuple(there)
    if asked not in there:
        has = f"it has: {', '.join(sorted(there))}" if any(there) else "it is not split"
        raise BadChoice(f"{name} has no split {asked!r}{nearest(asked, there)} ({has})")
    return (asked,)
