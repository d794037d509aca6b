"""fovea.localize: the informative patches of pictures, by AnchorNet or by any network's attention map."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from fovea.basics.errors import BadChoice
from fovea.models.anchoring import AnchorNetOutput
from fovea.networks.classes import predictions
from fovea.networks.inputs import Inputs, groups
from fovea.networks.network import Network, as_found, wrap
from fovea.patches.found import Answer, Found, Patch, Regions
from fovea.patches.lip import Settings, for_test
from fovea.patches.media import medium_of, refuse_unused
from fovea.patches.scales import Anchored, Choice, Look, Scale, look
from fovea.pictures import MAX_PIXELS, tell_skipped
from fovea.pictures.placement import Placement
from fovea.pictures.shown import Shown

if TYPE_CHECKING:
    from fovea.patches.sound import SoundRegions
    from fovea.patches.text import TextRegions

NOTE = "squares around cells that may see the whole picture"


@dataclass(frozen=True)
class Step:
    """One batch localised."""

    found: list[Found]
    skipped: list[tuple[str, str]]
    done: int
    total: int


def localize(
    net: Network | nn.Module,
    pictures: Inputs,
    *,
    count: int | None = None,
    overlap: float | None = None,
    share: float | None = None,
    branch: int | None = None,
    target: str | int | None = None,
    method: str | None = None,
    side: int | None = None,
    batch: int = 16,
    max_pixels: int = MAX_PIXELS,
) -> "Regions | TextRegions | SoundRegions":
    """The patches that speak for what a picture is taken for, or for a class `target`: LIP on its heatmap.

    At most `count` patches (K), any two of which overlap by an IoU below `overlap` (T), among the best `share` of the
    cells (P); unless given, as the paper tests: patches that together are no larger than the picture, 0.5, 0.05.
    `branch` has AnchorNet localise by the branch with that side. For other networks `method` names the attention map,
    l2caf unless given, and `side` is the patches' side in pixels of the network's input.

    A network for text is given texts and marks the span of words of each, for `target` and by `branch` where asked; one
    for sounds is given .wav files and tells at most `count` spans of time.
    """
    network = net if isinstance(net, Network) else wrap(net)
    medium = medium_of(network)
    if medium != "pictures":
        options = {"count": count, "overlap": overlap, "share": share, "branch": branch, "target": target, "side": side}
        refuse_unused([medium], options)
    if medium == "texts":
        from fovea.patches.text import localize_texts

        return localize_texts(network, pictures, target, branch)  # type: ignore[arg-type]  # texts, then
    if medium == "sounds":
        from fovea.patches.sound import localize_sounds

        return localize_sounds(network, pictures, 1 if count is None else count)  # type: ignore[arg-type]
    settings = choice(count, overlap, share)
    found: list[Found] = []
    skipped: list[tuple[str, str]] = []
    for step in localize_batches(network, pictures, settings, branch, target, method, side, batch, max_pixels):
        found += step.found
        skipped += step.skipped
    tell_skipped(bool(found), skipped)
    return Regions(tuple(found), tuple(skipped))


def choice(count: int | None, overlap: float | None, share: float | None) -> Choice:
    """LIP's settings as asked for, and as in the paper where nothing was."""
    Settings(1 if count is None else count, *(0.5 if one is None else one for one in (overlap, share)))  # checks them

    def settings(side: int, size: Sequence[int]) -> Settings:
        usual = for_test(side, size)
        return Settings(
            usual.count if count is None else count,
            usual.overlap if overlap is None else overlap,
            usual.share if share is None else share,
        )

    return settings


def localize_batches(
    network: Network,
    pictures: Inputs,
    settings: Choice = for_test,
    branch: int | None = None,
    target: str | int | None = None,
    method: str | None = None,
    side: int | None = None,
    batch: int = 16,
    max_pixels: int = MAX_PIXELS,
) -> Iterator[Step]:
    """Batch after batch, so that a folder of any size needs the memory of one."""
    if batch < 1:
        raise BadChoice(f"a batch holds at least one picture; got {batch}")
    if method is not None and isinstance(network.module, Anchored):
        raise BadChoice(f"method is for networks without branches; {network.name or 'this one'} has its own evidence")
    wanted: int | None = None
    for group in groups(network, pictures, batch, max_pixels):
        found: list[Found] = []
        if group.batch is not None:
            tensors = group.batch.to(network.device, network.dtype)
            if target is not None and wanted is None:
                wanted = network.index(target, outputs_of(network, tensors))
            label = None if wanted is None else torch.full((len(tensors),), wanted, device=tensors.device)
            seen = look(network, tensors, label, branch, method or "l2caf", side, group.shown)
            found = _found(network, seen, settings, group.shown, (tensors.shape[2], tensors.shape[3]))
        yield Step(found, group.skipped, group.done, group.total)


def outputs_of(network: Network, batch: Tensor) -> int:
    """How many classes a network has: as many as labels, or as outputs."""
    if network.labels is not None:
        return len(network.labels)
    with as_found(network), torch.no_grad():
        out = network.module(batch[:1])
    return int((out.logits if isinstance(out, AnchorNetOutput) else network.read(out)).shape[1])


def _found(
    network: Network, seen: Look, settings: Choice, shown: Sequence[Shown], size: tuple[int, int]
) -> list[Found]:
    made: dict[int, Found] = {}
    note = "" if seen.proven else f"{seen.source}: {NOTE}"
    answers, best = _answers(network, seen, shown, size), predictions(network, seen.output)
    for scale, (own, picks) in zip(seen.scales, seen.picks(settings, size), strict=True):
        for row, i in enumerate(own.tolist()):
            told = shown[i]
            cells = [cell for cell in picks.cells[row].tolist() if cell >= 0]
            patches = tuple(_patch(scale, i, cell, told, size) for cell in cells)
            made[i] = Found(
                replace(told, predictions=best[i]),
                network.label(int(seen.label[i])),
                float(seen.probability[i]),
                scale.side,
                patches,
                scale.values[i].cpu().numpy(),
                answers[i],
                tuple(one.attention[i].float().cpu().numpy() for one in seen.scales if one.attention is not None),
                note,
            )
    return [made[i] for i in range(len(shown))]


def _answers(network: Network, seen: Look, shown: Sequence[Shown], size: tuple[int, int]) -> list[tuple[Answer, ...]]:
    """What each branch says on its own; a network without branches says one thing only."""
    if len(seen.scales) < 2:
        return [()] * len(shown)
    each = []
    for scale in seen.scales:
        probability, label = scale.logits.float().softmax(1).max(1)
        each.append((scale, probability.tolist(), label.tolist()))
    return [
        tuple(
            Answer(
                scale.side,
                network.label(label[i]),
                probability[i],
                _best(scale, i, shown[i], size),
            )
            for scale, probability, label in each
        )
        for i in range(len(shown))
    ]


def _best(scale: Scale, picture: int, shown: Shown, size: tuple[int, int]) -> Patch:
    """For the label that this branch itself gives."""
    own = scale.values if scale.own is None else scale.own
    return _patch(replace(scale, values=own), picture, int(own[picture].argmax()), shown, size)


def _patch(scale: Scale, picture: int, cell: int, shown: Shown, size: tuple[int, int]) -> Patch:
    x0, y0, x1, y1 = scale.boxes[cell].tolist()
    placement = shown.placement or Placement.identity(size[1], size[0])
    (sx, sy), (ox, oy) = placement.scale, placement.offset
    box = (x0 * sx + ox, y0 * sy + oy, x1 * sx + ox, y1 * sy + oy)
    row, column = divmod(cell, scale.grid[1])
    return Patch(box, float(scale.values[picture, row, column]), (row, column))
