"""A traced graph as two: input to features, and features to output."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, fx

from fovea.networks.cutting.folding import stages
from fovea.networks.cutting.heads import Head, SecondPart
from fovea.networks.cutting.lean import lean
from fovea.networks.cutting.parts import Enter, Trunk, alike, root, version
from fovea.networks.cutting.recorded import first_part
from fovea.networks.cutting.tokens import read_rows_alone
from fovea.networks.running import Runnable, layers
from fovea.networks.threads import hooked

Values = dict[fx.Node, Any]  # what nodes give
Split = tuple[Enter, fx.GraphModule]


@dataclass(frozen=True)
class _Rest:
    """The second graph, and what it reads beside the features: the numbers of values, and an index (None: all)."""

    graph: fx.GraphModule
    reads: tuple[tuple[int, Any], ...]

    def also(self, values: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(values[number] if index is None else values[number][index] for number, index in self.reads)


def split(network: Runnable, traced: fx.GraphModule, node: fx.Node, values: Values, batch: Tensor) -> Split | None:
    """How to enter the graph at a node, and the graph after it; None where it takes another branch than the network.
    `values` are what the nodes give for the batch of one picture."""
    nodes = list(traced.graph.nodes)
    place = nodes.index(node)
    before = set(nodes[: place + 1])
    needed = [n for n in nodes[:place] if n.op != "get_attr" and any(user not in before for user in n.users)]
    first, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    for n in nodes[: place + 1]:
        copied[n] = first.node_copy(n, lambda m: copied[m])
    first.output((copied[node], tuple(copied[n] for n in needed)))
    start, rest = lean(fx.GraphModule(traced, first)), _second(traced, node, needed, values, fewer=False)
    known, of_rows, output = [values[n] for n in needed], None, None
    with torch.no_grad():
        expected = network(batch)
    try:
        with torch.no_grad():
            features, given = start(torch.cat([batch, batch]))
        if not hooked(layers(network.module)):
            rest = _shorter(network, rest, _second(traced, node, needed, values, fewer=True), features, given)
        written, both = _written(rest, features, given)
        output = network.read(both).chunk(2)[0]
        of_rows = _of_rows([values[node], *rest.also(known)], [features, *rest.also(given)])
    except Exception:  # it takes one picture at a time, or hands over what cannot be compared
        written = tuple(isinstance(value, Tensor) for value in (values[node], *rest.also(known)))
    run, prepared = lean(rest.graph), cache(partial(stages, rest.graph))

    def first_values(batch: Tensor) -> tuple[Tensor, Sequence[Any]]:
        features, given = start(batch)
        return features, rest.also(given)

    begin = first_part(network, first_values)

    def enter(batch: Tensor, differentiable: bool) -> tuple[Tensor, Tensor, Head, Trunk, bool]:
        def trunk() -> tuple[Tensor, Sequence[Any]]:
            with torch.set_grad_enabled(differentiable):
                return begin(batch)

        features, also = trunk()
        features = root(features, differentiable)
        head = SecondPart(run, network.read, tuple(also), of_rows, written, lambda _: prepared())
        return features, head(features), head, lambda: trunk()[0], not rest.reads

    output = enter(batch, False)[1] if output is None else output
    return (enter, rest.graph) if alike(output, expected) else None


def _second(traced: fx.GraphModule, node: fx.Node, needed: list[fx.Node], values: Values, fewer: bool) -> _Rest:
    """What comes after a node; `fewer` for the rows alone that the output reads."""
    second, renamed = fx.Graph(), dict[fx.Node, fx.Node]()
    renamed[node] = second.placeholder("features")
    for n in needed:
        renamed[n] = second.placeholder(f"also_{n.name}")
    nodes = list(traced.graph.nodes)
    place = nodes.index(node)
    for n in [*(n for n in nodes[:place] if n.op == "get_attr"), *nodes[place + 1 :]]:
        renamed[n] = second.node_copy(n, lambda m: renamed[m])
    if fewer:
        read_rows_alone(traced, second, {renamed[n]: value for n, value in values.items() if n in renamed})
    reads = []
    for number, given in enumerate(renamed[n] for n in needed):
        indices = [user.args[1] if user.target is operator.getitem else None for user in given.users]
        if fewer and indices and isinstance(indices[0], tuple) and all(index == indices[0] for index in indices):
            for user in list(given.users):
                user.replace_all_uses_with(given)
                second.erase_node(user)
        else:
            indices = [None]
        if given.users or not fewer:
            reads.append((number, indices[0]))
        else:
            second.erase_node(given)
    return _Rest(fx.GraphModule(traced, second), tuple(reads))


def _shorter(network: Runnable, rest: _Rest, fewer: _Rest, features: Tensor, given: Sequence[Any]) -> _Rest:
    """The graph with fewer rows, if it gives the same, and the same gradients, for these features and for others."""
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(features.shape, generator=generator).to(features)
    results = []
    for each in (rest, fewer):
        with torch.enable_grad():
            root = (features * (0.5 + noise)).requires_grad_()
            output = network.read(each.graph(root.clone(), *(_copied(value) for value in each.also(given))))
            weights = torch.linspace(-1, 1, output.numel()).view(output.shape).to(output)
            results.append((output.detach(), *torch.autograd.grad(output, root, weights)))
    far = max(float((a - b).abs().max() / a.abs().max()) for a, b in zip(*results, strict=True))
    exact = features.device.type == "cpu" and features.dtype in (torch.float32, torch.float64)
    return fewer if far < (1e-4 if exact else 0.02) else rest  # a GPU may multiply in fewer bits


def _copied(value: Any) -> Any:
    return value.clone() if isinstance(value, Tensor) else value


def _written(rest: _Rest, features: Tensor, given: Sequence[Any]) -> tuple[tuple[bool, ...], Any]:
    """Does it write in place on the features, and on what else it reads? And what it gives."""
    values = [_copied(value) for value in (features, *rest.also(given))]
    with torch.no_grad():
        result = rest.graph(*values)
    return tuple(version(value) > 0 for value in values), result


def _of_rows(alone: Sequence[Any], twice: Sequence[Any]) -> tuple[bool, ...] | None:
    """Which values beside the features have a row per sample, from those of one picture and of two; None if some are
    of another kind."""
    by_row = list[bool]()
    for one, two in zip(alone, twice, strict=True):
        if isinstance(one, Tensor) and one.shape != two.shape:
            if len(one) != len(alone[0]) or two.shape != (2 * len(one), *one.shape[1:]):
                return None
            by_row.append(True)
        elif isinstance(one, Tensor) or one == two:
            by_row.append(False)
        else:
            return None
    return tuple(by_row[1:]) if by_row[0] else None
