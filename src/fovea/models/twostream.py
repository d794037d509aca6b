"""The two-stream network that looks longer (Shroff, "Search for finer attention details", 2020, chapters 3 and 7).

The global stream sees the whole picture and the local stream a patch of it. The patch's features go into stacked LSTMs
at each of T steps, the steps' outputs are weighed by attention, and the two streams' logits are added:

    F = W * patch, phi_t = LSTM_t(mean of F)                      (3.3, 3.4)
    A = sum_t alpha_t phi_t, alpha = softmax_t(W_t . phi_t)        (3.5, 3.6)
    L = W_l A + b_l,   G = W_g mean of (W * picture) + b_g         (3.7, 3.2)

A network is given whole pictures and boxes of patches; the global stream sees the pictures' middle."""

from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice
from fovea.models.localstream import LocalOptions, LocalStream, Steps
from fovea.models.norms import Statistics
from fovea.models.trunks import Trunk, prepare_of, trunk_of
from fovea.networks import Network, Origin, model
from fovea.pictures import cut, inside, middle

Stream = LocalStream | None
EMBEDDED = "embedded"  # the source that is a part of the network


class Views(NamedTuple):
    """Pictures, and what of them is seen: windows are x0 y0 x1 y1 in shares of a picture's width and height."""

    pictures: Tensor  # N,C,S,S
    boxes: Tensor | None = None  # N,K,4: the patches, which an embedded localizer finds itself
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


@dataclass(frozen=True)
class TwoStreamOptions(LocalOptions):
    """Pictures come as `side` x `side`, of which the global stream sees the middle `crop` at `size`."""

    share: bool = False  # one trunk for both streams
    side: int = 448
    size: int | None = None
    crop: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side < 1:
            raise BadChoice(f"side is at least 1; got {self.side}")
        if not 0 < self.crop <= 1:
            raise BadChoice(f"crop is the share of a side that the global stream sees, up to 1; got {self.crop}")


class GlobalStream(nn.Module):
    """A trunk, its mean over the cells, one linear layer (Eq. 3.2)."""

    def __init__(self, trunk: Trunk, classes: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.trunk, self.dropout, self.classifier = trunk, nn.Dropout(dropout), nn.Linear(trunk.channels, classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.trunk(x))

    def classify(self, features: Tensor) -> Tensor:
        return self.classifier(self.dropout(features.mean((2, 3))))


class TwoStream(nn.Module):
    """`whole` gives logits of pictures. `trunk` gives the local stream's map; None shares the global stream's, with
    batch-norm statistics of its own. `patches` of a picture are read when it is used, the best ones, and their answers
    averaged: the same picture always has the same answer."""

    def __init__(
        self, whole: nn.Module, local: Stream, trunk: Trunk | None, options: TwoStreamOptions, channels: int = 3
    ) -> None:
        super().__init__()
        self.whole, self.local, self.trunk, self.channels = whole, local, trunk, channels
        self.size, self.crop = options.size or options.side, options.crop
        self.patch, self.patches, self.weight = options.patch, options.patches, options.weight
        self.localizer: Localizer | None = None
        if options.source == EMBEDDED and local is not None and isinstance(whole, GlobalStream):
            self.localizer = Localizer(whole.trunk.channels)
        found = self.localizer is not None or local is None
        self.source = None if found else options.source  # of patches, where nothing gives them
        shares = local is not None and trunk is None and isinstance(whole, GlobalStream)
        self.statistics = Statistics(whole.trunk, 2) if shares else None  # type: ignore[arg-type]

    @property
    def abilities(self) -> frozenset[str]:
        """Without a local stream it is a classifier like any other."""
        return frozenset({"streams"} if self.local is not None else ())

    @property
    def needs(self) -> str:
        """What is found for it where only pictures are given: boxes of patches, by its source."""
        return "boxes" if self.source is not None else ""

    def train(self, mode: bool = True) -> "TwoStream":
        """A global stream or a local trunk that is frozen stays as it is, its norms' statistics, too."""
        super().train(mode)
        for part in (self.whole, self.trunk):
            if part is not None and not any(parameter.requires_grad for parameter in part.parameters()):
                part.eval()
        return self

    def forward(self, x: Tensor | Views) -> TwoStreamOutput:
        views = x if isinstance(x, Views) else Views(x)
        if views.pictures.ndim != 4 or views.pictures.shape[1] != self.channels:
            raise BadChoice(f"two streams take pictures N,{self.channels},H,W; got {tuple(views.pictures.shape)}")
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
            return self.trunk(patches)
        assert isinstance(self.whole, GlobalStream)
        assert self.statistics is not None
        with self.statistics.of(self.whole.trunk, 1):
            return self.whole.trunk(patches)

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
        if self.localizer is not None and features is not None:
            own = self.localizer(features)
            if views.flips is not None:  # found in a mirrored view, and cut out of the picture as it was
                turned = torch.stack([1 - own[:, 2], own[:, 1], 1 - own[:, 0], own[:, 3]], 1)
                own = torch.where(views.flips.unsqueeze(1), turned, own)
            return inside(own, window.to(own.dtype)).unsqueeze(1)
        if views.boxes is None:
            raise BadChoice(
                "a two-stream network is given the boxes of patches with its pictures: ask network.module(Views("
                "pictures, boxes)), or ask the network, not its module, built with options source=KIND:NET, as "
                "'l2caf:efficientnet_lite0-cub100', which finds them"
            )
        return views.boxes

    def on_whole(self, pictures: Tensor) -> TwoStreamOutput:
        """The whole picture as every patch: what is asked of it before it has a source."""
        whole = middle(len(pictures), 1.0, pictures).unsqueeze(1).expand(-1, self.patches, -1)
        return self(Views(pictures, whole))

    def reset_classifier(self, classes: int) -> None:
        """New, untrained last layers for so many classes."""
        if isinstance(self.whole, Answering):
            self.whole.reset_classifier(classes)
        for stream in (self.whole, self.local):
            if isinstance(stream, (GlobalStream, LocalStream)):
                old = stream.classifier
                stream.classifier = nn.Linear(old.in_features, classes).to(old.weight)


@model(
    "twostream",
    about="a global stream and one that looks longer at patches",
    over="network",
    can=("streams",),
    opens=("source",),
)
def build(backbone: Network, classes: int, options: TwoStreamOptions) -> Network:
    """Two streams over a backbone's features, as the thesis has them unless told otherwise."""
    prepare = prepare_of(backbone)
    whole = GlobalStream(trunk_of(backbone), classes, options.dropout)
    separate = options.local != "none" and not options.share
    trunk = trunk_of(backbone, options.last_pool) if separate else None
    stream = options.stream((trunk or whole.trunk).channels, classes)
    net = TwoStream(whole, stream, trunk, options, len(prepare.mean)).eval()
    transform = replace(prepare, size=(options.side, options.side), crop=1.0)
    return Network(net, transform, tuple(map(str, range(classes))))


def add_local_stream(classifier: Network, source: str, backbone: Network | None = None, **options: Any) -> Network:
    """Any classifier as the global stream of a two-stream network: its own answer, to which a local stream adds. The
    local stream's features start as a copy of the classifier's, or of `backbone`'s. The classifier itself is not
    copied: training trains it, too, unless its parameters are frozen. `options` are those of LocalOptions.
    `fovea.load("local/NAME", options=...)` is this for a classifier by name, so that recipes can train it."""
    return build_local(classifier, LocalOptions(source=source, **options), backbone)


@model(
    "local", about="a local stream beside a trained classifier", over="classifier", can=("streams",), opens=("source",)
)
def build_local(classifier: Network, options: LocalOptions, backbone: Network | None = None) -> Network:
    if options.source is None:
        name = classifier.name or "NAME"
        raise BadChoice(f"local/{name} needs a patch source: options source=KIND:NET, as 'l2caf:{name}'")
    if classifier.labels is None:
        raise BadChoice("a local stream is added to a classifier, and this network has no labels: wrap it with labels=")
    if options.local == "none":
        raise BadChoice("without a local stream nothing is added: local is cnn, lstm or attention")
    if options.source == EMBEDDED:
        raise BadChoice("an embedded localizer reads the global stream's map, which a whole classifier does not give")
    prepare = prepare_of(classifier)
    side = prepare.size[0]
    if prepare.size != (side, side):
        raise BadChoice(f"a local stream is added to classifiers of square pictures; this one takes {prepare.size}")
    trunk = trunk_of(backbone or classifier, options.last_pool)
    stream = options.stream(trunk.channels, len(classifier.labels))
    both = TwoStreamOptions(**asdict(options), side=side)
    net = TwoStream(Answering(classifier), stream, trunk, both, len(prepare.mean)).eval()
    network = Network(net.to(classifier.device, classifier.dtype), prepare, classifier.labels)
    if backbone is None and classifier.origin is not None:  # built again by this name, and so saved under it
        given = {key: value for key, value in asdict(options).items() if value is not None}
        network.origin = Origin(f"local/{classifier.origin.name}", {**classifier.origin.options, **given})
    return network


class Answering(nn.Module):
    """A classifier whose module gives more than logits, giving logits."""

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.module = network.module
        self._read = Network(network.module, output=network.output).read  # of any number of classes

    def forward(self, x: Tensor) -> Tensor:
        return self._read(self.module(x))

    def reset_classifier(self, classes: int) -> None:
        reset: Any = getattr(self.module, "reset_classifier", None)  # timm's, and our own networks'
        if reset is None:
            raise BadChoice(f"a new last layer of {classes} classes: give the classifier one, then add a local stream")
        reset(classes)


SMALLEST = 0.15  # side of a window, as a share of what the global stream sees


class Localizer(nn.Module):
    """The thesis' future work: a localizer inside the network, trained through the patch that it cuts. A 1x1
    convolution of the global stream's map and a softmax give a probability a cell; the window is around its mean,
    `reach` standard deviations to each side, so that every pixel of the patch tells it where to move."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.score = nn.Conv2d(channels, 1, 1)
        nn.init.zeros_(self.score.weight)  # at first every cell alike: nearly all that the global stream sees
        self.reach = nn.Parameter(torch.tensor(0.9 * 3**0.5))  # of a uniform density, nine tenths of the way out

    def forward(self, features: Tensor) -> Tensor:
        """Windows in shares of what the map is of: N,4."""
        share = self.score(features)[:, 0].float().flatten(1).softmax(1).view(-1, *features.shape[2:])  # N,h,w
        spans = [_span(share.sum(axis), self.reach) for axis in (1, 2)]
        (x0, x1), (y0, y1) = spans
        return torch.stack([x0, y0, x1, y1], 1)


def _span(density: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """From where to where along one axis, inside 0 to 1; `density` is N,n over cells of the same width."""
    n = density.shape[1]
    places = (torch.arange(n, device=density.device) + 0.5) / n
    mean = (density * places).sum(1)
    variance = (density * (places - mean.unsqueeze(1)) ** 2).sum(1) + 1 / (12 * n**2)  # also within a cell
    half = (reach * variance.sqrt()).clamp(SMALLEST / 2, 0.5)
    mean = torch.minimum(torch.maximum(mean, half), 1 - half)
    return mean - half, mean + half
