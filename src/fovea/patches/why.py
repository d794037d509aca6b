"""Why was it wrong: the patches that speak for a class, in pictures of it and of others (AnchorNet, Fig. 8), and what
each branch took a picture for, beside a picture of what it was mistaken for (Fig. 9).

A picture's patch is the best cell of its heatmap. Patches of several pictures are compared by their evidence: what the
cell alone says for the class, before attention, which depends on the rest of the picture, weighs it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice, BadNetwork, BadPicture
from fovea.data import DataSet, Sample
from fovea.models.anchoring import AnchorNetOutput
from fovea.networks.matching import Matching, match
from fovea.networks.network import Network, as_found
from fovea.networks.stream import batches, prepared
from fovea.patches.localize import NOTE
from fovea.patches.reasons import BranchWhy, ClassReport, PictureReport, Shot
from fovea.patches.scales import Anchored, look
from fovea.pictures import Given, gather
from fovea.pictures.placement import Placement
from fovea.pictures.shown import Shown

Progress = Callable[[int, int], None]
EVERY = 48  # pictures of a class that are searched for a representative one


def for_class(
    network: Network,
    data: DataSet,
    label: str | int,
    most: int = 8,
    method: str = "cam",
    side: int | None = None,
    branch: int | None = None,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> ClassReport:
    """Fig. 8. `method` and `side` are for networks without branches; its values must compare between pictures, as those
    of cam do and those of l2caf, whose filters all have the norm 1, do not."""
    if most < 1:
        raise BadChoice(f"at least one patch is asked for; got {most}")
    if method.startswith("l2caf") and not isinstance(network.module, Anchored):
        raise BadChoice(f"{method}'s values do not compare between pictures: use method cam or gradcam")
    wanted = network.index(label)
    matching = match(network, data, len(network.labels or ()))
    if wanted not in matching.outputs.values():
        raise BadChoice(f"{data.name} has no picture of {network.label(wanted)!r}: take another class, split or limit")
    shots: dict[bool, list[Shot]] = {True: [], False: []}
    counts = {True: 0, False: 0}
    skipped: list[tuple[str, str]] = []
    source = ""
    for samples, tensors, shown in _stream(network, data, batch, skipped, progress):
        source, found = _patches(network, tensors, shown, wanted, branch, method, side)
        for i, (sample, (width, value, evidence, boxes)) in enumerate(zip(samples, found, strict=True)):
            true = matching.outputs[sample.label]
            own = true == wanted
            counts[own] += 1
            shots[own].append(_shot(sample, network.label(true), width, value, evidence, boxes, shown[i]))
        shots = {own: _best(found, most) for own, found in shots.items()}
    if not sum(counts.values()):
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else "no pictures")
    return ClassReport(
        network.label(wanted),
        tuple(shots[True]),
        tuple(shots[False]),
        network.name or "network",
        data.name,
        (counts[True], counts[False]),
        source,
        tuple(skipped),
    )


def _patches(
    network: Network,
    tensors: Tensor,
    shown: Sequence[Shown],
    wanted: int,
    branch: int | None,
    method: str,
    side: int | None,
) -> tuple[str, list[tuple[int, Tensor, Tensor, Tensor]]]:
    """Where the heatmaps come from, and for each picture the side, the heatmap, its evidence and its boxes, by the
    branch that gives the class most."""
    if not isinstance(network.module, Anchored):
        aim = torch.full((len(tensors),), wanted, device=tensors.device)
        seen = look(network, tensors, aim, branch, method, side, shown)
        (scale,) = seen.scales
        return f"{seen.source}: {NOTE}", [(scale.side, one, one, scale.boxes) for one in scale.values]
    out, boxes, sides = _seen(network, tensors)
    if branch is not None and branch not in sides:
        raise BadChoice(f"no branch of {branch} pixels (there are: {', '.join(map(str, sides))})")
    shares = torch.stack([one.logits.float().softmax(1)[:, wanted] for one in out.branches])  # J,N
    chosen = shares.argmax(0).tolist() if branch is None else [sides.index(branch)] * len(tensors)
    found = []
    for i, j in enumerate(chosen):
        one = out.branches[j]
        found.append((sides[j], one.activation[i, wanted], one.evidence[i, wanted], boxes[j]))
    source = f"branches of {'/'.join(map(str, sides))} pixels"
    return source if network.module.proven else f"{source}: {NOTE}", found


def for_picture(
    network: Network,
    picture: Given,
    true: str | int | None = None,
    data: DataSet | None = None,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> PictureReport:
    """Fig. 9, for a picture of the class `true`; `data` has the pictures of what it was mistaken for."""
    reports, skipped = for_pictures(network, picture, true, data, batch, progress)
    if skipped:
        raise BadPicture(skipped[0][1])
    if len(reports) != 1:
        raise BadChoice(f"one picture is asked about; {picture} are {len(reports)}")
    return reports[0]


def for_pictures(
    network: Network,
    pictures: Given | Iterable[Given],
    true: str | int | None = None,
    data: DataSet | None = None,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> tuple[list[PictureReport], list[tuple[str, str]]]:
    """The same for several pictures of one class; those that cannot be read come with the reason."""
    _branches_of(network)
    wanted = -1 if true is None else network.index(true)
    given = tuple(Sample(one.name, wanted, one) for one in gather(pictures))
    skipped: list[tuple[str, str]] = []
    reports: list[PictureReport] = []
    for samples, tensors, shown in _stream(network, DataSet("pictures", given), batch, skipped, progress):
        reports += _reports(network, samples, tensors, shown, {wanted: wanted})
    return reports if data is None else _with_mistaken(network, reports, data, batch, progress), skipped


def disagreements(
    network: Network,
    data: DataSet,
    most: int = 6,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> tuple[list[PictureReport], list[tuple[str, str]]]:
    """Fig. 9, for a few pictures of a set where the narrowest and the widest branch disagree, one of them wrong.

    Those come first whose wrong branch is most sure; at most one for each pair of classes while there are others. With
    them come the pictures that cannot be read, and why.
    """
    _branches_of(network)
    matching = match(network, data, len(network.labels or ()))
    found: list[PictureReport] = []
    skipped: list[tuple[str, str]] = []
    for samples, tensors, shown in _stream(network, data, batch, skipped, progress):
        reports = _reports(network, samples, tensors, shown, matching.outputs)
        found += [one for one in reports if _disagree(one)]
    found.sort(key=_sureness, reverse=True)
    seen: dict[tuple[str, ...], int] = {}
    for one in found:
        seen.setdefault((one.true, *(branch.label for branch in one.branches if not branch.right)), id(one))
    found.sort(key=lambda one: id(one) not in seen.values())  # stable: the surest of each pair first
    return _with_mistaken(network, found[:most], data, batch, progress), skipped


def _disagree(report: PictureReport) -> bool:
    narrow, wide = report.branches[0], report.branches[-1]
    return bool(narrow.right) != bool(wide.right)


def _sureness(report: PictureReport) -> float:
    return max(one.probability for one in report.branches if not one.right)


def _branches_of(network: Network) -> Anchored:
    if not isinstance(network.module, Anchored):
        raise BadNetwork(
            f"{network.name or 'the network'} has no branches to compare: take one that has, such as "
            "anchornet-imagenette, or ask about a class of a data set"
        )
    return network.module


def _reports(
    network: Network, samples: Sequence[Sample], tensors: Tensor, shown: Sequence[Shown], true: Mapping[int, int]
) -> Iterator[PictureReport]:
    """`true`: the output that a sample's label stands for; below 0 where nobody knows."""
    out, boxes, sides = _seen(network, tensors)
    shares = [one.logits.float().softmax(1).max(1) for one in out.branches]
    for i, sample in enumerate(samples):
        own = int(true[sample.label])
        name = network.label(own) if own >= 0 else ""
        branches = []
        for share, one, box, side in zip(shares, out.branches, boxes, sides, strict=True):
            taken = int(share.indices[i])
            patch = _shot(sample, name, side, one.activation[i, taken], one.evidence[i, taken], box, shown[i])
            right = None if own < 0 else taken == own
            branches.append(BranchWhy(side, network.label(taken), float(share.values[i]), patch, right))
        label, probability = network.label(int(out.decision.label[i])), float(out.decision.probability[i])
        yield PictureReport(
            sample.name, sample, name, label, probability, tuple(branches), network.name or "the network"
        )


def _seen(network: Network, tensors: Tensor) -> tuple[AnchorNetOutput, list[Tensor], list[int]]:
    module = _branches_of(network)
    with as_found(network), torch.no_grad():
        out = network.module(tensors)
    assert isinstance(out, AnchorNetOutput)
    boxes = [one.boxes() for one in module.geometries((tensors.shape[2], tensors.shape[3]))]
    return out, boxes, [int(one[0, 2] - one[0, 0]) for one in boxes]


def _with_mistaken(
    network: Network, reports: Sequence[PictureReport], data: DataSet, batch: int, progress: Progress
) -> list[PictureReport]:
    """A representative picture for each branch that was wrong, or whose being right nobody knows."""
    asked = {(one.label, one.side) for report in reports for one in report.branches if not one.right}
    matching = match(network, data, len(network.labels or ()))
    names = {label for label, _ in asked}
    known = representatives(network, data, matching, names, batch, progress) if asked else {}
    return [
        replace(
            report,
            branches=tuple(
                one if one.right else replace(one, mistaken_for=known.get((one.label, one.side)))
                for one in report.branches
            ),
        )
        for report in reports
    ]


def representatives(
    network: Network,
    data: DataSet,
    matching: Matching,
    names: Collection[str],
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> dict[tuple[str, int], Shot]:
    """For each of these classes and each branch's side the picture of the class whose patch speaks most for it."""
    kept: list[Sample] = []
    for label, output in matching.outputs.items():
        if network.label(output) in names:
            own = replace(data, samples=tuple(one for one in data.samples if one.label == label))
            kept += own.first(EVERY).samples
    found: dict[tuple[str, int], Shot] = {}
    for samples, tensors, shown in _stream(network, replace(data, samples=tuple(kept)), batch, [], progress):
        out, boxes, sides = _seen(network, tensors)
        for i, sample in enumerate(samples):
            own_output = matching.outputs[sample.label]
            name = network.label(own_output)
            for one, box, side in zip(out.branches, boxes, sides, strict=True):
                value, evidence = one.activation[i, own_output], one.evidence[i, own_output]
                shot = _shot(sample, name, side, value, evidence, box, shown[i])
                if (name, side) not in found or shot.evidence > found[name, side].evidence:
                    found[name, side] = shot
    return found


def _stream(
    network: Network, data: DataSet, batch: int, skipped: list[tuple[str, str]], progress: Progress
) -> Iterator[tuple[list[Sample], Tensor, list[Shown]]]:
    done = 0
    for samples, images in batches(data, batch, skipped):
        tensors, shown, _ = prepared(network, samples, images)
        yield samples, tensors, shown
        done += len(samples)
        progress(done + len(skipped), len(data))


def _shot(sample: Sample, true: str, side: int, value: Tensor, evidence: Tensor, boxes: Tensor, shown: Shown) -> Shot:
    """The best cell of one heatmap (h,w), with its evidence (h,w)."""
    cell = value.argmax()
    placement = shown.placement or Placement.identity(*shown.image().size)
    (sx, sy), (ox, oy) = placement.scale, placement.offset
    x0, y0, x1, y1 = boxes[int(cell)].tolist()
    box = (x0 * sx + ox, y0 * sy + oy, x1 * sx + ox, y1 * sy + oy)
    return Shot(sample, true, side, box, float(evidence.flatten()[cell]))


def _best(shots: Sequence[Shot], most: int) -> list[Shot]:
    return sorted(shots, key=lambda one: -one.evidence)[:most]
