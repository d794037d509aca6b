"""One line of text opens any patch source, KIND:NET,key=value,...

`l2caf:efficientnet_lite0-cub100,thresholds=0.25/0.5`, `prototypes:protopnet-cub100,count=5`, `whole`,
`package.module:name:NET,key=value` for a source of the user's own."""

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from inspect import signature
from numbers import Real
from typing import Annotated, Any, Literal, Protocol

import torch
from PIL import Image

from fovea.basics import REFERENCE, SHARE, BadChoice, Bound, nearest
from fovea.data import Box, value_of
from fovea.heatmaps import method
from fovea.networks import Network, hash_of
from fovea.networks import loading as zoo
from fovea.patches.lines import demand_kind, demand_trained, parsed
from fovea.patches.sources import Finder, Opening, Scored, patch_source
from fovea.patches.sources.maps import boxes_of_map
from fovea.pictures import Picture, Prepare

Fit = Literal["crop", "squash", "whole"]  # how pictures come to its network: squashed unless it says otherwise


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
    pad: Annotated[float, Bound(0, 100, real=True)] = 0.0  # each edge moves out by this share of the side
    least: Annotated[float, SHARE] = 0.1  # the smallest side, as a share of the picture's shorter side

    def __post_init__(self) -> None:
        if not 0 <= self.pad <= 100:
            raise BadChoice(f"pad is a share of a patch's side that its edges move out by, 0 to 100; got {self.pad}")
        if not 0 <= self.least <= 1:
            raise BadChoice(f"least is a share of the picture's shorter side, 0 to 1; got {self.least}")

    def __call__(self, box: Sequence[float], size: tuple[int, int]) -> Box | None:
        """The box inside a picture of this width and height, in hundredths of a pixel; None where it has no part in it.
        The order: padded, cut off at the picture's edges, grown to the least side, then to a square."""
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
        upright = [image if image.mode == "RGB" else Picture("picture", image).read() for image in images]
        found = _checked(self.kind, self.find(upright), len(upright)) if upright else []
        return [self._shaped(scored, image.size) for scored, image in zip(found, upright, strict=True)]

    def _shaped(self, found: Scored, size: tuple[int, int]) -> Patches:
        """Where nothing was found, as in a blank map, the whole picture, of which the source says nothing: 0."""
        shaped = [(self.shape(box, size), score) for box, score in found]
        # six digits, as in the file; JSON has no NaN
        there = ((box, score if math.isfinite(score) else 0.0) for box, score in shaped if box is not None)
        kept = [(box, float(f"{score:.6g}")) for box, score in there]
        kept = kept or [((0.0, 0.0, float(size[0]), float(size[1])), 0.0)]
        return Patches(tuple(box for box, _ in kept), tuple(score for _, score in kept))

    @property
    def weights(self) -> str:
        """Tells networks apart that are called the same."""
        return "" if self.network is None else hash_of(self.network.module.state_dict())[:16]


def _checked(kind: str, found: Any, pictures: int) -> Sequence[Scored]:
    """What a finder gave, or an error with words for its author."""
    wanted = f"patch source {kind}: for each picture a list of (box, score), a box x0 y0 x1 y1 in its pixels"
    if not isinstance(found, (list, tuple)):
        raise BadChoice(f"{wanted}; got a {type(found).__name__}")
    if len(found) != pictures:
        raise BadChoice(f"{wanted}; got {len(found)} lists for {pictures} pictures")
    for scored in found:
        if not isinstance(scored, (list, tuple)):
            raise BadChoice(f"{wanted}; got a {type(scored).__name__} for a picture")
        for pair in scored:
            if not (isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[1], Real)):
                raise BadChoice(f"{wanted}; got {pair!r} in place of (box, score)")
            if len(box := list(pair[0])) != 4 or not all(isinstance(side, Real) for side in box):
                raise BadChoice(f"{wanted}; got the box {pair[0]!r}")
    return found


def _opening(kind: str) -> Opening:
    if REFERENCE.fullmatch(kind) and kind not in patch_source:
        module, _, name = kind.partition(":")
        with suppress(ModuleNotFoundError):  # told with words below
            import_module(module)
        kind = name if name in method and method.entry(name).module == module else kind  # a method of the user's own
    if kind in method:
        return boxes_of_map(kind)
    demand_kind(kind)
    return patch_source.get(kind)


def open_source(text: str, device: str | torch.device = "cpu") -> Opened:
    """The source that a line tells of; `device` is where its network runs."""
    kind, net, options = parsed(text)
    opening = _opening(kind)
    if opening.needs_network and not net:
        raise BadChoice(f"{kind} needs a network, as in {kind}:NAME or {kind}:FILE.safetensors; got {text!r}")
    if net and not opening.needs_network:
        raise BadChoice(f"{kind} takes no network; got {net!r} in {text!r}")
    values, common = _typed(opening, options), signature(Shape).parameters
    shape = Shape(**{key: value for key, value in values.items() if key in common})
    network = _loaded(net, device, values.get("fit", "squash")) if net else None
    given = {key: value for key, value in values.items() if key in opening.options}
    find = opening.function(**given) if network is None else opening.function(network=network, **given)
    if not callable(find):
        raise BadChoice(f"patch source {kind}: its function returns a finder, a function of pictures; got {find!r}")
    return Opened(text, kind, network, find, shape)


def _typed(opening: Opening, given: Mapping[str, str]) -> dict[str, Any]:
    """The options of the source itself and those of every source, each of its type."""
    types = {**opening.options, **{key: option.annotation for key, option in signature(Shape).parameters.items()}}
    types |= {"fit": Fit} if opening.needs_network else {}
    for key in given:
        if key not in types:
            there = f"{nearest(key, types)} (its options: {', '.join(types)})"
            raise BadChoice(f"{opening.kind} has no option {key!r}{there}")
    return {key: value_of(f"{opening.kind}: {key}=", text, types[key]) for key, text in given.items()}


def _loaded(net: str, device: str | torch.device, fit: str) -> Network:
    network = zoo.load(demand_trained(net))
    if not isinstance(network.transform, Prepare):
        raise BadChoice(f"{net} does not take pictures, so it finds no patches in them")
    network.module.to(device)
    return network.fitted(fit).of_one_size()
