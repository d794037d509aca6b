"""Where patches come from without anybody drawing boxes: one line of text opens any source, KIND:NET,key=value,...

`l2caf:efficientnet_lite0-cub100,thresholds=0.25/0.5`, `prototypes:protopnet-cub100,count=5`, `whole`. A new kind is one
function from a network and its options to a Finder, and one line in SOURCES.
"""

import hashlib
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics import boxes as regions
from fovea.basics.errors import BadChoice, BadNetwork, nearest
from fovea.data.options import value_of
from fovea.data.samples import Box
from fovea.glimpses.zoom import zoom_batches
from fovea.heatmaps.explain import look_at
from fovea.heatmaps.methods import find, names
from fovea.models.glimpsing import Glimpsing
from fovea.networks import loading as zoo
from fovea.networks.network import Network, as_found
from fovea.networks.registry import is_untrained
from fovea.networks.weights import FILES as WEIGHTS
from fovea.networks.weights import hash_of
from fovea.patches.localize import choice, localize_batches
from fovea.patches.scales import Anchored
from fovea.pictures import Picture
from fovea.pictures.placement import Placement, on_pixels
from fovea.pictures.shown import Shown
from fovea.pictures.transforms import Prepare

ALIKE = 0.7  # a prototype's box is left out where its IoU with one before it is above this
EVERYTHING = sys.maxsize  # pictures are decoded already: their size was accepted then

Found = list[
    tuple[Sequence[float], float]
]  # boxes in the picture's pixels with scores, best first; maybe over the edge
Finder = Callable[[Sequence[Image.Image]], list[Found]]


@dataclass(frozen=True)
class Patches:
    """The patches of one picture, best first, in its own pixels and inside it; there is at least one."""

    boxes: tuple[Box, ...]
    scores: tuple[float, ...]  # what the source says of each


class Source(Protocol):
    """Finds patches. What it finds in a picture does not hang on the pictures beside it, beyond rounding."""

    @property
    def text(self) -> str:
        """The line that it was opened by."""
        ...

    def __call__(self, images: Sequence[Image.Image]) -> list[Patches]: ...


@dataclass(frozen=True)
class Shape:
    """What becomes of every box, whatever found it."""

    square: Literal["yes", "no"] = "no"  # the shorter side is grown to the longer, as far as the picture goes
    pad: float = 0.0  # each edge moves out by this share of the side
    least: float = 0.1  # the smallest side, as a share of the picture's shorter side

    def __post_init__(self) -> None:
        if not 0 <= self.pad < math.inf:
            raise BadChoice(f"pad is a share of a patch's side that its edges move out by, at least 0; got {self.pad}")
        if not 0 <= self.least <= 1:
            raise BadChoice(f"least is a share of the picture's shorter side, 0 to 1; got {self.least}")

    def __call__(self, box: Sequence[float], size: tuple[int, int]) -> Box | None:
        """The box inside a picture of this width and height, in hundredths of a pixel; None where it has no part in it.

        The order: padded, cut off at the picture's edges, grown to the least side, then to a square.
        """
        x0, y0, x1, y1 = box
        wider, higher = self.pad * (x1 - x0), self.pad * (y1 - y0)
        x0, x1 = max(x0 - wider, 0.0), min(x1 + wider, size[0])
        y0, y1 = max(y0 - higher, 0.0), min(y1 + higher, size[1])
        if not (x0 < x1 and y0 < y1):
            return None
        least = max(self.least * min(size), 1.0)
        width, height = max(x1 - x0, least), max(y1 - y0, least)
        if self.square == "yes":
            width = height = max(width, height)
        (x0, x1), (y0, y1) = _grown(x0, x1, width, size[0]), _grown(y0, y1, height, size[1])
        return round(x0, 2), round(y0, 2), round(x1, 2), round(y1, 2)


def _grown(start: float, stop: float, length: float, end: int) -> tuple[float, float]:
    """So long around the same middle, moved into 0..end."""
    length = min(length, end)
    start = min(max((start + stop - length) / 2, 0.0), end - length)
    return start, start + length


@dataclass(frozen=True)
class Opened:
    """A source by its line."""

    text: str
    kind: str
    network: Network | None
    find: Finder
    shape: Shape

    def __call__(self, images: Sequence[Image.Image]) -> list[Patches]:
        upright = [one if one.mode == "RGB" else Picture("picture", one).read(EVERYTHING) for one in images]
        found = self.find(upright) if upright else []
        return [self._shaped(own, image.size) for own, image in zip(found, upright, strict=True)]

    def _shaped(self, found: Found, size: tuple[int, int]) -> Patches:
        """Where nothing was found, as in a blank map, the whole picture, of which the source says nothing: 0."""
        shaped = [(self.shape(box, size), _short(score)) for box, score in found]
        kept = [(box, score) for box, score in shaped if box is not None]
        kept = kept or [((0.0, 0.0, float(size[0]), float(size[1])), 0.0)]
        return Patches(tuple(box for box, _ in kept), tuple(score for _, score in kept))

    @property
    def weights(self) -> str:
        """Tells networks apart that are called the same."""
        return "" if self.network is None else hash_of(self.network.module.state_dict())[:16]


def _short(score: float) -> float:
    """Six digits, as in the file; JSON has no NaN."""
    return float(f"{score:.6g}") if math.isfinite(score) else 0.0


def open_source(text: str, device: str | torch.device = "cpu") -> Opened:
    """The source that a line tells of; `device` is where its network runs."""
    kind, net, options = parsed(text)
    if kind not in SOURCES:
        raise BadChoice(f"no patch source {kind!r}{nearest(kind, SOURCES)} (there are: {', '.join(SOURCES)})")
    opening = SOURCES[kind]
    own = {key: one.annotation for key, one in inspect.signature(opening).parameters.items()}
    needs_network = own.pop("network", None) is not None
    if needs_network and not net:
        raise BadChoice(f"{kind} needs a network, as in {kind}:NAME or {kind}:FILE.safetensors; got {text!r}")
    if net and not needs_network:
        raise BadChoice(f"{kind} takes no network; got {net!r} in {text!r}")
    arguments, common = _typed(kind, own, options)
    shape = Shape(**common)
    if not needs_network:
        return Opened(text, kind, None, opening(**arguments), shape)
    network = _loaded(net, device)
    return Opened(text, kind, network, opening(network=network, **arguments), shape)


def parsed(text: str) -> tuple[str, str, dict[str, str]]:
    """'KIND:NET,key=value,key=value' in its parts; the network's name or file comes first, and may be left out."""
    kind, _, rest = text.partition(":")
    pieces = [one.strip() for one in rest.split(",") if one.strip()]
    first_is_net = bool(pieces) and ("=" not in pieces[0] or Path(pieces[0]).suffix.lower() in WEIGHTS)
    net = pieces.pop(0) if first_is_net else ""
    options: dict[str, str] = {}
    for one in pieces:
        key, equals, value = (part.strip() for part in one.partition("="))
        if not equals or not key:
            raise BadChoice(f"a patch source is written KIND:NET,key=value,key=value; got {one!r} in {text!r}")
        if key in options:
            raise BadChoice(f"{key} is given twice in {text!r}")
        options[key] = value
    return kind.strip(), net, options


def told(text: str) -> str:
    """The line without whose folders its network lies in."""
    kind, net, options = parsed(text)
    name = Path(net).name if Path(net).suffix.lower() in WEIGHTS else net
    pieces = [*filter(None, [name]), *(f"{key}={value}" for key, value in options.items())]
    return f"{kind}:{','.join(pieces)}" if pieces else kind


def _typed(kind: str, own: Mapping[str, Any], given: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The options of the kind itself and those of every kind, each of its type."""
    common = {key: one.annotation for key, one in inspect.signature(Shape).parameters.items()}
    known = [*own, *common]
    for key in given:
        if key not in known:
            raise BadChoice(f"{kind} has no option {key!r}{nearest(key, known)} (its options: {', '.join(known)})")
    every = {key: _value(f"{kind}: {key}=", text, (dict(own) | common)[key]) for key, text in given.items()}
    return {key: every[key] for key in every if key in own}, {key: every[key] for key in every if key in common}


def _value(what: str, text: str, kind: Any) -> Any:
    try:
        if kind in (float, float | None):
            return float(text)
        if kind == tuple[float, ...]:
            return tuple(float(one) for one in text.split("/"))
    except ValueError:
        form = "a number" if kind in (float, float | None) else "numbers with strokes between, as 0.25/0.5"
        raise BadChoice(f"{what} takes {form}; got {text!r}") from None
    return value_of(what, text, kind)


def _loaded(net: str, device: str | torch.device) -> Network:
    if is_untrained(net):
        raise BadChoice(
            f"{net} has no trained weights, so its patches would be anywhere: train it and name its .safetensors file, "
            "or name one that comes with fovea ('fovea models')"
        )
    network = zoo.load(net)
    if not isinstance(network.transform, Prepare):
        raise BadChoice(f"{net} does not take pictures, so it finds no patches in them")
    network.module.to(device)
    return network.squashed()  # the whole picture is seen


def whole() -> Finder:
    """A control: the picture itself."""
    return lambda images: [[((0, 0, *image.size), 1.0)] for image in images]


def random_squares(count: int = 5, seed: int = 0, side: float = 0.5) -> Finder:
    """A control: squares anywhere in the picture, `side` of its shorter side. The same picture has the same ones."""
    _at_least_one(count)
    if not 0 < side <= 1:
        raise BadChoice(f"side is a share of the picture's shorter side, above 0 and at most 1; got {side}")

    def one(image: Image.Image) -> Found:
        content = hashlib.sha256(f"{seed} {image.size} ".encode() + image.tobytes()).digest()
        length = side * min(image.size)
        room = np.array(image.size) - length
        corners = np.random.default_rng(int.from_bytes(content[:16])).random((count, 2)) * room
        return [((x, y, x + length, y + length), 0.0) for x, y in corners.tolist()]

    return lambda images: [one(image) for image in images]


def boxes_of_map(method: str) -> Callable[..., Finder]:
    """The map of an explaining method for the class that the network itself predicts: a box a threshold.

    In the order of the thresholds; a low one is coarse. The score is the share of the map's evidence in the box.
    """

    def opening(network: Network, thresholds: tuple[float, ...] = (regions.THRESHOLD,)) -> Finder:
        for one in thresholds:
            if not 0 < one < 1:
                raise BadChoice(f"{method}: a threshold is a share of the map's range, between 0 and 1; got {one:g}")

        def finder(images: Sequence[Image.Image]) -> list[Found]:
            tensors, places = _batch(network, images)
            shown = [Shown("", place, one) for place, one in zip(places, tensors, strict=True)]
            maps, _ = look_at(network, tensors, shown, [find(method)], None)
            (seen,) = maps.values()
            if len(seen.grid) != 2 or seen.frames:
                raise BadNetwork(f"boxes are drawn on maps of rows and columns; {seen.layer} has {seen.grid}")
            return [_boxes(seen.evidence(i), thresholds) for i in range(len(images))]

        return finder

    return opening


def _boxes(values: NDArray[np.float32], thresholds: Iterable[float]) -> Found:
    found: Found = []
    total = float(values.sum(dtype=np.float64))
    for threshold in thresholds:
        x0, y0, x1, y1 = regions.box_of(values, threshold).tolist()
        if x1 > x0:
            found.append(((x0, y0, x1, y1), float(values[y0:y1, x0:x1].sum(dtype=np.float64)) / total))
    return found


def informative_patches(
    network: Network, count: int = 5, overlap: float | None = None, share: float | None = None
) -> Finder:
    """LIP on the evidence of AnchorNet's decided branch; `overlap` and `share` are its T and P. Scores are evidence."""
    settings = choice(count, overlap, share)
    if not isinstance(network.module, Anchored):
        raise BadChoice(
            f"anchornet needs a network with branches that localise, as anchornet-cub100 is; {network.name} has none "
            f"(a source for any classifier: l2caf:{network.name})"
        )

    def finder(images: Sequence[Image.Image]) -> list[Found]:
        steps = localize_batches(network, list(images), settings, batch=len(images), max_pixels=EVERYTHING)
        return [[(patch.box, patch.evidence) for patch in one.patches] for step in steps for one in step.found]

    return finder


@runtime_checkable
class Prototyped(Protocol):
    """What a network with prototypes gives."""

    maps: Tensor  # N,P,h,w: how much every cell is like every prototype
    similarity: Tensor  # N,P: the most of each map


def prototypes(network: Network, count: int = 5, percentile: float = 95.0, among: int = 100) -> Finder:
    """Where the most active prototypes of any class are seen, each a box around the map's top percentiles.

    One much like a box before it is left out; only so many prototypes are looked `among`. Scores are similarities.
    """
    _at_least_one(count)
    if not 0 < percentile < 100:
        raise BadChoice(f"percentile is above 0 and below 100; got {percentile:g}")
    if among < count:
        raise BadChoice(f"among is how many prototypes are looked at, at least count={count}; got {among}")
    blank, _ = _batch(network, [Image.new("RGB", (32, 32), "grey")])
    with as_found(network), torch.no_grad():
        if not isinstance(network.module(blank), Prototyped):
            raise BadChoice(
                f"prototypes needs a network with prototypes, a ProtoPNet; {network.name} has none "
                f"(a source for any classifier: l2caf:{network.name})"
            )

    def finder(images: Sequence[Image.Image]) -> list[Found]:
        tensors, places = _batch(network, images)
        with as_found(network), torch.no_grad():
            out = network.module(tensors)
        similarity, order = out.similarity.float().sort(dim=1, descending=True, stable=True)  # N,P  N,P
        order = order[:, :among]
        every = torch.arange(len(order), device=order.device)[:, None]
        maps = out.maps[every, order].float().cpu().numpy()  # N,among,h,w
        return [_seen(*one, count, percentile) for one in zip(maps, similarity.tolist(), places, strict=True)]

    return finder


def _seen(
    maps: NDArray[np.float32], similarity: Sequence[float], place: Placement, count: int, percentile: float
) -> Found:
    found: Found = []
    for values, score in zip(maps, similarity, strict=False):
        box = regions.percentile_box(on_pixels(values, place), percentile).tolist()
        if box[2] > box[0] and regions.best_iou(box, [one for one, _ in found]) <= ALIKE:
            found.append((box, score))
            if len(found) == count:
                break
    return found


def glimpses(network: Network, count: int | None = None) -> Finder:
    """What a network that zooms reads, as many glimpses as it usually does unless told, the deepest level first.

    The score is the probability of what each glimpse alone is taken for.
    """
    if not isinstance(network.module, Glimpsing):
        raise BadChoice(
            f"{network.name} reads pictures as a whole; glimpses are of a TNet ('fovea models tnet'), a Saccader or a "
            f"DRAM (a source for any classifier: l2caf:{network.name})"
        )
    least, most = max(network.module.least, 1), network.module.most
    if count is not None and not least <= count <= most:
        raise BadChoice(f"{network.name} reads {least} to {most} glimpses of a picture; got count={count}")

    def finder(images: Sequence[Image.Image]) -> list[Found]:
        steps = zoom_batches(network, list(images), count, max_pixels=EVERYTHING)
        answers = [answer for step in steps for answer in step.answers]
        deepest_first = [sorted(one.glimpses, key=lambda glimpse: -glimpse.level) for one in answers]
        return [[(glimpse.box, glimpse.probability) for glimpse in one] for one in deepest_first]

    return finder


def _at_least_one(count: int) -> None:
    if count < 1:
        raise BadChoice(f"count is the most patches of a picture, at least 1; got {count}")


def _batch(network: Network, images: Sequence[Image.Image]) -> tuple[Tensor, list[Placement]]:
    ready = [network.prepare(image) for image in images]
    tensors = torch.stack([tensor for tensor, _ in ready]).to(network.device, network.dtype)  # N,C,H,W
    return tensors, [place for _, place in ready]


SOURCES: dict[str, Callable[..., Finder]] = {
    **{method: boxes_of_map(method) for method in names()},
    "anchornet": informative_patches,
    "prototypes": prototypes,
    "tnet": glimpses,
    "saccader": glimpses,
    "dram": glimpses,
    "whole": whole,
    "random": random_squares,
}
