"""Results as JSON and back, exactly: what `fovea serve` answers and its client reads.

Both sides have the same classes, so no name of one travels: `unpack` is told what is asked for, and the type hints of
dataclasses say the rest. Arrays and tensors keep every bit. What is only of use where it is, as pictures and fields
that take no part in comparison, is left out; the reader puts in a picture of its own.
"""

import base64
import binascii
import dataclasses
import math
import types
from collections.abc import Callable, Mapping, Sequence, Set
from functools import lru_cache
from typing import Any, Protocol, TypeVar, Union, cast, get_args, get_origin, get_type_hints, runtime_checkable

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fovea.basics import Damaged, FoveaError, shown
from fovea.pictures import Picture

T = TypeVar("T")
NUMBERS = ("float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool")
NO_JSON = {"nan", "inf", "-inf"}  # numbers that JSON does not have
AXES, LONG, DEEP = 8, 1 << 31, 32  # at most: of an array, of an axis, and of lists in lists


@runtime_checkable
class Shared(Protocol):
    """A result at one `place` among the `maps` that it was made with."""

    place: int

    def alone(self) -> Any: ...


def pack(value: Any) -> Any:
    """The value as JSON takes it; what cannot travel is an error."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, (Picture, Image.Image)):
        return None
    if isinstance(value, (Tensor, np.ndarray)):
        return _packed(value)
    if isinstance(value, Shared):
        return {"maps": pack(value.alone()), "place": 0}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: pack(getattr(value, field.name)) for field in dataclasses.fields(value) if field.compare}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: pack(item) for key, item in value.items()}
    if isinstance(value, Set):
        return [pack(item) for item in sorted(value)]
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [pack(item) for item in value]
    raise FoveaError(f"a {type(value).__name__} cannot be sent; ask for what is drawn, or for JSON, instead")


def _packed(values: Any) -> dict[str, Any]:
    name, array = str(values.dtype).removeprefix("torch."), values
    if isinstance(values, Tensor):
        host = values.detach().cpu()
        array = (host.view(torch.int16) if host.dtype is torch.bfloat16 else host).numpy()  # which numpy has not
    if name not in NUMBERS:
        raise FoveaError(f"an array of {name} cannot be sent")
    return {"dtype": name, "shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode()}


def unpack(kind: type[T], data: Any, picture: Picture | None = None) -> T:
    """A value of that kind; Damaged where the data are of no such. `picture` is put where one was left out, and names
    what it is put into."""
    return cast(T, _read(kind, data, picture))


def _read(kind: Any, data: Any, picture: Picture | None) -> Any:
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if data is None and Picture in (kind, *parts):
        return picture
    if origin in (Union, types.UnionType):
        return _any_of(parts, data, picture)
    if dataclasses.is_dataclass(origin) and origin is not Picture:  # of which none is taken from elsewhere
        return _dataclass(origin, data, picture)
    if origin not in READERS:
        raise _wrong(kind, data)
    return READERS[origin](kind, data, picture)


def _any_of(kinds: Sequence[Any], data: Any, picture: Picture | None) -> Any:
    if data is None and types.NoneType in kinds:
        return None
    left = [kind for kind in kinds if kind is not types.NoneType]
    for kind in left[:-1]:
        try:
            return _read(kind, data, picture)
        except Damaged:
            continue
    return _read(left[-1], data, picture)


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _dataclass(kind: Any, data: Any, picture: Picture | None) -> Any:
    fields = {field.name: field for field in dataclasses.fields(kind) if field.init}
    if not isinstance(data, dict) or not data.keys() <= fields.keys():
        raise _wrong(kind, data)
    values = dict[str, Any]((name, None) for name, field in fields.items() if not field.compare)
    for name, item in data.items():
        try:
            values[name] = _read(_hints(kind)[name], item, picture)
        except Damaged as reason:
            raise Damaged(f"{name}: {reason}") from None
    if "name" in fields and isinstance(given := values.get("picture"), Picture):
        values["name"] = given.name
    try:
        return kind(**values)
    except (TypeError, ValueError) as reason:  # a field is not there, or is out of range
        raise Damaged(f"what came is no {kind.__name__}: {reason}") from None


def _number(kind: Any, data: Any, _: Picture | None) -> float:
    if isinstance(data, str) and data in NO_JSON:
        return float(data)
    return data if isinstance(data, int) and not isinstance(data, bool) else _plain(kind, data, None)


def _plain(kind: Any, data: Any, _: Picture | None) -> Any:
    if type(data) is not kind:
        raise _wrong(kind, data)
    return data


def _tuple(kind: Any, data: Any, picture: Picture | None) -> tuple[Any, ...]:
    """tuple[X, ...], or one kind for each."""
    kinds = get_args(kind)
    if not isinstance(data, list) or (kinds[-1] is not ... and len(kinds) != len(data)):
        raise _wrong(kind, data)
    each = kinds[:1] * len(data) if kinds[-1] is ... else kinds
    return tuple(_read(part, item, picture) for part, item in zip(each, data, strict=True))


def _listed(make: Callable[[Any], Any], kind: Any, data: Any, picture: Picture | None) -> Any:
    if not isinstance(data, list):
        raise _wrong(kind, data)
    (part,) = get_args(kind)
    return make(_read(part, item, picture) for item in data)


def _mapping(kind: Any, data: Any, picture: Picture | None) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise _wrong(kind, data)
    return {key: _read(get_args(kind)[1], item, picture) for key, item in data.items()}


def _tensor(kind: Any, data: Any, _: Picture | None) -> Tensor:
    """As many bytes as its shape says, checked before memory is taken for it."""
    if not isinstance(data, dict) or data.keys() != {"dtype", "shape", "data"} or data["dtype"] not in NUMBERS:
        raise _wrong(kind, data)
    shape, dtype = data["shape"], getattr(torch, data["dtype"])
    sides = isinstance(shape, list) and len(shape) <= AXES and all(type(n) is int and 0 <= n < LONG for n in shape)
    try:
        held = base64.b64decode(data["data"], validate=True)
        if not sides or math.prod(shape) * dtype.itemsize != len(held):
            raise _wrong(kind, data)
        return (torch.frombuffer(bytearray(held), dtype=dtype) if held else torch.empty(0, dtype=dtype)).reshape(shape)
    except (binascii.Error, TypeError, ValueError, RuntimeError):  # no base64; sides that no tensor has
        raise _wrong(kind, data) from None


def _array(kind: Any, data: Any, _: Picture | None) -> Any:
    values = _tensor(kind, data, None)
    return (values.float() if values.dtype is torch.bfloat16 else values).numpy()


def _anything(kind: Any, data: Any, _: Picture | None, deep: int = DEEP) -> Any:
    """What JSON has, as it is."""
    inside = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    if not deep:
        raise _wrong(kind, data)
    for item in inside:
        _anything(kind, item, None, deep - 1)
    return data


READERS: Mapping[Any, Callable[[Any, Any, Picture | None], Any]] = {
    **dict.fromkeys((bool, int, str, types.NoneType), _plain),
    float: _number,
    tuple: _tuple,
    list: lambda *given: _listed(list, *given),
    Sequence: lambda *given: _listed(tuple, *given),
    frozenset: lambda *given: _listed(frozenset, *given),
    dict: _mapping,
    Mapping: _mapping,
    Tensor: _tensor,
    np.ndarray: _array,
    Any: _anything,
}


def _wrong(kind: Any, data: Any) -> Damaged:
    name = kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
    return Damaged(f"what came is no {name}: {shown(data)}")
