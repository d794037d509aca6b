"""fovea.look: what a picture is, where that is seen, what of it is enough, what tells it from its neighbors, and what
it cost to know."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fovea import networks
from fovea.basics import BadChoice, bounded, demand_kinds, tell
from fovea.evidence.closer import GLIMPSES, Closely, CloserLook, look_closer
from fovea.evidence.enough import GroundAnswer, Sufficient, least
from fovea.evidence.evidence import Cost, Evidence
from fovea.evidence.masked import BACKGROUNDS, Masked, Patches
from fovea.evidence.trust import Copy, Trust, trusted
from fovea.evidence.where import Seen, see
from fovea.glimpses import zoom_steps
from fovea.heatmaps import MethodLike, Viewed
from fovea.networks import Group, Inputs, Network, NetworkLike, groups, in_order, shares_of
from fovea.patches import medium_of, on_picture
from fovea.pictures import MAX_PIXELS, BigPicture, Picture, Placement, Shown
from fovea.prototypes.likeness import alike
from fovea.results import Results, Step, in_turn
from fovea.retrieval import Index, open_index
from fovea.retrieval import Search as Neighbors
from fovea.streams import Looked, look_batches

FORWARDS = 60  # passes through the network for one picture
FIXED = 12  # of them, beside patches and glimpses: the picture and its changes, the copy, counting, finding the layer
FOR_ENOUGH = 0.62  # of what is left; the rest, and what this does not need, is for what is needed
PROTOTYPES = 5


@dataclass(frozen=True)
class LookOptions:
    """What is asked of a look. `forwards` is how long it may search for less."""

    method: MethodLike | None = None
    index: Index | None = None
    glimpses: int = GLIMPSES
    forwards: int = FORWARDS
    trust: bool = True


@bounded
def look(
    net: NetworkLike,
    pictures: Inputs,
    *,
    method: MethodLike | None = None,
    index: Index | str | Path | None = None,
    glimpses: int = GLIMPSES,
    forwards: int = FORWARDS,
    trust: bool = True,
    batch: int = 16,
    device: str | torch.device | None = None,
    max_pixels: int = MAX_PIXELS,
    fit: str | None = None,
) -> Results[Evidence]:  # a public door: every option by its name
    """One answer per picture with all of its evidence: `looks[0].words` says it in a paragraph.

    `net` is any classifier; one that was calibrated (`fovea.calibrate`) tells calibrated probabilities. Maps are of
    what each cell adds to a logit, or by another `method`. What is enough, and what is needed, is searched for in at
    most `forwards` passes through the network per picture, all of the look counted; more find less. Where a picture has
    more pixels than the network took, `glimpses` parts of it are looked at closely. An `index` (of `fovea.index`) shows
    the nearest pictures. Without `trust` maps are not checked, which saves five passes."""
    demand_kinds(look, locals(), but="method")
    network = networks.as_network(net, device).fitted(fit)
    opened = open_index(index) if isinstance(index, (str, Path)) else index
    options = LookOptions(method, opened, glimpses, forwards, trust)
    return Results.of(look_steps(network, pictures, options, batch, max_pixels), "look", settings_of(network, options))


def settings_of(network: Network, options: LookOptions) -> dict[str, Any]:
    """What results tell of how a network was asked."""
    about = {"index": None if options.index is None else options.index.file.name, "glimpses": options.glimpses}
    name = options.method if isinstance(options.method, str) or options.method is None else "given"
    told = network.settings(method=name, forwards=options.forwards, input=networks.input_of(network), **about)
    return told | {"temperature": network.temperature}


@bounded
def look_steps(
    network: Network, pictures: Inputs, options: LookOptions, batch: int = 16, max_pixels: int = MAX_PIXELS
) -> Iterator[Step[Evidence]]:
    """Batch after batch, so that a folder of any size needs the memory of one; files too large to load one by one."""
    if medium_of(network) != "pictures" or network.can("frames"):
        other = "'fovea explain' is for clips, 'fovea localize' for texts and sounds"
        raise BadChoice(f"{network.name or 'this network'} takes no pictures to look at: {other}")
    looker = PictureLooker(network, options)

    def looked(group: Group, tensors: Tensor) -> list[Evidence]:
        return looker.of(tensors, group.shown, group.done - len(tensors), group.total)

    def closely(picture: Picture, big: BigPicture) -> Evidence:
        viewed = Viewed(network, picture, big)
        ((tensors, shown),) = viewed.taken([viewed.whole], 1)
        return looker.of(tensors, shown, 0, 1)[0]

    def others(given: Inputs) -> Iterator[Step[Evidence]]:
        return starmap(Step, in_order(network, groups(network, given, batch, max_pixels), looked, [PictureLooker]))

    yield from in_turn(pictures, max_pixels, closely, others)


@dataclass(frozen=True)
class PictureLooker:
    """A network and what is asked of it."""

    network: Network
    options: LookOptions
    copies: list[Copy] = field(default_factory=list)
    macs: dict[tuple[int, ...], int | None] = field(default_factory=dict)

    def of(self, tensors: Tensor, shown: Sequence[Shown], done: int, total: int) -> list[Evidence]:
        """All pictures of a batch; maps and checks are of all at once, what is searched for of one after the other."""
        network, start = networks.labeled(self.network, tensors), perf_counter()
        seen = see(network, tensors, shown, self.options.method)
        checks: Sequence[Trust | None] = [None] * len(tensors)
        if self.options.trust and not network.can("glimpses"):
            if not self.copies:
                self.copies.append(Copy(network))
            checks = trusted(self.copies[0], tensors, shown, seen)
        best, found = networks.predictions(network, seen.output), list[Evidence]()
        shared = (perf_counter() - start) / len(tensors)
        for i, (picture, check) in enumerate(zip(shown, checks, strict=True)):
            if total > 1:
                tell(f"picture {done + i + 1:,} of {total:,}")
            one = One(network, tensors[i : i + 1], replace(picture, predictions=best[i]), seen, i)
            found.append(self._one(one, check, shared))
        tell("")
        return found

    def _one(self, one: "One", trust: Trust | None, shared: float) -> Evidence:
        start, network, picture = perf_counter(), one.network, one.picture
        shares, closer = one.seen.shares[one.place], self._closer(one)
        masked = Masked.of(network, picture, int(one.seen.classes[one.place, 0]))
        place = one.on_input(shares.shown.placement)
        left = self.options.forwards - FIXED - (closer.forwards if closer else 0)
        ranks = [masked.ranked(shares.map(target), place) for target in (len(shares.targets) - 1, 0)]
        kept = least(masked, ranks, True, round(FOR_ENOUGH * left))
        lost = least(masked, ranks, False, left - masked.forwards)
        found = [_sufficient(masked, part, keeps, one.shown) for part, keeps in ((kept, True), (lost, False))]
        passes = masked.forwards + 1 + (1 + len(trust.changes) if trust else 0) + (closer.forwards if closer else 0)
        placement, pixels = one.shown.placement, picture.shape[2] * picture.shape[3]
        whole = pixels if placement is None else placement.picture[0] * placement.picture[1]
        likeness = alike(network, picture, [one.shown], PROTOTYPES)[0] if network.can("prototypes") else None
        longer, like = self._longer(one), self._like(one.shown)
        macs, ms = self._macs(network, picture), 1000 * (shared + perf_counter() - start)
        return Evidence(
            shown=one.shown,
            calibrated=network.temperature is not None,
            heatmap=one.seen.maps[one.place],
            contrast=shares if len(shares.targets) > 2 else None,
            enough=found[0],
            needed=found[1],
            closer=closer,
            longer=longer,
            prototypes=likeness,
            like=like,
            trust=trust,
            cost=Cost(passes, macs, round(ms, 1), pixels, whole),
        )

    def _closer(self, one: "One") -> CloserLook | None:
        network, shown, heatmap = one.network, one.shown, one.seen.shares[one.place]
        if not network.can("glimpses"):
            whole = shares_of(network, one.seen.output[one.place]).cpu()
            return look_closer(network, heatmap, whole, self.options.glimpses)
        if not isinstance(shown.picture, Picture):
            return None
        ((answer,),) = (step.results for step in zoom_steps(network, [shown.picture]) if step.results)
        windows = tuple(Closely(read.visible, read.label, read.probability) for read in answer.glimpses)
        said = answer.label, answer.probability
        cost, passes = answer.cost, 1 + len(windows)
        return CloserLook(windows, *said, cost.pixels_in_windows, cost.share, passes, cost.resolution)

    def _longer(self, one: "One") -> Looked | None:
        if not one.network.can("streams") or not isinstance(one.shown.picture, Picture):
            return None
        return next(step.results[0] for step in look_batches(one.network, [one.shown.picture]) if step.results)

    def _like(self, shown: Shown) -> Neighbors | None:
        if self.options.index is None or not isinstance(shown.picture, Picture):
            return None
        return self.options.index.search([shown.picture])[0]

    def _macs(self, network: Network, picture: Tensor) -> int | None:
        shape = tuple(picture.shape)
        if shape not in self.macs:
            try:
                self.macs[shape] = networks.macs(network, picture)
            except Exception:  # of a network that counting does not get along with, what it costs is not known
                self.macs[shape] = None
        return self.macs[shape]


@dataclass(frozen=True)
class One:
    """One picture of a batch that was seen."""

    network: Network
    picture: Tensor  # 1,C,H,W
    shown: Shown  # with its best labels
    seen: Seen
    place: int

    def on_input(self, placement: Placement | None) -> Placement | None:
        """Where a map lies on the input, if not evenly on all of it: that of a stream may be of a window."""
        own, (height, width) = self.shown.placement, self.picture.shape[2:]
        if placement is None or own is None or placement == own:
            return None
        axes = zip(placement.scale, placement.offset, own.scale, own.offset, strict=True)
        lines = [(scale / by, (offset - start) / by) for scale, offset, by, start in axes]
        (across, left), (down, top) = lines
        return Placement((width, height), placement.input, (across, down), (left, top))


def _sufficient(masked: Masked, patches: Patches | None, keeps: bool, picture: Shown) -> Sufficient | None:
    """What was found, and what the network answers to it; with the least that was seen to do on one background."""
    if patches is None:
        return None
    shown, said, alone = patches if keeps else masked.every - patches, dict[str, GroundAnswer](), dict[str, float]()
    for background in BACKGROUNDS:
        shares = shares_of(masked.network, masked.logits([shown], background))[0]
        best = int(shares.argmax())
        said[background] = GroundAnswer(masked.network.label(best), float(shares[best]), float(shares[masked.answer]))
        kept = ((tried, row) for (tried, ground), row in masked.known.items() if ground == background)
        does = (tried for tried, row in kept if (int(row.argmax()) == masked.answer) == keeps)
        alone[background] = min(masked.share(tried if keeps else masked.every - tried) for tried in does)
    boxes = tuple(on_picture(box, picture) for box in masked.boxes(patches))
    return Sufficient(patches, boxes, masked.share(patches), said, alone)
