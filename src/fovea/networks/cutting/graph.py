"""Cut a traced module: its graph split at a node into input to features, and features to output."""

import operator
from typing import Any

import torch
from torch import Tensor, fx, nn

from fovea.basics import FoveaError
from fovea.networks.cutting.choosing import POOLS, choose, stirred
from fovea.networks.cutting.parts import Cut, need_space
from fovea.networks.cutting.splitting import split
from fovea.networks.cutting.tracing import traced, unchanged
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
            node = _last_map(network, graph, values, batch)
            if node is None:
                node = _last_map(network, graph, _Recorder(stirred(graph)).record(batch), batch)
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
    made = split(network, graph, node, values, batch)
    if made is None:
        return None
    enter, rest = made
    return Cut(_layer_name(node), "graph", enter, unchanged(network.module, graph, rest))


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


def _last_map(network: Runnable, traced: fx.GraphModule, values: dict[fx.Node, Any], batch: Tensor) -> fx.Node | None:
    nodes = list(traced.graph.nodes)
    ends = nodes[-1].all_input_nodes
    steps = [
        (node, values[node], _is_projection(traced, node))
        for node in nodes
        if (node.op in ("call_module", "call_function") or node.meta.get("layers"))
        and node not in ends
        and not _is_pooling(traced, node)
    ]
    return choose(steps, network.read(values[nodes[-1]]), batch, network.can("pixels"))


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
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), nn.Linear)
    return node.target is nn.functional.linear


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
