"""Any loadable network as a trunk: pictures in, the map before its pooling out."""

import copy
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.fx.proxy import TraceError

from fovea.basics import BadNetwork
from fovea.networks import Network, layout_of
from fovea.pictures import Prepare

POOLS = ("avgpool", "global_pool")  # what comes after the last map, where layers follow each other


class Trunk(nn.Module):
    """N,C,H,W to N,channels,h,w, whatever order the network itself keeps its axes in."""

    def __init__(self, body: nn.Module, size: tuple[int, int], inputs: int = 3) -> None:
        super().__init__()
        self.body = body
        like = next(body.parameters(), torch.zeros(1))
        self.eval()
        with torch.enable_grad():
            found = self(torch.zeros(1, inputs, *size, device=like.device, dtype=like.dtype))
            self.channels = int(found.shape[1])
            _without_unused(self, found)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.body.forward_features(x) if hasattr(self.body, "forward_features") else self.body(x)  # type: ignore[operator]
        layout = layout_of(features, x) if isinstance(features, Tensor) else None  # or a list of maps
        if layout is None:
            raise BadNetwork(f"{type(self.body).__name__} has no map of its cells before its pooling")
        if layout.kind == "channels first":
            return features
        cells = layout.by_cell(features)  # N,k,P
        return cells.reshape(*cells.shape[:2], *layout.grid)


def _without_unused(trunk: Trunk, found: Tensor) -> None:
    """Layers that the map does not come through, as those of a head that could not be taken away, are left out."""
    named = [(name, one) for name, one in trunk.body.named_parameters() if one.requires_grad]
    if not named or not found.requires_grad:
        return
    gradients = torch.autograd.grad(found.sum(), [one for _, one in named], allow_unused=True)
    used = {name.partition(".")[0] for (name, _), one in zip(named, gradients, strict=True) if one is not None}
    for name, child in trunk.body.named_children():
        if name not in used and any(True for _ in child.parameters()):
            setattr(trunk.body, name, nn.Identity())


def prepare_of(network: Network) -> Prepare:
    """How pictures come to a network, of one that says so."""
    if not isinstance(network.transform, Prepare):
        raise BadNetwork(f"{network.name or 'the network'} has no transform that tells how large its pictures are")
    return network.transform


def trunk_of(network: Network, last_pool: bool = True) -> Trunk:
    """A copy of a network up to its last map, without the layers after it. `last_pool=False` leaves a max-pool out that
    the map would come from, as VGG's has: it is twice as wide and high then."""
    prepare = prepare_of(network)
    size, inputs = prepare.size, len(prepare.mean)
    body = _body(copy.deepcopy(network.module), network.name, size, inputs)
    if not last_pool and isinstance(body, nn.Sequential) and isinstance(body[-1], nn.MaxPool2d):
        body = body[:-1]
    return Trunk(body, size, inputs)


def _body(module: Any, name: str, size: tuple[int, int], inputs: int) -> nn.Module:
    features = getattr(module, "features", None)
    if isinstance(features, nn.Sequential):  # VGG and its like: no more is needed
        return features
    if hasattr(module, "forward_features"):  # timm's
        if hasattr(module, "reset_classifier"):
            module.reset_classifier(0)
        return module
    layers = OrderedDict(module.named_children())
    pool = next((one for one in POOLS if one in layers), None)
    if pool is None:
        ways = "give a network of timm's, one with 'features', or one whose layers are followed by 'avgpool'"
        raise BadNetwork(f"{name or type(module).__name__} cannot be cut before its pooling: {ways}")
    before = list(layers)[: list(layers).index(pool)]
    chain = nn.Sequential(OrderedDict((one, layers[one]) for one in before))
    if _gives_what_is_pooled(chain, module, layers[pool], (inputs, *size)):
        return chain
    try:
        traced = _Traced(module, pool)
    except (TraceError, ValueError, TypeError):  # it asks for values, which a graph has not
        traced = None
    if traced is None or not _gives_what_is_pooled(traced, module, layers[pool], (inputs, *size)):
        ways = "give a network of timm's, or one with 'features'"
        raise BadNetwork(f"{name or type(module).__name__} cannot be followed up to its pooling: {ways}")
    return traced


class _Traced(nn.Module):
    """A network that does more before its pooling than its layers one after the other, as GoogLeNet, by its graph."""

    def __init__(self, module: nn.Module, pool: str) -> None:
        super().__init__()
        from torchvision.models.feature_extraction import create_feature_extractor, get_graph_node_names

        module.eval()
        _, nodes = get_graph_node_names(module, suppress_diff_warning=True)
        last = nodes[nodes.index(pool) - 1]
        self.body = create_feature_extractor(module, [last], suppress_diff_warning=True)

    def forward(self, x: Tensor) -> Tensor:
        (found,) = self.body(x).values()
        return found


def _gives_what_is_pooled(chain: nn.Module, module: nn.Module, pool: nn.Module, shape: tuple[int, ...]) -> bool:
    """Whether a chain of layers gives what the network itself gives to its pooling."""
    like, seen = next(module.parameters(), torch.zeros(1)), list[Tensor]()
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(1, *shape, generator=generator).to(like)
    hook = pool.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    module.eval()
    try:
        with torch.no_grad():
            module(x)
            return bool(seen) and torch.allclose(chain(x), seen[0], rtol=1e-3, atol=1e-5)
    except RuntimeError:  # layers that do not fit each other, as auxiliary heads among them
        return False
    finally:
        hook.remove()
