"""A graph as one plain function. On a GPU a small batch waits for Python, and a third of that is calling layers."""

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, fx, nn

from fovea.networks.cutting.tracing import Tracer, traced, unchanged
from fovea.networks.running import layers
from fovea.networks.threads import hooked

PASSING = {nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d}  # in eval mode they pass all on


def lean(traced: fx.GraphModule) -> Callable[..., Any]:
    """What the graph gives, in eval mode: layers that nobody listens to are their `forward`, others are called."""
    graph, copied = fx.Graph(), dict[fx.Node, fx.Node]()
    named, called = dict[str, Any](), dict[str, Any]()
    for n in traced.graph.nodes:
        target = str(n.target)
        value: Any = attrgetter(target)(traced) if n.op in ("call_module", "get_attr") else None
        bare = n.op == "call_module" and value._compiled_call_impl is None and not hooked([value])
        if bare and type(value) in PASSING and len(n.args) == 1 and not n.kwargs:
            copied[n] = copied[n.args[0]]
            continue
        copied[n] = graph.node_copy(n, lambda m: copied[m])
        if n.op in ("call_module", "get_attr"):
            name = f"v{len(named)}"
            copied[n].target = name
            named[name], called[name] = value, value.forward if bare else value
    run: Any = type(fx.GraphModule(named, graph)).forward
    return partial(run, SimpleNamespace(**called))


def lean_method(module: nn.Module, method: str, batch: Tensor) -> tuple[Callable[..., Any], Callable[[], bool]] | None:
    """A method of a module so, and whether the module still is what it was; None where that is not the same."""
    graph = None if method in vars(module) or hooked(layers(module)) else traced(module, Tracer(method))
    if graph is None:
        return None
    run, twice = lean(graph), torch.cat([batch, batch])
    try:
        with torch.no_grad():
            same = torch.allclose(run(twice), getattr(module, method)(twice), rtol=1e-4, atol=1e-5, equal_nan=True)
    except Exception:  # what can be traced cannot always be run
        return None
    return (run, unchanged(module, graph)) if same else None
