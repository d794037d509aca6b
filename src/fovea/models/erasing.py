"""Networks that learn to look at more than the most telling part (L2-CAF 4.1 and supplement, S1): a classifier with
global average pooling (GAP; Zhou et al. 2016), the attention-based dropout layer (ADL; Choe and Shim 2019), and
adversarial complementary learning (ACoL; Zhang et al. 2018)."""

import warnings
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.fx import GraphModule

from fovea.basics import BadChoice, nearest
from fovea.models.trunks import Trunk, prepare_of, trunk_of
from fovea.networks import Network, model


class ADL(nn.Module):
    """In training, features times a drop mask or, with the chance `keep`, times an importance map; else as they are.
    Both come from the mean over channels: the mask is 0 where that is at least `threshold` of its maximum in the
    picture, the importance is its sigmoid."""

    def __init__(self, keep: float = 0.25, threshold: float = 0.5) -> None:
        super().__init__()
        for name, value in (("keep", keep), ("threshold", threshold)):
            if not 0 <= value <= 1:
                raise BadChoice(f"{name} of ADL is between 0 and 1; got {value}")
        self.keep, self.threshold, self.looked = keep, threshold, False

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        attention = x.mean(1, keepdim=True)  # N,1,h,w
        most = attention.amax((2, 3), keepdim=True)
        if not self.looked:  # once: to know it, a GPU is waited for
            self.looked, below = True, int((most <= 0).sum())
            if below:
                why = "there it hides nothing: it belongs after a layer with an activation"
                warnings.warn(
                    f"ADL: the mean over channels is nowhere above 0 in {below} of {len(x)} maps; {why}", stacklevel=2
                )
        mask = (attention < self.threshold * most).to(x.dtype)
        important = torch.rand((), device=x.device) < self.keep  # one choice a step
        return x * torch.where(important, attention.sigmoid(), mask)


def add_adl(trunk: Trunk, layers: Sequence[str], keep: float, threshold: float) -> None:
    """ADL after each of these layers."""
    known = [name for name, _ in trunk.body.named_modules() if name]
    stray = next((name for name in layers if name not in known), None)
    if stray is not None:
        raise BadChoice(f"adl: the features have no layer {stray!r}{nearest(stray, known)}")
    if layers and any(isinstance(layer, GraphModule) for layer in trunk.body.modules()):
        raise BadChoice("adl: these features are followed by their graph, into which no layer can be put: give timm's")
    for name in sorted(layers, key=lambda name: -name.count(".")):  # inner ones first: their names change
        own = OrderedDict(layer=trunk.body.get_submodule(name), adl=ADL(keep, threshold))
        trunk.body.set_submodule(name, nn.Sequential(own))


def more_convolutions(channels: int, convs: int, width: int) -> tuple[nn.Sequential, int]:
    """So many 3 x 3 convolutions with ReLU, as VGG-GAP has behind its features, and how many channels come out."""
    layers: list[nn.Module] = []
    for i in range(convs):
        layers += [nn.Conv2d(channels if i == 0 else width, width, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers), width if convs else channels


class GAP(nn.Module):
    """Features, more convolutions where asked for, their mean over cells, one linear layer."""

    def __init__(self, features: Trunk, classes: int, convs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.features = features
        self.more, channels = more_convolutions(features.channels, convs, width)
        self.dropout = nn.Dropout(dropout)
        self.classifier = nn.Linear(channels, classes)

    def reset_classifier(self, classes: int) -> None:
        old = self.classifier
        self.classifier = nn.Linear(old.in_features, classes).to(old.weight)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.more(self.features(x))  # N,k,h,w

    def forward_head(self, features: Tensor) -> Tensor:
        return self.classifier(self.dropout(features.mean((2, 3))))  # N,classes

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


@dataclass(frozen=True)
class ACoLOutput:
    """What both classifiers of ACoL see."""

    logits: Tensor  # N,classes, of the first
    maps: Tensor  # N,classes,h,w, of the first
    features: Tensor  # N,k,h,w, before either
    acol: "ACoL"

    def second(self, classes: Tensor) -> Tensor:
        """The second classifier's logits, N,classes, without the cells where the first finds these classes, N."""
        features = self.features if self.acol.shared_gradient else self.features.detach()
        return self.acol.second(self.acol.erased(features, self.maps, classes))


class ErasingBranch(nn.Module):
    """More convolutions where asked for, a map a class, and the maps' means."""

    def __init__(self, channels: int, classes: int, convs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.more, channels = more_convolutions(channels, convs, width)
        self.dropout = nn.Dropout2d(dropout)
        self.last = nn.Conv2d(channels, classes, 1)

    def reset_classifier(self, classes: int) -> None:
        old = self.last
        self.last = nn.Conv2d(old.in_channels, classes, 1).to(old.weight)

    def maps(self, features: Tensor) -> Tensor:
        return self.last(self.dropout(self.more(features)))  # N,classes,h,w

    def forward_head(self, own: Tensor) -> Tensor:
        """From what the convolutions give, N,k,h,w, to N,classes."""
        return self.last(self.dropout(own)).mean((2, 3))

    def forward(self, features: Tensor) -> Tensor:
        return self.forward_head(self.more(features))


class ACoL(nn.Module):
    """Two classifiers on the same features; the second does not see where the first finds the class. The answer is the
    first one's. fovea.explain gives the maximum of both classifiers' maps, each at its own last convolution.

    The second learns from the features, and they do not learn from it unless `shared_gradient` says so: shown only what
    is not the object, it teaches features whose cells see far to say the class everywhere, which flattens all maps."""

    abilities = frozenset({"complement"})

    def __init__(self, features: Trunk, classes: int, options: "AcolOptions") -> None:
        super().__init__()
        self.features, self.threshold, self.shared_gradient = features, options.threshold, options.shared_gradient
        branch = (features.channels, classes, options.convs, options.width, options.dropout)
        self.first, self.second = ErasingBranch(*branch), ErasingBranch(*branch)

    def reset_classifier(self, classes: int) -> None:
        self.first.reset_classifier(classes)
        self.second.reset_classifier(classes)

    def forward_features(self, x: Tensor) -> Tensor:
        return self.features(x)

    def forward_head(self, features: Tensor) -> ACoLOutput:
        maps = self.first.maps(features)
        return ACoLOutput(maps.mean((2, 3)), maps, features, self)

    def forward(self, x: Tensor) -> ACoLOutput:
        return self.forward_head(self.forward_features(x))

    def erased(self, features: Tensor, maps: Tensor, classes: Tensor) -> Tensor:
        """The features without the cells whose part in the class's map (0 to 1) is at least the threshold."""
        own = maps.detach()[torch.arange(len(maps), device=maps.device), classes].unsqueeze(1)  # N,1,h,w
        return features * (zero_to_one(own) < self.threshold).to(features.dtype)


def zero_to_one(maps: Tensor) -> Tensor:
    """Every map from 0 to 1; one that is the same everywhere is 0."""
    low, high = maps.amin((-2, -1), keepdim=True), maps.amax((-2, -1), keepdim=True)
    return (maps - low) / (high - low).clamp(min=torch.finfo(maps.dtype).tiny)


@dataclass(frozen=True)
class FeatureOptions:
    """What is made of a network's features before they are pooled. VGG-GAP is torchvision/vgg16 with convs=2 and
    last_pool=False."""

    convs: int = 0
    width: int = 1024  # channels of these convolutions
    last_pool: bool = True
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if self.convs < 0 or self.width < 1:
            raise BadChoice(f"width is at least 1 and convs at least 0; got {self.width} and {self.convs}")


@dataclass(frozen=True)
class GapOptions(FeatureOptions):
    adl: str | Sequence[str] = ()  # layers of the features that ADL comes after
    adl_keep: float = 0.25
    adl_threshold: float = 0.5


@dataclass(frozen=True)
class AcolOptions(FeatureOptions):
    threshold: float = 0.6  # cells at or above it are erased for the second classifier
    shared_gradient: bool = False  # the second classifier's reaches the features, as in the paper

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.threshold <= 1:
            raise BadChoice(f"threshold of ACoL is above 0 and at most 1; got {self.threshold}")


@model("gap", about="a classifier with global average pooling, and ADL where asked for", over="network")
def build_gap(features: Network, classes: int, options: GapOptions) -> Network:
    trunk = trunk_of(features, options.last_pool)
    layers = [options.adl] if isinstance(options.adl, str) else options.adl
    add_adl(trunk, layers, options.adl_keep, options.adl_threshold)
    return _network(features, GAP(trunk, classes, options.convs, options.width, options.dropout), classes)


@model("acol", about="a second classifier sees what the first does not", over="network", can=("complement",))
def build_acol(features: Network, classes: int, options: AcolOptions) -> Network:
    trunk = trunk_of(features, options.last_pool)
    return _network(features, ACoL(trunk, classes, options), classes)


def _network(features: Network, module: nn.Module, classes: int) -> Network:
    return Network(module, prepare_of(features), tuple(map(str, range(classes))))
