"""Cut a traced module: its graph split at a node into input to features, and features to output."""

import operator
import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, fx, nn

from fovea.basics import FoveaError
from fovea.networks.checking import inside
from fovea.networks.cutting.choosing import POOLS, choose, stirred
from fovea.networks.cutting.currency import runs_whole
from fovea.networks.cutting.parts import Cut, Enter, Head, SecondPart, Trunk, need_space, root, version
from fovea.networks.running import Runnable


def graph_cut(network: Runnable, batch: Tensor, layer: str | None) -> Cut | None:
    """Split the traced module at a node: the layer's last one, or the last spatial map."""
    graph = traced(network.module)
    if graph is None:
        return None
    nodes = list(graph.graph.nodes)
    try:
        values = _Recorder(graph).record(batch)
        if layer is not None:
            node = _node_of_layer(nodes, layer)
        else:
            node = _last_map(network, graph, nodes, values, batch)
            if node is None:
                node = _last_map(network, graph, nodes, _Recorder(stirred(graph)).record(batch), batch)
    except FoveaError:
        raise
    except Exception:  # what can be graph cannot always be run
        return None
    if node is None or not isinstance(values.get(node), Tensor):
        return None
    if layer is not None:
        need_space(layer, values[node], batch)
    if batch.ndim == 5 and batch.shape[1] > 1 and values[node].ndim == 4 and len(values[node]) == len(batch):
        return None  # one frame of a loop, unrolled: the hook counts the calls
    enter = _split(network, graph, node, values, batch)
    # tracing may have taken another branch than the network takes
    if not torch.allclose(enter(batch, False)[1], network(batch), rtol=1e-3, atol=1e-4, equal_nan=True):
        return None
    return Cut(_layer_name(node), "graph", enter, _unchanged(network.module, graph))


def _unchanged(module: nn.Module, traced: fx.GraphModule) -> Callable[[], bool]:
    """Are the tensors that the graph reads by name still the module's own? Moving a module replaces its buffers."""
    names = {str(n.target) for n in traced.graph.nodes if n.op == "get_attr"}
    read = [(name, attrgetter(name)(traced)) for name in names if not name.startswith("_tensor_constant")]

    def unchanged() -> bool:
        return all(attrgetter(name)(module) is value for name, value in read)

    return unchanged


class _Tracer(fx.Tracer):
    """Follows one thread. While it does, torch has every module of the process call it: those of other threads go on
    as they would without it."""

    def __init__(self) -> None:
        from timm.models._features_fx import get_notrace_functions

        super().__init__(autowrap_functions=tuple(get_notrace_functions()))
        self.thread = threading.get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return runs_whole(m) or bool(m._forward_hooks or m._forward_pre_hooks)  # whose hooks want tensors

    def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
        if threading.get_ident() != self.thread:
            return forward(*args, **kwargs)
        if (inner := inside(m)) is not m:  # a compiled layer is followed as it was written
            return inner(*args, **kwargs)
        out = super().call_module(m, m._call_impl if m._compiled_call_impl else forward, args, kwargs)
        if isinstance(out, fx.Proxy):
            out.node.meta.setdefault("layers", []).append(self.path_of_module(m))
        return out

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:
        if threading.get_ident() != self.thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def traced(module: nn.Module) -> fx.GraphModule | None:
    """The module as a graph, if it can be followed. For one thread at a time: `alone`."""
    # a traced forward leaves constants, and whatever it keeps on itself, behind
    before = [(vars(layer), dict(vars(layer))) for layer in module.modules()]
    try:
        return fx.GraphModule(module, _Tracer().trace(module))
    except Exception:  # control flow on values, loops over frames, ...: not traceable
        return None
    finally:
        for now, then in before:
            for name in now.keys() - then.keys():
                del now[name]
            now.update((name, value) for name, value in then.items() if now.get(name) is not value)


class _Recorder(fx.Interpreter):
    """Runs a graph and keeps what every node gave."""

    def record(self, batch: Tensor) -> dict[fx.Node, Any]:
        self.values: dict[fx.Node, Any] = {}
        self.run(batch.detach().clone().requires_grad_(batch.is_floating_point()))
        return self.values

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n] = value
        # a later in-place layer must not overwrite what is kept here
        return value.clone() if isinstance(value, Tensor) and n.op not in ("placeholder", "output") else value


def _last_map(
    network: Runnable, traced: fx.GraphModule, nodes: list[fx.Node], values: dict[fx.Node, Any], batch: Tensor
) -> fx.Node | None:
    ends = nodes[-1].all_input_nodes
    steps = [
        (node, values[node], _is_projection(traced, node))
        for node in nodes
        if (node.op in ("call_module", "call_function") or node.meta.get("layers"))
        and node not in ends
        and not _is_pooling(traced, node)
    ]
    found: fx.Node | None = choose(steps, network.read(values[nodes[-1]]), batch, network.can("pixels"))
    return found


_POOL_FUNCTIONS = {
    torch.flatten,
    operator.getitem,
    operator.matmul,
    torch.matmul,
    torch.bmm,
    torch.softmax,
    nn.functional.softmax,
    nn.functional.scaled_dot_product_attention,
    nn.functional.adaptive_avg_pool1d,
    nn.functional.adaptive_avg_pool2d,
    nn.functional.adaptive_avg_pool3d,
    nn.functional.dropout,
}


def _is_pooling(module: nn.Module, node: fx.Node) -> bool:
    """Steps that only pass on or pool the map before them (that one is to be looked at), or mix cells in attention."""
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), POOLS)
    return node.target in _POOL_FUNCTIONS


def _is_projection(module: nn.Module, node: fx.Node) -> bool:
    return node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), nn.Linear)


def _node_of_layer(nodes: list[fx.Node], layer: str) -> fx.Node | None:
    """The node that holds the layer's output."""
    for node in reversed(nodes):
        if layer in node.meta.get("layers", ()) or (node.op == "call_module" and node.target == layer):
            return node
    return None


def _layer_name(node: fx.Node) -> str:
    if node.meta.get("layers"):
        return str(node.meta["layers"][-1])
    earlier = node.prev
    while earlier.op != "root" and not earlier.meta.get("layers"):
        earlier = earlier.prev
    return f"{node.name} after {earlier.meta['layers'][-1]}" if earlier.op != "root" else str(node.name)


def _split(
    network: Runnable, traced: fx.GraphModule, node: fx.Node, values: dict[fx.Node, Any], batch: Tensor
) -> Enter:
    """Two graph modules: input to (features, what else the rest needs), and those two to the output."""
    nodes = list(traced.graph.nodes)
    place = nodes.index(node)
    before, after = set(nodes[: place + 1]), nodes[place + 1 :]
    constants = {n for n in before if n.op == "get_attr"}
    needed = [n for n in nodes[:place] if n not in constants and any(user not in before for user in n.users)]

    first, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    for n in nodes[: place + 1]:
        copied[n] = first.node_copy(n, lambda m: copied[m])
    first.output((copied[node], tuple(copied[n] for n in needed)))

    second, renamed = fx.Graph(), dict[fx.Node, fx.Node]()
    renamed[node] = second.placeholder("features")
    for n in needed:
        renamed[n] = second.placeholder(f"also_{n.name}")
    for n in [*(n for n in nodes[:place] if n in constants), *after]:
        renamed[n] = second.node_copy(n, lambda m: renamed[m])

    start, rest = fx.GraphModule(traced, first).forward, fx.GraphModule(traced, second).forward
    try:
        of_rows, written = _tried(start, rest, batch, [values[n] for n in (node, *needed)])
    except Exception:  # it takes one picture at a time, or hands over what cannot be compared
        of_rows, written = None, tuple(isinstance(values[n], Tensor) for n in (node, *needed))

    def enter(batch: Tensor, differentiable: bool) -> tuple[Tensor, Tensor, Head, Trunk, bool]:
        def run() -> tuple[Tensor, tuple[Any, ...]]:
            with torch.set_grad_enabled(differentiable):
                features, also = start(batch)
            return features, also

        features, also = run()
        head = SecondPart(rest, network.read, also, of_rows, written)
        rooted = root(features, differentiable)
        return rooted, head(rooted), head, lambda: run()[0], not needed

    return enter


def _tried(
    start: Callable[..., Any], rest: Callable[..., Any], batch: Tensor, alone: list[Any]
) -> tuple[tuple[bool, ...] | None, tuple[bool, ...]]:
    """On the batch twice: which values have a row per sample (the first are the features), and which are written on."""
    with torch.no_grad():
        features, also = start(torch.cat([batch, batch]))
        given = (features, *also)
        before = [version(value) for value in given]
        rest(*given)
        written = tuple(version(value) != number for value, number in zip(given, before, strict=True))
    sizes = [(_size(one), _size(two)) for one, two in zip(alone, given, strict=True)]
    by_row = [one != two for one, two in sizes]
    rows = len(alone[0])
    doubled = all(two == (2 * rows, *one[1:]) and one[0] == rows for one, two in sizes if one != two)
    return tuple(by_row[1:]) if doubled and by_row[0] else None, written


def _size(value: Any) -> tuple[Any, ...]:
    """What tells a value of one picture from that of two."""
    return tuple(value.shape) if isinstance(value, Tensor) else ("", value)
