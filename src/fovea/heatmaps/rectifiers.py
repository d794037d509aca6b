"""A copy of a network whose rectifiers can be listened to: what guided backpropagation and DeepLIFT put hooks on."""

import copy
from dataclasses import replace
from typing import Any, cast

import torch
from torch import fx, nn
from torch.nn import functional as F

from fovea.basics import DoesNotApply
from fovea.heatmaps.look import Look
from fovea.networks import Network, alone, traced


class Capped(nn.Sequential):
    """ReLU6 as a ReLU and what cuts it off: 6 - ReLU(6 - ReLU(x)), or a clamp, whose gradient is as it is."""

    def __init__(self, exact: bool) -> None:
        super().__init__(nn.ReLU(), *([_From6(), nn.ReLU(), _From6()] if exact else [nn.Hardtanh(0, 6)]))


class _From6(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 6 - x


FUNCTIONS = {torch.relu, torch.relu_, F.relu, F.relu_, F.relu6}
METHODS = {"relu", "relu_"}


def with_rectifiers(look: Look, exact: bool) -> nn.Module:
    """A copy that shares the weights, in which every use of a ReLU or ReLU6 is a layer of its own, not in place. Of a
    network that cannot be traced, the layers it has."""
    network = cast(Network, look.network)
    memo: dict[int, Any] = {id(value): value for value in (*network.module.parameters(), *network.module.buffers())}
    try:
        other: nn.Module = copy.deepcopy(network.module, memo)
    except Exception as error:  # a module of the user's that keeps what cannot be copied
        raise DoesNotApply(f"this method works on a copy of the network, which cannot be copied: {error}") from None
    with alone(network.device):
        graph = traced(other)
    if graph is not None and _is_same(replace(network, module=_apart(graph)), look):
        other = graph
    for parent in list(other.modules()):
        for name, child in parent.named_children():
            if type(child) in (nn.ReLU, nn.ReLU6):
                setattr(parent, name, nn.ReLU() if type(child) is nn.ReLU else Capped(exact))
    if not any(type(layer) is nn.ReLU for layer in other.modules()):
        raise DoesNotApply("this method works on ReLU layers, and the network has none: use smoothgrad or gradcam")
    return other


def _is_same(network: Network, look: Look) -> bool:
    """Tracing may have taken another branch than the network takes; and what can be traced cannot always be run."""
    try:
        output = network(look.input[:1])
    except Exception:
        return False
    return torch.allclose(output, look.output[:1], rtol=1e-3, atol=1e-4, equal_nan=True)


def _apart(graph: fx.GraphModule) -> fx.GraphModule:
    """Every use of a rectifier calls a layer of its own."""
    layers: dict[str, Any] = dict(graph.named_modules())
    for number, node in enumerate(list(graph.graph.nodes)):
        kind = None
        if node.op == "call_module" and type(layers[node.target]) in (nn.ReLU, nn.ReLU6):
            kind = type(layers[node.target])
        elif (node.op == "call_function" and node.target in FUNCTIONS) or (
            node.op == "call_method" and node.target in METHODS
        ):
            kind = nn.ReLU6 if node.target is F.relu6 else nn.ReLU
        if kind is not None:
            graph.add_submodule(f"rectifier{number}", kind())
            node.op, node.target, node.args, node.kwargs = "call_module", f"rectifier{number}", node.args[:1], {}
    graph.recompile()
    return graph
