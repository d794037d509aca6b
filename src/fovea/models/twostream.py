"""The two-stream network that looks longer (Shroff, "Search for finer attention details", 2020, chapters 3 and 7).

The global stream sees the whole picture and the local stream a patch of it. The patch's features go into stacked LSTMs
at each of T steps, the steps' outputs are weighed by attention, and the two streams' logits are added:

    F = W * patch, phi_t = LSTM_t(mean of F)                      (3.3, 3.4)
    A = sum_t alpha_t phi_t, alpha = softmax_t(W_t . phi_t)        (3.5, 3.6)
    L = W_l A + b_l,   G = W_g mean of (W * picture) + b_g         (3.7, 3.2)

A network is given whole pictures; the global stream sees their middle, the local stream what a patch source finds.
"""

import copy
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from PIL import Image
from torch import Tensor, nn

from fovea.basics.errors import BadChoice
from fovea.models.localizer import Localiser
from fovea.models.localstream import Form, Local, LocalStream, Steps, check_readout
from fovea.models.norms import Statistics
from fovea.models.trunks import Trunk, trunk_of
from fovea.networks.network import Network, Origin
from fovea.pictures import from_array
from fovea.pictures.transforms import Prepare
from fovea.pictures.windows import cut, inside, middle

Box = tuple[float, float, float, float]
EMBEDDED = "embedded"  # the source that is a part of the network


class Views(NamedTuple):
    """Pictures, and what of them is seen: windows are x0 y0 x1 y1 in shares of a picture's width and height."""

    pictures: Tensor  # N,C,S,S
    boxes: Tensor | None = None  # N,K,4: the patches; None has them found
    whole: Tensor | None = None  # N,4: what the global stream sees; None is the middle
    flips: Tensor | None = None  # N: mirrored before they are seen

    @property
    def device(self) -> torch.device:
        return self.pictures.device

    @property
    def ndim(self) -> int:
        return self.pictures.ndim

    def is_floating_point(self) -> bool:
        return self.pictures.is_floating_point()

    def to(self, *args: Any, **kwargs: Any) -> "Views":
        """The pictures as a tensor's own `to` has them; what is seen of them goes where they go."""
        pictures = self.pictures.to(*args, **kwargs)
        rest = (None if one is None else one.to(pictures.device) for one in self[1:])
        return Views(pictures, *rest)


@dataclass(frozen=True)
class TwoStreamOutput:
    logits: Tensor  # N,classes: whole + weight * local
    whole: Tensor  # N,classes: the global stream's
    local: Tensor | None  # N,classes: the local stream's, the mean over the patches
    weight: float  # lambda' of the loss and of the prediction alike
    steps: Steps | None  # of N*K patches
    seen: Tensor  # N,4: the global stream's windows
    boxes: Tensor | None  # N,K,4: the patches
    every_step: bool = False  # the local stream is trained at all steps, not at its answer
    view: Tensor | None = None  # N,C,S,S: what the global stream was shown
    map: Tensor | None = None  # N,C,h,w: its map, where it is a trunk and not any classifier
    cells: Tensor | None = None  # N*K,C,h,w: the local stream's map of every patch


class GlobalStream(nn.Module):
    """A trunk, its mean over the cells, one linear layer (Eq. 3.2)."""

    def __init__(self, trunk: Trunk, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.trunk, self.dropout, self.classifier = trunk, nn.Dropout(dropout), nn.Linear(trunk.channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.trunk(x))

    def classify(self, features: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.dropout(features.mean((2, 3))))
        return logits


Finder = Callable[[Sequence[Image.Image], torch.device], list[Sequence[Box]]]


class TwoStream(nn.Module):
    """`whole` gives logits of pictures. `trunk` gives the local stream's map; None shares the global stream's, with
    batch-norm statistics of its own. `patches` of a picture are read when it is used, the best ones, and their answers
    averaged: the same picture always has the same answer."""

    def __init__(
        self,
        whole: nn.Module,
        local: LocalStream | None,
        trunk: Trunk | None,
        localiser: Localiser | None,
        size: int,
        patch: int,
        crop: float,
        weight: float,
        patches: int,
        mean: tuple[float, ...],
        std: tuple[float, ...],
    ) -> None:
        super().__init__()
        self.whole, self.local, self.trunk, self.localiser = whole, local, trunk, localiser
        self.size, self.patch, self.crop, self.weight, self.patches = size, patch, crop, weight, patches
        self.mean, self.std = mean, std
        self.finder: Finder | None = None  # of what is given without boxes
        shares = local is not None and trunk is None and isinstance(whole, GlobalStream)
        self.statistics = Statistics(whole.trunk, 2) if shares else None  # type: ignore[arg-type]

    @property
    def abilities(self) -> frozenset[str]:
        """Without a local stream it is a classifier like any other."""
        return frozenset({"streams"} if self.local is not None else ())

    def train(self, mode: bool = True) -> "TwoStream":
        """A global stream that is frozen stays as it is, its norms' statistics, too."""
        super().train(mode)
        if not any(one.requires_grad for one in self.whole.parameters()):
            self.whole.eval()
        return self

    def forward(self, x: Tensor | Views) -> TwoStreamOutput:
        views = x if isinstance(x, Views) else Views(x)
        if views.pictures.ndim != 4 or views.pictures.shape[1] != len(self.mean):
            raise BadChoice(
                f"a two-stream network takes pictures N,{len(self.mean)},H,W; got {tuple(views.pictures.shape)}"
            )
        if views.boxes is not None and (views.boxes.ndim != 3 or views.boxes.shape[2] != 4):
            raise BadChoice(f"boxes are N,K,4, K patches of every picture; got {tuple(views.boxes.shape)}")
        count = len(views.pictures)
        window = middle(count, self.crop, views.pictures.float()) if views.whole is None else views.whole
        view = self._middle(views, window)
        features, whole = self._global(view)
        if self.local is None:
            return TwoStreamOutput(whole, whole, None, 0.0, None, window, None, False, view, features)
        boxes = self._boxes(views, window, features)
        cells = self.features(self.cut(views, boxes))  # N*K,C,h,w
        steps = self.local(cells)
        local = steps.logits.view(count, -1, steps.logits.shape[1]).mean(1)
        logits = whole + self.weight * local
        at_every_step = self.local.kind == "lstm"
        return TwoStreamOutput(
            logits, whole, local, self.weight, steps, window, boxes, at_every_step, view, features, cells
        )

    def _middle(self, views: Views, window: Tensor) -> Tensor:
        as_it_is = views.whole is None and views.flips is None and self.crop == 1
        if as_it_is and views.pictures.shape[2:] == (self.size, self.size):
            return views.pictures
        return cut(views.pictures, window, (self.size, self.size), views.flips)

    def cut(self, views: Views, boxes: Tensor) -> Tensor:
        """The patches N,K,4 of every picture, as the local stream takes them: N*K,C,h,w."""
        each = boxes.shape[1]
        pictures = views.pictures.repeat_interleave(each, 0)
        flips = None if views.flips is None else views.flips.repeat_interleave(each)
        return cut(pictures, boxes.flatten(0, 1), (self.patch, self.patch), flips)

    def features(self, patches: Tensor) -> Tensor:
        """The local stream's map of patches."""
        if self.trunk is not None:
            found: Tensor = self.trunk(patches)
            return found
        assert isinstance(self.whole, GlobalStream)
        assert self.statistics is not None
        with self.statistics.of(self.whole.trunk, 1):
            shared: Tensor = self.whole.trunk(patches)
            return shared

    def _global(self, x: Tensor) -> tuple[Tensor | None, Tensor]:
        if not isinstance(self.whole, GlobalStream):
            return None, self.whole(x)
        if self.statistics is None:
            features = self.whole.trunk(x)
        else:
            with self.statistics.of(self.whole.trunk, 0):
                features = self.whole.trunk(x)
        return features, self.whole.classify(features)

    def _boxes(self, views: Views, window: Tensor, features: Tensor | None) -> Tensor:
        if self.localiser is not None and features is not None:
            own = self.localiser(features)
            if views.flips is not None:  # found in a mirrored view, and cut out of the picture as it was
                turned = torch.stack([1 - own[:, 2], own[:, 1], 1 - own[:, 0], own[:, 3]], 1)
                own = torch.where(views.flips.unsqueeze(1), turned, own)
            return inside(own, window.to(own.dtype)).unsqueeze(1)
        if views.boxes is not None:
            return views.boxes
        return self.find(views.pictures)

    def find(self, pictures: Tensor) -> Tensor:
        """The best patches of pictures as the network takes them, by the source that it was given: N,K,4."""
        if self.finder is None:
            raise BadChoice(
                "this two-stream network has no patch source: build it with options source=KIND:NET, as "
                "'l2caf:efficientnet_lite0-cub100', or ask network.module(Views(pictures, boxes))"
            )
        height, width = pictures.shape[2:]
        found = self.finder(as_images(pictures, self.mean, self.std), pictures.device)
        boxes = torch.tensor([filled(own, self.patches) for own in found], dtype=torch.float32)
        return (boxes / boxes.new_tensor([width, height, width, height])).to(pictures.device)

    @property
    def waits_for_boxes(self) -> bool:
        """Whether nothing here finds patches, so that they must be given."""
        return self.local is not None and self.localiser is None and self.finder is None

    def reset_classifier(self, classes: int) -> None:
        """New, untrained last layers for so many classes."""
        if isinstance(self.whole, Answering):
            self.whole.reset_classifier(classes)
        for stream in (self.whole, self.local):
            if isinstance(stream, (GlobalStream, LocalStream)):
                old = stream.classifier
                stream.classifier = nn.Linear(old.in_features, classes).to(old.weight)


def filled(boxes: Sequence[Box], count: int) -> list[Box]:
    """The first so many; of a picture with fewer, its own again, the best first."""
    return [boxes[i % len(boxes)] for i in range(count)]


@torch.no_grad()
def as_images(pictures: Tensor, mean: Sequence[float], std: Sequence[float]) -> list[Image.Image]:
    """What a network is given, as pictures again."""
    shift, scale = (pictures.new_tensor(one).view(-1, 1, 1) for one in (mean, std))
    values = ((pictures.float() * scale + shift) * 255).round().clamp(0, 255).byte()
    return [from_array(one) for one in values.permute(0, 2, 3, 1).cpu().numpy()]


def build(
    backbone: Network,
    classes: int,
    local: Local = "attention",
    steps: int = 10,
    hidden: int = 512,
    layers: int = 2,
    shared_attention: bool = False,
    self_attention: bool = False,
    keys: int | None = None,
    places: int = 64,
    readout: str | None = None,
    share: bool = False,
    last_pool: bool = False,
    side: int = 448,
    size: int | None = None,
    patch: int = 224,
    crop: float = 1.0,
    weight: float = 1.0,
    patches: int = 1,
    dropout: float = 0.0,
    source: str | None = None,
) -> Network:
    """Two streams over a backbone's features, as the thesis has them unless told otherwise.

    `local`: Table 6.1's row: none (the global stream alone), cnn, lstm, attention. `shared_attention`: one weight
    vector for all steps. `self_attention`: chapter 7's, with `keys` of the channels and `places` for the place.
    `share`: one trunk for both streams. `last_pool`: the local stream keeps a max-pool that the map comes from.
    Pictures come as `side` x `side`, of which the global stream sees the middle `crop` at `size`, and the local stream
    windows at `patch`. `weight`: of the local stream. `patches`: of a picture, read when it is used. `source`: where
    patches come from, as fovea.patching takes it, or "embedded" for a localiser inside the network.
    """
    prepare = _checked(backbone, side, patch, crop, weight, patches)
    form = Form(
        local, steps, hidden, layers, shared_attention, self_attention, keys, places, readout, dropout
    )  # checked before anything is built
    whole = GlobalStream(trunk_of(backbone), classes, dropout)
    trunk = trunk_of(backbone, last_pool) if local != "none" and not share else None
    stream = form.stream((trunk or whole.trunk).channels, classes)
    localiser = Localiser(whole.trunk.channels) if source == EMBEDDED and stream is not None else None
    net = TwoStream(
        whole, stream, trunk, localiser, size or side, patch, crop, weight, patches, prepare.mean, prepare.std
    )
    return _network(net, prepare, side, tuple(map(str, range(classes))), source)


def add_local_stream(
    classifier: Network,
    source: str,
    backbone: Network | None = None,
    local: Local = "attention",
    steps: int = 10,
    hidden: int = 512,
    layers: int = 2,
    shared_attention: bool = False,
    self_attention: bool = False,
    keys: int | None = None,
    places: int = 64,
    readout: str | None = None,
    last_pool: bool = False,
    patch: int = 224,
    weight: float = 1.0,
    patches: int = 1,
    dropout: float = 0.0,
) -> Network:
    """Any classifier as the global stream of a two-stream network: its own answer, to which a local stream adds.

    The local stream's features start as a copy of the classifier's, or of `backbone`'s. The classifier itself is not
    copied: training trains it, too, unless its parameters are frozen. `fovea.load("local/NAME", options=...)` is
    this for a classifier by name, so that recipes can train it.
    """
    if classifier.labels is None:
        raise BadChoice("a local stream is added to a classifier, and this network has no labels: wrap it with labels=")
    prepare = _checked(classifier, 1, patch, 1.0, weight, patches)
    form = Form(local, steps, hidden, layers, shared_attention, self_attention, keys, places, readout, dropout)
    if local == "none":
        raise BadChoice("without a local stream nothing is added: local is cnn, lstm or attention")
    if source == EMBEDDED:
        raise BadChoice(
            "an embedded localiser reads the global stream's map, which a classifier as a whole does not give"
        )
    trunk = trunk_of(backbone or classifier, last_pool)
    stream = form.stream(trunk.channels, len(classifier.labels))
    size = prepare.size[0]
    if prepare.size != (size, size):
        raise BadChoice(f"a local stream is added to classifiers of square pictures; this one takes {prepare.size}")
    net = TwoStream(
        Answering(classifier), stream, trunk, None, size, patch, 1.0, weight, patches, prepare.mean, prepare.std
    )
    network = _network(net, prepare, size, classifier.labels, source)
    network.transform = prepare  # what the classifier sees stays what it was
    network.module.to(classifier.device, classifier.dtype)
    if backbone is None and classifier.origin is not None:  # built again by this name, and so saved under it
        own = {"source": source, "last_pool": last_pool, "patch": patch, "weight": weight, "patches": patches}
        kept = {**asdict(form), **own}
        kept["local"] = kept.pop("kind")
        options = {key: value for key, value in kept.items() if value is not None}
        network.origin = Origin(f"local/{classifier.origin.name}", {**classifier.origin.options, **options})
    return network


class Answering(nn.Module):
    """A classifier whose module gives more than logits, giving logits."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.module, self._read = network.module, network.read

    def forward(self, x: Tensor) -> Tensor:
        return self._read(self.module(x))

    def reset_classifier(self, classes: int) -> None:
        reset: Any = getattr(self.module, "reset_classifier", None)  # timm's, and our own networks'
        if reset is None:
            raise BadChoice(f"a new last layer of {classes} classes: give the classifier one, then add a local stream")
        reset(classes)


def _network(net: TwoStream, prepare: Prepare, side: int, labels: tuple[str, ...], source: str | None) -> Network:
    if source is not None and source != EMBEDDED and net.local is not None:
        from fovea.patches.finder import Finding

        net.finder = Finding(source)
    transform = replace(prepare, size=(side, side), crop=1.0)
    net.eval()
    return Network(net, transform, labels)


def with_readout(network: Network, text: str) -> Network:
    """The same network, its weights shared, the steps made one in another way."""
    assert isinstance(network.module, TwoStream)
    if network.module.local is None:
        raise BadChoice("this network has no local stream whose steps could be read another way")
    module, local = copy.copy(network.module), copy.copy(network.module.local)
    module._modules = {**network.module._modules, "local": local}
    local.readout = check_readout(text, local.steps)
    return replace(network, module=module, _cuts={})


def _checked(network: Network, side: int, patch: int, crop: float, weight: float, patches: int) -> Prepare:
    for name, given in (("side", side), ("patch", patch), ("patches", patches)):
        if given < 1:
            raise BadChoice(f"{name} is at least 1; got {given}")
    if not 0 < crop <= 1:
        raise BadChoice(f"crop is the share of the picture's side that the global stream sees, up to 1; got {crop}")
    if weight < 0:
        raise BadChoice(f"weight is the local stream's share, 0 or more; got {weight}")
    if not isinstance(network.transform, Prepare):
        raise BadChoice(f"{network.name or 'the network'} has no transform that tells how its pictures are normalised")
    return network.transform
