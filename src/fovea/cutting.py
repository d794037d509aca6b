"""Cut a network into trunk and head: find the layer, run the trunk once, run the head as often as needed.

Three ways to cut, tried in this order: timm's own `forward_features` / `forward_head`; a graph of the traced module
split at a node; a hook that takes a layer's output out of the running network and puts another in its place.
"""

import copy
import math
import operator
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from fovea.errors import BadChoice, BadNetwork, nearest
from fovea.network import Network, layers

Head = Callable[[Tensor], Tensor]
Trunk = Callable[[], Tensor]
# a batch, and whether gradients shall reach the trunk, to: features, output, head, trunk, any number of samples?
Enter = Callable[[Tensor, bool], tuple[Tensor, Tensor, Head, Trunk, bool]]
MOST_STRETCH = math.log(4.01)  # a map whose proportions are further from the input's is none
MOST_PREFIX = 8  # class, distillation and register tokens before the patch tokens


@dataclass(frozen=True)
class Layout:
    """Where the cells and the channels of a feature tensor are."""

    kind: Literal["channels first", "channels last", "tokens"]
    grid: tuple[int, ...]
    prefix: int = 0

    @property
    def cells(self) -> int:
        return math.prod(self.grid)

    def by_cell(self, features: Tensor) -> Tensor:
        """The features as B,k,P: samples, channels, cells."""
        if self.kind == "channels first":
            return features.flatten(2)
        if self.kind == "channels last":
            return features.flatten(1, -2).transpose(1, 2)
        return features[:, self.prefix :].transpose(1, 2)

    def times(self, features: Tensor, f: Tensor) -> Tensor:
        """Every cell multiplied by its own number; f is B,P. Tokens before the patches pass as they are."""
        f = f.to(features.dtype)
        if self.kind == "channels first":
            return features * f.view(-1, 1, *self.grid)
        if self.kind == "channels last":
            return features * f.view(-1, *self.grid, 1)
        ones = f.new_ones(len(f), self.prefix)
        return features * torch.cat([ones, f], dim=1).unsqueeze(-1)


@dataclass(frozen=True)
class Opened:
    """A batch inside a cut network: features at the cut, the output they give, and the head to try other features on."""

    features: Tensor  # B,... where B is N, or N*T when the network looks at T frames one by one
    output: Tensor  # N,...  connected to `features`
    head: Head
    trunk: Trunk  # the trunk once more, for the whole-network path
    layout: Layout
    frames: int | None  # T, or None when the input has no frames
    whole: bool  # the head cannot be run alone: each call runs the whole network
    free: bool  # the head takes any number of samples


@dataclass(frozen=True)
class Cut:
    """A network divided at one layer."""

    layer: str
    how: Literal["timm", "graph", "hook"]
    enter: Enter
    time_first: bool = False  # frames are folded as T,N instead of N,T

    def open(self, batch: Tensor, differentiable: bool = False) -> Opened:
        features, output, head, trunk, free = self.enter(batch, differentiable)
        frames = _frames(features, batch)
        if frames and self.time_first:
            features, head, trunk = _picture_first(features, head, trunk, len(batch), frames)
            output = head(features)
        layout = layout_of(features, batch)
        if layout is None or layout.cells < 1:
            raise BadChoice(f"layer {self.layer!r} gives {tuple(features.shape)}: no spatial map to look at")
        return Opened(features, output, head, trunk, layout, frames, self.how == "hook", free)


def cut(
    network: Network, batch: Tensor, layer: str | nn.Module | None = None, parts: Sequence[nn.Module] | None = None
) -> Cut:
    """Where to look at this network: at the layer named, or at the last map whose cells the output still depends on."""
    layer = layer if layer is not None else network.layer
    key = (layer, batch.ndim, tuple(map(id, parts or layers(network.module))))  # a replaced layer makes a new cut
    if key not in network._cuts:
        if len(network._cuts) > 8:
            network._cuts.clear()
        made = _cut(network, batch[:1], layer)
        network._cuts[key] = replace(made, time_first=batch.ndim == 5 and _folds_time_first(made, batch))
    return network._cuts[key]


def _cut(network: Network, batch: Tensor, layer: str | nn.Module | None) -> Cut:
    if layer is not None:
        name = _name_of(network.module, layer)
        return _graph_cut(network, batch, name) or _checked_hook(network, batch, name)
    return _timm_cut(network, batch) or _graph_cut(network, batch, None) or _hook_cut_anywhere(network, batch)


def _name_of(module: nn.Module, layer: str | nn.Module) -> str:
    names = dict(module.named_modules())
    if isinstance(layer, nn.Module):
        for name, one in names.items():
            if one is layer:
                return name
        raise BadChoice(f"the layer given ({type(layer).__name__}) is not part of this network")
    if layer not in names or layer == "":
        raise BadChoice(f"no layer {layer!r} in {type(module).__name__}{nearest(layer, filter(None, names))}")
    return layer


# Layouts


def layout_of(features: Tensor, batch: Tensor, grids: Sequence[tuple[int, ...]] = ()) -> Layout | None:
    """Read off the shapes which axes are space: the ones whose proportions are the input's."""
    space = tuple(batch.shape[-(features.ndim - 2) :]) if features.ndim > 2 else ()
    shape = tuple(features.shape)
    if features.ndim == 3 and batch.ndim >= 4:
        return _token_layout(shape[1], tuple(batch.shape[-2:]), grids)
    if features.ndim < 3 or features.ndim > batch.ndim:
        return None
    first, last = shape[2:], shape[1:-1]
    if _stretch(last, space) < _stretch(first, space) - 1e-6:
        return Layout("channels last", last)
    return Layout("channels first", first)


def _stretch(grid: Sequence[int], space: Sequence[int]) -> float:
    """How far a grid is from the input's proportions."""
    ratios = [math.log(s / g) for g, s in zip(grid, space, strict=True)]
    return max(ratios) - min(ratios) if len(ratios) > 1 else max(0.0, -ratios[0])


def _token_layout(length: int, space: tuple[int, int], grids: Sequence[tuple[int, ...]]) -> Layout | None:
    for prefix in range(min(MOST_PREFIX, length - 1) + 1):
        cells = length - prefix
        for h in sorted({round(math.sqrt(cells * space[0] / space[1]) + d) for d in (-1, 0, 1)}):
            if h > 0 and cells % h == 0 and abs(math.log((space[0] / h) / (space[1] / (cells // h)))) < 0.25:
                grid = (h, cells // h)
                if cells > 1 and (not grids or grid in grids):
                    return Layout("tokens", grid, prefix)
    return None


def _frames(features: Tensor, batch: Tensor) -> int | None:
    """T when a N,T,C,H,W batch reaches the cut as N*T pictures."""
    if batch.ndim == 5 and features.ndim in (3, 4) and len(features) == len(batch) * batch.shape[1]:
        return batch.shape[1]
    if len(features) != len(batch):
        raise BadNetwork(
            f"the layer sees {len(features)} samples for {len(batch)} pictures: name one that sees each picture once"
        )
    return None


def _folds_time_first(made: Cut, batch: Tensor) -> bool:
    """Does the network fold N,T frames as T*N? One clip alone and the same clip beside another tell."""
    frames = batch.shape[1]
    with torch.no_grad():
        alone = made.enter(batch[:1], False)[0]
        if len(alone) != frames or frames == 1:
            return False
        beside = made.enter(torch.cat([batch[:1], torch.zeros_like(batch[:1])]), False)[0]
    picture_first, time_first = beside[:frames], beside[::2]
    return bool((time_first - alone).abs().sum() < (picture_first - alone).abs().sum())


def _picture_first(
    features: Tensor, head: Head, trunk: Trunk, samples: int, frames: int
) -> tuple[Tensor, Head, Trunk]:
    def swap(value: Tensor, a: int, b: int) -> Tensor:
        return value.unflatten(0, (a, b)).transpose(0, 1).flatten(0, 1)

    turned = _root(swap(features, frames, samples), False)
    return turned, lambda own: head(swap(own, samples, frames)), lambda: swap(trunk(), frames, samples)


# timm's own cut


def _timm_cut(network: Network, batch: Tensor) -> Cut | None:
    module: Any = network.module
    if not (hasattr(module, "forward_features") and hasattr(module, "forward_head")):
        return None

    def head(features: Tensor) -> Tensor:
        return network.read(module.forward_head(features))

    def enter(batch: Tensor, differentiable: bool) -> tuple[Tensor, Tensor, Head, Trunk, bool]:
        def trunk() -> Tensor:
            with torch.set_grad_enabled(differentiable):
                return _one_map(module.forward_features(batch), "forward_features")

        features = _root(trunk(), differentiable)
        return features, head(features.clone()), head, trunk, True

    try:
        features, output, *_ = enter(batch, False)
        same = torch.allclose(output, network(batch), rtol=1e-3, atol=1e-4, equal_nan=True)
    except Exception:  # a network with its own idea of these methods: the graph knows better
        return None
    layout = layout_of(features, batch)
    if not same or layout is None or not _is_read(output, [features], batch)[0]:
        return None
    return Cut("forward_features", "timm", enter)


def _root(features: Tensor, differentiable: bool) -> Tensor:
    """A new root for the head's graph, so that none exists for the trunk."""
    if differentiable and features.requires_grad:
        return features
    return features.detach().requires_grad_()


def _one_map(value: Any, layer: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise BadChoice(f"layer {layer!r} gives a {type(value).__name__}, not one map: name a layer that gives a tensor")
    return value


def _is_read(output: Tensor, maps: Sequence[Tensor], batch: Tensor) -> list[bool]:
    """Does the output still depend on the cells of each map? (After a ViT's last block it reads the class token alone.)"""
    probe = torch.rand(output.shape, generator=torch.Generator().manual_seed(0)).to(output)
    grads = torch.autograd.grad(output, maps, probe, allow_unused=True, retain_graph=True)
    layouts = [layout_of(one, batch) for one in maps]
    return [
        grad is not None and layout is not None and bool(layout.by_cell(grad).ne(0).any())
        for grad, layout in zip(grads, layouts, strict=True)
    ]


# The graph cut


def _graph_cut(network: Network, batch: Tensor, layer: str | None) -> Cut | None:
    """Split the traced module at a node: the layer's last one, or the last spatial map."""
    graph = _trace(network.module)
    if graph is None:
        return None
    try:
        values = _Recorder(fx.GraphModule(network.module, graph)).record(batch)
    except Exception:
        return None
    nodes = list(graph.nodes)
    if layer is None:
        node = _last_map(network, nodes, values, batch)
        if node is None:
            other = _Recorder(fx.GraphModule(stirred(network.module), graph)).record(batch)
            node = _last_map(network, nodes, other, batch)
    else:
        node = _node_of_layer(nodes, layer)
    if node is None or not isinstance(values.get(node), Tensor):
        return None
    if layer is not None:
        _need_space(layer, values[node], batch)
    if batch.ndim == 5 and _calls(nodes, node) > 1:
        return None  # a loop over frames, unrolled: the hook counts the calls
    return Cut(_layer_name(node), "graph", _split(network, graph, node))


def _trace(module: nn.Module) -> fx.Graph | None:
    from timm.models._features_fx import get_notrace_functions, get_notrace_modules

    class Tracer(fx.Tracer):
        def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
            return isinstance(m, tuple(get_notrace_modules())) or super().is_leaf_module(m, module_qualified_name)

        def call_module(self, m: nn.Module, forward: Any, args: Any, kwargs: Any) -> Any:
            out = super().call_module(m, forward, args, kwargs)
            if isinstance(out, fx.Proxy):
                out.node.meta.setdefault("layers", []).append(self.path_of_module(m))
            return out

    try:
        return Tracer(autowrap_functions=tuple(get_notrace_functions())).trace(module)
    except Exception:  # control flow on values, loops over frames, ...: not traceable
        return None


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
    network: Network, nodes: list[fx.Node], values: dict[fx.Node, Any], batch: Tensor
) -> fx.Node | None:
    ends = nodes[-1].all_input_nodes
    steps = [
        (node, values[node], _is_projection(network.module, node))
        for node in nodes
        if (node.op in ("call_module", "call_function") or node.meta.get("layers"))
        and node not in ends
        and not _is_pooling(network.module, node)
    ]
    found: fx.Node | None = choose(steps, network.read(values[nodes[-1]]), batch)
    return found


def choose(steps: Sequence[tuple[Any, Any, bool]], output: Tensor, batch: Tensor) -> Any | None:
    """The last map still read; when the output is itself spatial (a segmentation, a reconstruction), the last narrowest.

    A step is (name, value, is a projection); a projection's output is no token stream (queries, keys, hidden units).
    """
    names, maps, grids, lengths = [], [], [tuple(batch.shape[-2:])], set()
    samples = {len(batch), len(batch) * batch.shape[1]} if batch.ndim == 5 else {len(batch)}
    for name, value, projection in steps:
        if not isinstance(value, Tensor) or not value.requires_grad or len(value) not in samples:
            continue
        layout = layout_of(value, batch, grids)
        if layout is None or layout.cells < 2 or (layout.kind == "tokens" and projection):
            continue
        if layout.kind == "tokens":
            lengths.add(value.shape[1])
        elif lengths & set(value.shape[1:]) or _stretch(layout.grid, batch.shape[-len(layout.grid) :]) > MOST_STRETCH:
            continue  # heads of an attention layer (one of its axes is the tokens), or windows laid out in a row
        grids.append(layout.grid)
        names.append(name)
        maps.append(value)
    if not maps:
        return None
    read = _is_read(output, maps, batch)
    kept = [(name, one) for name, one, is_read in zip(names, maps, read, strict=True) if is_read]
    if not kept:
        return None
    if output.ndim >= 3 and output.ndim == batch.ndim and math.prod(output.shape[2:]) > 1:
        cells = [layout.cells for _, one in kept if (layout := layout_of(one, batch))]
        kept = [pair for pair, count in zip(kept, cells, strict=True) if count == min(cells)]
    return kept[-1][0]


_POOLS = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d, nn.Dropout, nn.Dropout2d, nn.Identity)
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
    """Steps that only pass on or pool the map before them (that one is the map to look at), or mix cells as attention does."""
    if node.op == "call_module":
        return isinstance(module.get_submodule(str(node.target)), _POOLS)
    return node.target in _POOL_FUNCTIONS


def _is_projection(module: nn.Module, node: fx.Node) -> bool:
    return node.op == "call_module" and isinstance(module.get_submodule(str(node.target)), nn.Linear)


def _node_of_layer(nodes: list[fx.Node], layer: str) -> fx.Node | None:
    """The node that holds the layer's output."""
    for node in reversed(nodes):
        if layer in node.meta.get("layers", ()) or (node.op == "call_module" and node.target == layer):
            return node
    return None


def _calls(nodes: list[fx.Node], node: fx.Node) -> int:
    return sum(1 for other in nodes if node.op == "call_module" and other.target == node.target)


def _layer_name(node: fx.Node) -> str:
    if node.meta.get("layers"):
        return str(node.meta["layers"][-1])
    earlier = node.prev
    while earlier.op != "root" and not earlier.meta.get("layers"):
        earlier = earlier.prev
    return f"{node.name} after {earlier.meta['layers'][-1]}" if earlier.op != "root" else str(node.name)


def _split(
    network: Network, graph: fx.Graph, node: fx.Node
) -> Enter:
    """Two graph modules: input to (features, what else the rest needs), and those two to the output."""
    nodes = list(graph.nodes)
    place = nodes.index(node)
    before, after = set(nodes[: place + 1]), nodes[place + 1 :]
    constants = {n for n in before if n.op == "get_attr"}
    needed = [n for n in nodes[:place] if n not in constants and any(user not in before for user in n.users)]

    first, copied = fx.Graph(), {}
    for n in nodes[: place + 1]:
        copied[n] = first.node_copy(n, lambda m: copied[m])
    first.output((copied[node], tuple(copied[n] for n in needed)))

    second, renamed = fx.Graph(), {}
    renamed[node] = second.placeholder("features")
    for n in needed:
        renamed[n] = second.placeholder(f"also_{n.name}")
    for n in [*(n for n in nodes[:place] if n in constants), *after]:
        renamed[n] = second.node_copy(n, lambda m: renamed[m])

    start, rest = fx.GraphModule(network.module, first), fx.GraphModule(network.module, second)

    def enter(batch: Tensor, differentiable: bool) -> tuple[Tensor, Tensor, Head, Trunk, bool]:
        def run() -> tuple[Tensor, tuple[Any, ...]]:
            with torch.set_grad_enabled(differentiable):
                features, also = start.forward(batch)
            return features, also

        features, also = run()

        def head(features: Tensor) -> Tensor:
            # cloned, since the head may work in place and is run more than once
            own = [value.clone() if isinstance(value, Tensor) else value for value in also]
            return network.read(rest.forward(features, *own))

        root = _root(features, differentiable)
        return root, head(root.clone()), head, lambda: run()[0], not needed

    return enter


# The hook cut


def _checked_hook(network: Network, batch: Tensor, layer: str) -> Cut:
    result = _hook_cut(network, layer)
    with torch.no_grad():
        features = result.enter(batch, False)[0]
    _need_space(layer, features, batch)
    return result


def _need_space(layer: str, features: Any, batch: Tensor) -> None:
    layout = layout_of(_one_map(features, layer), batch)
    if layout is None or layout.cells < 2:
        raise BadChoice(
            f"layer {layer!r} gives {tuple(features.shape[1:])} per picture: no spatial extent to look at; "
            "name a layer before the pooling, or leave layer out to have one found"
        )


def _hook_cut_anywhere(network: Network, batch: Tensor) -> Cut:
    """Watch every layer once and take the last that gives a map the output still reads."""
    name = _last_watched(network, network.module, batch) or _last_watched(network, stirred(network.module), batch)
    if name is None:
        raise BadNetwork(
            f"no layer of {type(network.module).__name__} gives a spatial map that its output depends on; "
            "name one with layer=, or wrap a network that has one"
        )
    return _hook_cut(network, name)


def stirred(module: nn.Module) -> nn.Module:
    """A copy whose all-zero weights are random: a network not yet trained may have a last layer that reads nothing."""
    other = copy.deepcopy(module)
    generator = torch.Generator().manual_seed(0)
    for parameter in other.parameters():
        if parameter.ndim > 1 and not bool(parameter.any()):
            parameter.data.copy_(0.02 * torch.randn(parameter.shape, generator=generator))
    return other


def _last_watched(network: Network, module: nn.Module, batch: Tensor) -> str | None:
    seen: list[tuple[str, Tensor, bool]] = []
    handles = []
    for name, one in module.named_modules():
        if name and not isinstance(one, _POOLS):

            def keep(one: nn.Module, _: Any, out: Any, name: str = name) -> Tensor | None:
                if not isinstance(out, Tensor):
                    return None
                seen.append((name, out, isinstance(one, nn.Linear)))
                return out.clone()  # a later in-place layer must not change what was kept

            handles.append(one.register_forward_hook(keep))
    try:
        output = network.read(module(batch.detach().clone().requires_grad_(batch.is_floating_point())))
    finally:
        for handle in handles:
            handle.remove()
    calls = Counter(name for name, *_ in seen)
    once = {1, batch.shape[1]} if batch.ndim == 5 else {1}
    found: str | None = choose(
        [step for step in seen if calls[step[0]] in once and step[1].shape != output.shape], output, batch
    )
    return found


def _hook_cut(network: Network, layer: str) -> Cut:
    def enter(batch: Tensor, differentiable: bool) -> tuple[Tensor, Tensor, Head, Trunk, bool]:
        roots: list[Tensor] = []

        def reroot(call: int, value: Tensor) -> Tensor:
            torch.set_grad_enabled(True)  # from here on: the head
            roots.append(_root(value, differentiable))
            return roots[-1].clone()

        with torch.set_grad_enabled(differentiable):
            output = _run_with(network, batch, layer, reroot)
        if not roots:
            raise BadNetwork(f"layer {layer!r} did not run for this input")
        count = len(roots)

        def head(features: Tensor) -> Tensor:
            parts = _by_call(features, len(batch), count)
            wanted = torch.is_grad_enabled()

            def put(call: int, _: Tensor) -> Tensor:
                torch.set_grad_enabled(wanted)
                return parts[call].clone()

            with torch.no_grad():
                return _run_with(network, batch, layer, put)

        if count == 1:
            return roots[0], output, head, lambda: roots[0], False
        features = _root(torch.stack([root.detach() for root in roots], dim=1).flatten(0, 1), False)
        return features, head(features.clone()), head, lambda: features, False

    return Cut(layer, "hook", enter)


def _by_call(features: Tensor, samples: int, calls: int) -> tuple[Tensor, ...]:
    """What each call of the layer gave: features are N*T with T the calls."""
    if calls == 1:
        return (features,)
    return features.unflatten(0, (samples, calls)).unbind(1)


def _run_with(network: Network, batch: Tensor, layer: str, put: Callable[[int, Tensor], Tensor]) -> Tensor:
    """Run the network with the layer's output replaced, call by call."""
    calls = 0

    def hook(_: nn.Module, __: Any, out: Any) -> Tensor:
        nonlocal calls
        calls += 1
        return put(calls - 1, _one_map(out, layer))

    handle = network.module.get_submodule(layer).register_forward_hook(hook)
    before = torch.is_grad_enabled()
    try:
        return network(batch)
    finally:
        handle.remove()
        torch.set_grad_enabled(before)
