"""The part after the cut for the tokens that the output reads. Of a ViT's last block it reads the class token alone:
one query, and projection, MLP and norms of one row.

A graph is rewritten from its end. A slice of an axis moves up through operations that treat every place of that axis
alike, onto the queries of an attention and onto the rows of a weight, and stays where no rule lets it move. The rules
are about operations, not networks; whoever calls this compares what the graph gave with what it gives."""

import math
import operator
from collections.abc import Callable
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

MOST_READ = 8  # class, distillation and register tokens
Slice: TypeAlias = tuple[int, int, int]  # axis, start, stop
Node: TypeAlias = Any  # fx.Node, whose arguments may be anything


def read_rows_alone(module: nn.Module, graph: fx.Graph, values: dict[fx.Node, Any]) -> bool:
    """Rewrite a graph that reads only the first rows of its tokens; False where it reads them otherwise. `values` are
    what its nodes give for one picture."""
    push = _Push(module, graph, values)
    for node in list(graph.nodes):
        stops = [_rows_read(user) for user in node.users]
        if node.op == "placeholder" or not stops or None in stops or len(push.shapes.get(node, ())) < 3:
            continue
        stop = max(filter(None, stops))
        if stop <= MOST_READ and stop < push.shapes[node][1]:
            users = list(node.users)
            with graph.inserting_before(users[0]):
                fewer = push(node, (1, 0, stop))
                alone = graph.call_method("squeeze", (fewer, 1)) if stop == 1 else None
            for user in users:
                user.replace_input_with(node, fewer)
                if alone is not None and user.args in ((fewer, (slice(None), 0)), (fewer, 1, 0)):
                    user.replace_all_uses_with(alone)  # the gradient of a choice fills a tensor, of this it does not
    if not push.made:
        return False
    _without_dead(graph)
    for node in list(graph.nodes):
        _parts_alone(push, node)
    _without_dead(graph)
    return True


def _without_dead(graph: fx.Graph) -> None:
    for node in reversed(graph.nodes):
        if not node.users and node.op not in ("placeholder", "output"):
            graph.erase_node(node)


def _rows_read(user: Node) -> int | None:
    """How many of the first rows are read by x[:, 0], x[:, :2] or x.select(1, 0); None for any other use."""
    row: Any = None
    if user.target == "select" and user.args[1] == 1:
        row = user.args[2]
    elif user.target is operator.getitem and isinstance(index := user.args[1], tuple) and index[0] == slice(None):
        row = index[1] if len(index) > 1 else None
    if isinstance(row, slice) and row.start in (None, 0) and row.step in (None, 1):
        row = row.stop - 1 if isinstance(row.stop, int) else None
    return row + 1 if isinstance(row, int) and row >= 0 else None


class _Push:
    """Gives nodes for slices of what other nodes give."""

    def __init__(self, module: nn.Module, graph: fx.Graph, values: dict[fx.Node, Any]) -> None:
        self.module, self.graph, self.values = module, graph, values
        self.shapes = {node: tuple(value.shape) for node, value in values.items() if isinstance(value, Tensor)}
        self.made: dict[tuple[fx.Node, Slice], fx.Node] = {}

    def __call__(self, node: Any, part: Slice) -> Any:
        axis, start, stop = part
        if not isinstance(node, fx.Node) or (start, stop) == (0, self.shapes[node][axis]):
            return node
        if (node, part) not in self.made:
            made = self._by_rule(node, part)
            shape = self.shapes[node]
            if made is None:
                made = self.graph.call_function(operator.getitem, (node, _index(axis, slice(start, stop))))
            self.shapes[made] = (*shape[:axis], stop - start, *shape[axis + 1 :])
            self.made[node, part] = made
        return self.made[node, part]

    def _by_rule(self, node: Node, part: Slice) -> Node | None:
        key: Any = node.target
        if node.op == "call_module":
            key = type(self.module.get_submodule(str(key)))
        rule = RULES.get(key) if node.op in ("call_function", "call_method", "call_module") else None
        return rule(self, node, part) if rule else None

    def again(self, node: Node, *args: Any, **kwargs: Any) -> Node:
        """The node's operation with other first arguments."""
        target = WRITTEN_ANEW.get(node.target, node.target)
        every = (*args, *node.args[len(args) :])
        return self.graph.create_node(node.op, target, every, {**node.kwargs, **kwargs})

    def known(self, value: Any) -> Any:
        """What an argument is for one picture."""
        return self.values.get(value) if isinstance(value, fx.Node) else value

    def option(self, node: Node, place: int, name: str, default: Any = None) -> Any:
        return self.known(node.args[place] if len(node.args) > place else node.kwargs.get(name, default))


Rule: TypeAlias = Callable[[_Push, Node, Slice], Node | None]


def _index(axis: int, place: int | slice) -> tuple[Any, ...]:
    return (*[slice(None)] * axis, place)


def _each(push: _Push, node: Node, part: Slice) -> Node:
    return push.again(node, push(node.args[0], part))


def _pair(push: _Push, node: Node, part: Slice) -> Node:
    return push.again(node, *(_broadcast(push, arg, part, len(push.shapes[node])) for arg in node.args[:2]))


def _broadcast(push: _Push, value: Any, part: Slice, axes: int) -> Any:
    """The slice of a value that meets others of so many axes."""
    if value not in push.shapes:
        return value
    axis = part[0] - axes + len(push.shapes[value])
    return push(value, (axis, *part[1:])) if axis >= 0 and push.shapes[value][axis] > 1 else value


def _norm(push: _Push, node: Node, part: Slice) -> Node | None:
    if node.op == "call_module":
        layer: Any = push.module.get_submodule(str(node.target))
        over = len(layer.normalized_shape)
    else:
        over = len(push.option(node, 1, "normalized_shape"))
    return _each(push, node, part) if part[0] < len(push.shapes[node]) - over else None


def _softmax(push: _Push, node: Node, part: Slice) -> Node | None:
    along = push.option(node, 1, "dim")
    return _each(push, node, part) if along is not None and along % len(push.shapes[node]) != part[0] else None


def _product(push: _Push, node: Node, part: Slice) -> Node | None:
    axes = len(push.shapes[node])
    if any(value not in push.shapes or len(push.shapes[value]) != axes for value in node.args[:2]):
        return None
    return push.again(node, push(node.args[0], part)) if part[0] == axes - 2 else None


def _attention(push: _Push, node: Node, part: Slice) -> Node | None:
    axes = len(push.shapes[node])
    if part[0] != axes - 2 or push.option(node, 5, "is_causal", False) or len(node.args) > 3:
        return None
    mask = _broadcast(push, node.kwargs.get("attn_mask"), part, axes)
    return push.again(node, push(node.args[0], part), attn_mask=mask, is_causal=False)


def _multihead(push: _Push, node: Node, part: Slice) -> Node | None:
    """The first of what nn.MultiheadAttention gives."""
    attention: Any = push.module.get_submodule(str(node.target))
    given = {name: push.known(value) for name, value in node.kwargs.items()}
    plain = given.pop("need_weights", True) is False and not any(value is not None for value in given.values())
    if not plain or not attention.batch_first or part[0] != 1 or len(node.args) != 3:
        return None
    return push.graph.call_function(operator.getitem, (push.again(node, push(node.args[0], part)), 0))


def _linear(push: _Push, node: Node, part: Slice) -> Node:
    axis, start, stop = part
    if axis < len(push.shapes[node]) - 1:
        return _each(push, node, part)
    given, weight, bias = node.args[0], node.kwargs.get("weight"), node.kwargs.get("bias")
    if node.op == "call_module":
        layer = push.module.get_submodule(str(node.target))
        weight = push.graph.get_attr(f"{node.target}.weight")
        bias = None if layer.bias is None else push.graph.get_attr(f"{node.target}.bias")
    else:
        weight, bias = (*node.args[1:], weight, bias)[:2] if len(node.args) > 1 else (weight, bias)
    call, some = push.graph.call_function, slice(start, stop)
    rows = [None if value is None else call(operator.getitem, (value, some)) for value in (weight, bias)]
    return call(F.linear, (given, *rows))


def _moved(push: _Push, node: Node, part: Slice) -> Node:
    """transpose and permute."""
    axes = len(push.shapes[node])
    order = list(range(axes))
    places = [push.known(place) for place in node.args[1:]]
    places = list(places[0]) if len(places) == 1 else places
    if node.target in ("permute", torch.permute):
        order = [place % axes for place in places]
    else:
        a, b = (place % axes for place in places)
        order[a], order[b] = order[b], order[a]
    return push.again(node, push(node.args[0], (order[part[0]], *part[1:])))


def _reshaped(push: _Push, node: Node, part: Slice) -> Node | None:
    """An axis that stays, or the first of those that another is divided into."""
    axis, start, stop = part
    old, new = push.shapes[node.args[0]], push.shapes[node]
    for place, size in enumerate(old):
        inner = size // new[axis]
        divides = any(math.prod(new[axis + 1 : axis + 1 + more]) == inner for more in range(len(new) - axis))
        if size > 1 and size == inner * new[axis] and divides and math.prod(old[:place]) == math.prod(new[:axis]):
            break
    else:
        return None
    given = push(node.args[0], (place, start * inner, stop * inner))
    if node.target in ("flatten", torch.flatten):
        return push.again(node, given)
    sizes = list(node.args[1] if isinstance(node.args[1], (tuple, list)) else node.args[1:])
    if push.known(sizes[axis]) != -1:
        sizes[axis] = stop - start
    return push.graph.create_node(node.op, node.target, (given, tuple(sizes)))


def _joined(push: _Push, node: Node, part: Slice) -> Node | None:
    axis, _, stop = part
    pieces: Any = node.args[0]
    along = push.option(node, 1, "dim", 0) % len(push.shapes[node])
    if along != axis:
        return push.again(node, [push(piece, part) for piece in pieces])
    return push(pieces[0], part) if stop <= push.shapes[pieces[0]][axis] else None


def _item(push: _Push, node: Node, part: Slice) -> Node | None:
    """A slice of x[:, :, 1:], or of one of the parts that a tensor was split into."""
    given, index = node.args
    if given not in push.shapes:
        return _of_parts(push, node, part)
    if not isinstance(index, tuple) or not all(isinstance(place, slice) and place.step is None for place in index):
        return None
    axis, start, stop = part
    first = index[axis].start or 0 if axis < len(index) else 0
    if not isinstance(first, int) or first < 0:
        return None
    places = [slice(None) if place == axis else value for place, value in enumerate(index)]
    return push.again(node, push(given, (axis, first + start, first + stop)), tuple(places))


def _of_parts(push: _Push, node: Node, part: Slice) -> Node | None:
    given: Any = node.args[0]
    if given.op == "call_module":
        multihead = type(push.module.get_submodule(str(given.target))) is nn.MultiheadAttention and node.args[1] == 0
        return _multihead(push, given, part) if multihead else None
    if (bounds := _bounds(push, given, node.args[1])) is None:
        return None
    along = bounds[0]
    if given.target not in UNBINDS:
        return push(push(given.args[0], bounds), part)
    axis = part[0] + (part[0] >= along)
    return push.graph.call_method("squeeze", (push(push(given.args[0], bounds), (axis, *part[1:])), along))


UNBINDS = ("unbind", torch.unbind)


def _bounds(push: _Push, parts: Node, number: Any) -> Slice | None:
    """Which slice of a tensor the part of that number is."""
    if parts.target not in (*UNBINDS, "chunk", torch.chunk, "split", torch.split) or not isinstance(number, int):
        return None
    along = push.option(parts, 1 if parts.target in UNBINDS else 2, "dim", 0) % len(push.shapes[parts.args[0]])
    if parts.target in UNBINDS:
        return along, number, number + 1
    sizes = [value.shape[along] for value in push.values[parts]]
    return along, sum(sizes[:number]), sum(sizes[: number + 1])


def _parts_alone(push: _Push, parts: Node) -> None:
    """Where not all parts of a tensor are used, make only those that are: k and v of q, k, v."""
    users = list(parts.users)
    bounds = [_bounds(push, parts, user.args[1]) if user.target is operator.getitem else None for user in users]
    if not bounds or None in bounds:
        return
    (along, *_), *_ = known = [slices for slices in bounds if slices]
    first, last = min(start for _, start, _ in known), max(stop for _, _, stop in known)
    with push.graph.inserting_before(parts):
        given: Any = parts.args[0]
        fewer = push(given, (along, first, last))
        if fewer is given or (fewer.target is operator.getitem and fewer.args[0] is given):
            return
        unbound = push.graph.call_method("unbind", (fewer, along)) if parts.target in UNBINDS else None
        for user, (_, start, stop) in zip(users, known, strict=True):
            place = _index(along, slice(start - first, stop - first)) if unbound is None else start - first
            user.replace_all_uses_with(push.graph.call_function(operator.getitem, (unbound or fewer, place)))


WRITTEN_ANEW = {operator.iadd: operator.add, operator.imul: operator.mul}  # a slice is not written on
RULES: dict[Any, Rule] = {
    **dict.fromkeys((torch.sigmoid, torch.tanh, torch.relu, F.relu, F.gelu, F.silu, F.dropout, operator.neg), _each),
    **dict.fromkeys(("contiguous", "clone", "to", "float", "type_as", "sigmoid", "tanh", "relu"), _each),
    **dict.fromkeys((nn.Dropout, nn.Identity, nn.GELU, nn.ReLU, nn.SiLU, nn.Sigmoid, nn.Tanh), _each),
    **dict.fromkeys((operator.add, operator.sub, operator.mul, operator.truediv, torch.add, torch.mul), _pair),
    **dict.fromkeys(WRITTEN_ANEW, _pair),
    **dict.fromkeys((nn.LayerNorm, F.layer_norm), _norm),
    **dict.fromkeys((F.softmax, torch.softmax, "softmax"), _softmax),
    **dict.fromkeys((operator.matmul, torch.matmul, torch.bmm, "matmul"), _product),
    **dict.fromkeys((nn.Linear, F.linear), _linear),
    **dict.fromkeys(("transpose", torch.transpose, "permute", torch.permute), _moved),
    **dict.fromkeys(("reshape", torch.reshape, "view", "flatten", torch.flatten), _reshaped),
    **dict.fromkeys((torch.cat, torch.concat), _joined),
    F.scaled_dot_product_attention: _attention,
    operator.getitem: _item,
}
