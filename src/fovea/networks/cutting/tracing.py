"""A module as a graph, followed in one thread without a trace left on it."""

import threading
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from torch import fx, nn

from fovea.networks.checking import inside
from fovea.networks.cutting.currency import runs_whole


class Tracer(fx.Tracer):
    """Follows one thread. While it does, torch has every module of the process call it: those of other threads go on
    as they would without it."""

    def __init__(self, method: str = "forward") -> None:
        from timm.models._features_fx import get_notrace_functions

        super().__init__(autowrap_functions=tuple(get_notrace_functions()))
        self.traced_func_name, self.thread = method, threading.get_ident()

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


def traced(module: nn.Module, tracer: Tracer | None = None) -> fx.GraphModule | None:
    """The module as a graph, if it can be followed. For one thread at a time: `alone`."""
    # a traced forward leaves constants, and whatever it keeps on itself, behind
    before = [(vars(layer), dict(vars(layer))) for layer in module.modules()]
    try:
        return fx.GraphModule(module, (tracer or Tracer()).trace(module))
    except Exception:  # control flow on values, loops over frames, ...: not traceable
        return None
    finally:
        for now, then in before:
            for name in now.keys() - then.keys():
                del now[name]
            now.update((name, value) for name, value in then.items() if now.get(name) is not value)


def unchanged(module: nn.Module, *graphs: fx.GraphModule) -> Callable[[], bool]:
    """Tells whether the tensors that graphs read by name are still the module's own (moving a module replaces its
    buffers), and the layers that they call run what their class says."""
    nodes = [(n, graph) for graph in graphs for n in graph.graph.nodes]
    names = {str(n.target): graph for n, graph in nodes if n.op == "get_attr"}
    read = [(name, attrgetter(name)(graph)) for name, graph in names.items() if not name.startswith("_tensor_constant")]
    called = [vars(graph.get_submodule(str(n.target))) for n, graph in nodes if n.op == "call_module"]
    replaced = sum("forward" in layer for layer in called)

    def same() -> bool:
        kept = all(attrgetter(name)(module) is value for name, value in read)
        return kept and sum("forward" in layer for layer in called) == replaced

    return same
