"""The affine beginning of a head as a stage of its own, such as the first linear layer after VGG's features.

With f on the features it gives y0 + sum_p f_p y_p: a search for f runs it once for every cell, and not at every step.
"""

from operator import attrgetter
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn

from fovea.networks.cutting.heads import Stages
from fovea.networks.cutting.tracing import Tracer, traced
from fovea.networks.threads import alone

_WEIGHTED = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_POOLED = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
_AFFINE: set[Any] = {*_WEIGHTED, *_POOLED, nn.Flatten, nn.Identity, nn.Dropout, nn.Dropout2d, nn.Dropout3d}
_AFFINE |= {torch.flatten, F.dropout, F.adaptive_avg_pool1d, F.adaptive_avg_pool2d, F.adaptive_avg_pool3d, F.avg_pool2d}
_AFFINE |= {"flatten", "reshape", "view", "mean", "permute", "transpose", "contiguous"}


def stages(module: fx.GraphModule) -> Stages | None:
    """The graph of a head (its first placeholder are the features) at the last node that is affine in the features and
    through which alone they reach the output; None where no weights come before it, or nothing after."""
    module.graph.eliminate_dead_code()
    nodes = list(module.graph.nodes)
    reached, affine, weighted, last = {nodes[0]}, {nodes[0]}, set[fx.Node](), None
    for place, node in enumerate(nodes[1:-1], 1):
        given = [n for n in node.all_input_nodes if n in reached]
        if not given:
            continue
        reached.add(node)
        target: Any = type(module.get_submodule(str(node.target))) if node.op == "call_module" else node.target
        if target not in _AFFINE or len(given) != 1 or given[0] not in affine or node.all_input_nodes != given:
            continue
        affine.add(node)
        if target in _WEIGHTED or given[0] in weighted:
            weighted.add(node)
            later = set(nodes[place + 1 :])
            if not any(user in later for n in reached - {node} for user in n.users):
                last = node
    if last is None or last in nodes[-1].all_input_nodes:
        return None
    first, second = fx.Graph(), fx.Graph()
    place, copied, renamed = nodes.index(last), dict[fx.Node, fx.Node](), dict[fx.Node, fx.Node]()
    for n in nodes[: place + 1]:
        if n in affine:
            copied[n] = first.node_copy(n, lambda m: copied[m])
    first.output(copied[last])
    renamed[last] = second.placeholder("folded")
    for n in nodes[1:]:
        if n not in affine:
            renamed[n] = second.node_copy(n, lambda m: renamed[m])
    return Stages(fx.GraphModule(module, first).forward, fx.GraphModule(module, second).forward)


def stages_of_method(module: nn.Module, name: str, features: Tensor) -> Stages | None:
    """The same of a method of a module that takes features."""
    with alone(features.device), torch.no_grad():
        graph = traced(module, _HeadTracer(name, features[:1]))
    return None if graph is None else stages(graph)


class _HeadTracer(Tracer):
    """Goes into the layers of other libraries, and takes the branches that features of this shape take."""

    def __init__(self, name: str, features: Tensor) -> None:
        super().__init__(name)
        self.features = features

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        hooked = bool(m._forward_hooks or m._forward_pre_hooks)
        return hooked or fx.Tracer.is_leaf_module(self, m, module_qualified_name)

    def to_bool(self, obj: fx.Proxy) -> bool:
        return bool(self._value(obj.node))

    def _value(self, value: Any) -> Any:
        if not isinstance(value, fx.Node):
            return value
        if value.op == "placeholder":
            return value.args[0] if value.args else self.features
        target: Any = value.target
        args, kwargs = fx.node.map_arg((value.args, value.kwargs), self._value)
        if value.op == "get_attr":
            return attrgetter(str(value.target))(self.root)
        if value.op == "call_module":
            return self.root.get_submodule(str(value.target))(*args, **kwargs)
        return getattr(args[0], target)(*args[1:]) if value.op == "call_method" else target(*args, **kwargs)
