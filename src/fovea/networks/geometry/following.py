"""Follow a running network: beside every tensor, what each of its elements can see of the input."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

from fovea.networks.geometry.rules import JOINT, NOTHING, RULES, Call, See, fit, join, pointwise, thin, widest

BY_VALUE = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
OUT_OF_TORCH = ("numpy", "__array__", "__dlpack__", "tolist")
VIEWED = "writing through a view"


@dataclass(frozen=True)
class Sight:
    """What the elements of a tensor can see, and which operations on the way were taken to read all they were given.
    Two arrays an axis: how far towards its start, negated, and towards its stop. Then these again, with padding
    followed as if the map went on. No arrays at all: nothing of the input."""

    reach: tuple[Tensor, ...] = ()
    assumed: frozenset[str] = frozenset()
    writes: int = 0  # to the tensor's memory, before this was told

    def and_all_of(self, others: "Sequence[Sight]", shape: Sequence[int]) -> "Sight":
        """Every element sees, beside its own, all that others see."""
        others = [other for other in others if other.reach]
        reaches = [*([self.reach] if self.reach else []), *(tuple(map(widest, other.reach)) for other in others)]
        reach = tuple(join(*arrays).expand(shape) for arrays in zip(*reaches, strict=True))
        return Sight(reach, self.assumed.union(*(other.assumed for other in others)), self.writes)

    def same(self, other: "Sight") -> bool:
        pairs = zip(map(thin, self.reach), map(thin, other.reach), strict=False)
        return len(self.reach) == len(other.reach) and all(torch.equal(*pair) for pair in pairs)

    def uniform(self) -> bool:
        return all(bool((thin(array) == widest(array)).all()) for array in self.reach)


class Follower(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Follows every operation that runs under it."""

    def __init__(self, inputs: Tensor) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sights: Any = WeakTensorKeyDictionary()
        self.written: dict[int, Sight] = {}  # by memory: all that was ever written there
        self.leaked = Sight()  # what Python has read: it may decide anything that comes after
        arrays = []
        for axis in range(2 if inputs.ndim > 2 else 1, inputs.ndim):
            at = torch.arange(float(inputs.shape[axis]), device=inputs.device)
            at = at.view(-1, *[1] * (inputs.ndim - 1 - axis))
            arrays += [(-at).expand(inputs.shape), (at + 1).expand(inputs.shape)]
        self.sights[inputs] = Sight((*arrays, *arrays))

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # asked to keep the compiler away, torch imports all of it first, for seconds

    def sight(self, tensor: Tensor) -> Sight:
        own: Sight = self.sights.get(tensor, Sight())
        written = self.written.get(_memory(tensor), own)
        more = [written] if written.writes > own.writes else []  # through another view, and no one knows where
        more += [self.leaked] if self.leaked.reach else []
        return own.and_all_of(more, tensor.shape) if more else own

    def leak(self, tensors: Sequence[Tensor], how: str) -> None:
        """Python reads values, so that all that comes after may depend on them."""
        seen = [self.sight(tensor) for tensor in tensors]
        if any(one.reach for one in seen):
            self.leaked = Sight(assumed=frozenset([how])).and_all_of([self.leaked, *seen], ())

    def adopt(self, result: Tensor, tensors: Sequence[Tensor], how: str) -> None:
        """A tensor that was made out of sight of `__torch_dispatch__`, as `x.data` is."""
        if result not in self.sights:
            seen = Sight(assumed=frozenset([how])).and_all_of([self.sight(tensor) for tensor in tensors], result.shape)
            if seen.reach:
                self._keep(result, seen)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        arguments = func._schema.arguments
        named = {argument.name: argument.default_value for argument in arguments}
        named |= dict(zip(named, args, strict=False)) | given
        tensors = _tensors((args, given))
        sights = [self.sight(one) for one in tensors]  # before they are written over
        result = func(*args, **given)
        results = _tensors(result)
        written = [argument.name for argument in arguments if argument.alias_info and argument.alias_info.is_write]
        into = _tensors([named[name] for name in written])
        name = func._overloadpacket.__name__
        name = name.removesuffix("_") if into and not name.endswith("__") else name
        if BY_VALUE & set(func.tags):  # picking by numbers is no such case, by a mask it is
            self.leak([one for one in tensors if name != "index" or one.dtype in (torch.bool, torch.uint8)], name)
        outside = {key: value for key, value in given.items() if not any(value is one for one in into)}
        told = _told(func, Call(name, args, outside, named, tensors, results), sights)
        for tensor in into:
            seen = next((one for out, one in zip(results, told, strict=True) if out is tensor), None)
            before = next(one for other, one in zip(tensors, sights, strict=True) if other is tensor)
            self._write(tensor, before, seen or Sight().and_all_of(sights, tensor.shape))
        for tensor, seen in zip(results, told, strict=True):
            self._keep(tensor, seen)
        return result

    def _write(self, tensor: Tensor, before: Sight, seen: Sight) -> None:
        """Other views of the same memory see all of it from now on, unless nothing new was written."""
        if not seen.same(before):
            old = self.written.get(_memory(tensor), Sight())
            new = Sight(assumed=frozenset([VIEWED])).and_all_of([old, seen], ())
            self.written[_memory(tensor)] = replace(new, writes=old.writes + 1)
        self._keep(tensor, seen)

    def _keep(self, tensor: Tensor, seen: Sight) -> None:
        self.sights[tensor] = replace(seen, writes=self.written.get(_memory(tensor), Sight()).writes)


class Watch(TorchFunctionMode):
    """Sees what a `Follower` cannot: values that leave torch, and tensors made without an operation."""

    def __init__(self, follower: Follower) -> None:
        super().__init__()
        self.follower = follower

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", str(func))
        tensors = _tensors((args, kwargs))
        if name in OUT_OF_TORCH:
            self.follower.leak(tensors, name)
        for tensor in _tensors(result):
            if not any(tensor is other for other in tensors):
                self.follower.adopt(tensor, tensors, name)
        return result


def _told(func: Any, call: Call, sights: Sequence[Sight]) -> list[Sight]:
    """What each result of an operation sees."""
    seeing = [one for one in sights if one.reach]
    if not seeing or not call.results:
        return [Sight() for _ in call.results]
    assumed = frozenset[str]().union(*(one.assumed for one in seeing))
    rule = _rule(func, call)
    if rule is None:
        wide = Sight().and_all_of(seeing, ())
        known = all(one.uniform() and Sight().and_all_of([one], ()).same(wide) for one in seeing)  # nothing to widen
        assumed = assumed if known else assumed | {call.name}
        return [Sight(assumed=assumed).and_all_of([wide], result.shape) for result in call.results]
    count = len(seeing[0].reach)
    reaches: list[list[Tensor]] = []
    for k in range(count):
        arrays = {id(one): sight.reach[k] for one, sight in zip(call.tensors, sights, strict=True) if sight.reach}
        blank = seeing[0].reach[k].new_tensor(NOTHING)
        found = rule(replace(call, beyond=k >= count // 2), _see(arrays, blank))
        each = [found] * len(call.results) if isinstance(found, Tensor) else found
        reaches.append([fit(array, one.shape) for array, one in zip(each, call.results, strict=True)])
    return [Sight(reach, assumed) for reach in zip(*reaches, strict=True)]


def _see(arrays: dict[int, Tensor], blank: Tensor) -> See:
    return lambda tensor: arrays.get(id(tensor), blank.expand(tensor.shape))


def _rule(func: Any, call: Call) -> Callable[[Call, See], Tensor | Sequence[Tensor]] | None:
    if torch.Tag.pointwise in func.tags:
        return pointwise
    if call.name in JOINT:
        return JOINT[call.name]
    if call.name in RULES:
        return _of_first
    packet = getattr(torch.ops.aten, call.name, func._overloadpacket)
    alike = (getattr(packet, overload) for overload in packet.overloads())  # masked_fill: only some bear the tag
    return pointwise if any(torch.Tag.pointwise in one.tags for one in alike) else None


def _of_first(call: Call, see: See) -> Tensor | Sequence[Tensor]:
    """By the rule for the first tensor; others, such as weights made from the input, reach every result."""
    first, *others = call.tensors
    found = RULES[call.name](call, see(first))
    wide = [widest(see(other)) for other in others]
    return join(found, *wide) if isinstance(found, Tensor) else [join(one, *wide) for one in found]


def _tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)
