"""Why was it wrong: the patches that speak for a class, in pictures of it and of others (AnchorNet, Fig. 8), and what
each branch took a picture for, beside a picture of what it was mistaken for (Fig. 9).

A picture's patch is the best cell of its heatmap. Patches of several pictures are compared by their evidence: what the
cell alone says for the class, before attention, which depends on the rest of the picture, weighs it."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fovea.basics import BadChoice, BadPicture, Progress, bounded, quiet
from fovea.data import DataSet, Sample, pictures_of
from fovea.networks import Matching, Network, groups, match, shares_of
from fovea.patches.localize import NOTE
from fovea.patches.localized import on_picture
from fovea.patches.options import LocalizeOptions
from fovea.patches.reasons import BranchWhy, ClassReport, PatchOf, PictureReport
from fovea.patches.scales import branches_of, look, seen_by_branches
from fovea.pictures import Given, Shown
from fovea.results import Results

BY_CAM = LocalizeOptions(method="cam")
EVERY = 48  # pictures of a class that are searched for a representative one


@bounded
def for_class(
    network: Network,
    data: DataSet,
    label: str | int,
    *,
    most: int = 8,
    options: LocalizeOptions = BY_CAM,
    batch: int = 16,
    progress: Progress = quiet,
) -> ClassReport:
    """Fig. 8. Of `options`, `branch` counts, and `method` and `side` for networks without branches; a method's values
    must compare between pictures, as those of cam do and those of l2caf, whose filters all have the norm 1, do not."""
    if (options.method or "").startswith("l2caf") and not network.can("branches"):
        raise BadChoice(f"{options.method}'s values do not compare between pictures: use method cam or gradcam")
    wanted = network.index(label)
    matching = match(network, data, len(network.labels or ()))
    if wanted not in matching.outputs.values():
        raise BadChoice(f"{data.name} has no picture of {network.label(wanted)!r}: take another class, split or limit")
    best: dict[bool, list[PatchOf]] = {True: [], False: []}  # of the class itself, of others
    counts = {True: 0, False: 0}
    skipped: list[tuple[str, str]] = []
    source = ""
    for samples, tensors, shown in _batches(network, data, batch, skipped, progress):
        source, maps = _maps(network, tensors, shown, wanted, options)
        for sample, cells, place in zip(samples, maps, shown, strict=True):
            true = matching.outputs[sample.label]
            counts[true == wanted] += 1
            best[true == wanted].append(_best_patch(sample, network.label(true), *cells, place))
        best = {kind: sorted(patches, key=lambda patch: -patch.evidence)[:most] for kind, patches in best.items()}
    if not sum(counts.values()):
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else "no pictures")
    about = network.name or "network", data.name, (counts[True], counts[False]), source, tuple(skipped)
    return ClassReport(network.label(wanted), tuple(best[True]), tuple(best[False]), *about)


def _maps(
    network: Network, tensors: Tensor, shown: Sequence[Shown], wanted: int, options: LocalizeOptions
) -> tuple[str, list[tuple[int, Tensor, Tensor, Tensor]]]:
    """Where the heatmaps come from, and for each picture the side, the heatmap, its evidence and its boxes, by the
    branch that gives the class most."""
    branch = options.branch
    if not network.can("branches"):
        target = torch.full((len(tensors),), wanted, device=tensors.device)
        seen = look(network, tensors, target, branch, options.method or "cam", options.side, shown)
        (scale,) = seen.scales
        return f"{seen.source}: {NOTE}", [(scale.side, values, values, scale.boxes) for values in scale.values]
    out, boxes, sides = seen_by_branches(network, tensors)
    if branch is not None and branch not in sides:
        raise BadChoice(f"no branch of {branch} pixels (there are: {', '.join(map(str, sides))})")
    shares = torch.stack([shares_of(network, each.logits)[:, wanted] for each in out.branches])  # J,N
    chosen = shares.argmax(0).tolist() if branch is None else [sides.index(branch)] * len(tensors)
    maps = [
        (sides[j], out.branches[j].activation[i, wanted], out.branches[j].evidence[i, wanted], boxes[j])
        for i, j in enumerate(chosen)
    ]
    source = f"branches of {'/'.join(map(str, sides))} pixels"
    return source if branches_of(network).proven else f"{source}: {NOTE}", maps


@bounded
def for_pictures(
    network: Network,
    pictures: Given | Iterable[Given],
    true: str | int | None = None,
    data: DataSet | None = None,
    *,
    batch: int = 16,
    progress: Progress = quiet,
) -> Results[PictureReport]:
    """Fig. 9, for pictures of the class `true`; `data` has the pictures of what they were mistaken for."""
    branches_of(network)
    wanted = -1 if true is None else network.index(true)
    skipped: list[tuple[str, str]] = []
    reports: list[PictureReport] = []
    for samples, tensors, shown in _batches(network, pictures_of(pictures), batch, skipped, progress):
        reports += _reports(network, samples, tensors, shown, {0: wanted})
    if data is not None:
        reports = _with_mistaken(network, reports, data, batch, progress)
    return Results(tuple(reports), tuple(skipped), "why", {"net": network.name})


@bounded
def disagreements(
    network: Network, data: DataSet, *, most: int = 6, batch: int = 16, progress: Progress = quiet
) -> Results[PictureReport]:
    """Fig. 9, for a few pictures of a set where the narrowest and the widest branch disagree, one of them wrong. Those
    come first whose wrong branch is most sure; at most one for each pair of classes while there are others."""
    branches_of(network)
    matching = match(network, data, len(network.labels or ()))
    found: list[PictureReport] = []
    skipped: list[tuple[str, str]] = []
    for samples, tensors, shown in _batches(network, data, batch, skipped, progress):
        reports = _reports(network, samples, tensors, shown, matching.outputs)
        found += [report for report in reports if bool(report.branches[0].right) != bool(report.branches[-1].right)]
    found.sort(key=lambda report: -max(branch.probability for branch in report.branches if not branch.right))
    surest: dict[tuple[str, ...], int] = {}
    for report in found:
        wrong = (branch.label for branch in report.branches if not branch.right)
        surest.setdefault((report.true, *wrong), id(report))
    found.sort(key=lambda report: id(report) not in surest.values())  # stable: the surest of each pair first
    completed = _with_mistaken(network, found[:most], data, batch, progress)
    return Results(tuple(completed), tuple(skipped), "why", {"net": network.name, "data": data.name})


def _reports(
    network: Network, samples: Sequence[Sample], tensors: Tensor, shown: Sequence[Shown], true: Mapping[int, int]
) -> Iterator[PictureReport]:
    """`true`: the output that a sample's label stands for; below 0 where nobody knows."""
    out, boxes, sides = seen_by_branches(network, tensors)
    shares = [shares_of(network, branch.logits).max(1) for branch in out.branches]
    best = shares_of(network, out.logits).amax(1)  # N
    for i, sample in enumerate(samples):
        truth = int(true[sample.label])
        name = network.label(truth) if truth >= 0 else ""
        branches = []
        for share, branch, box, side in zip(shares, out.branches, boxes, sides, strict=True):
            taken = int(share.indices[i])
            cells = branch.activation[i, taken], branch.evidence[i, taken]
            patch = _best_patch(sample, name, side, *cells, box, shown[i])
            right = None if truth < 0 else taken == truth
            branches.append(BranchWhy(side, network.label(taken), float(share.values[i]), patch, right))
        label, net = network.label(int(out.decision.label[i])), network.name or "the network"
        yield PictureReport(sample.name, sample, name, label, float(best[i]), tuple(branches), net)


def _with_mistaken(
    network: Network, reports: Sequence[PictureReport], data: DataSet, batch: int, progress: Progress
) -> list[PictureReport]:
    """A representative picture for each branch that was wrong, or whose being right nobody knows."""
    labels = {branch.label for report in reports for branch in report.branches if not branch.right}
    matching = match(network, data, len(network.labels or ()))
    known = representatives(network, data, matching, labels, batch, progress) if labels else {}

    def completed(branch: BranchWhy) -> BranchWhy:
        return branch if branch.right else replace(branch, mistaken_for=known.get((branch.label, branch.side)))

    return [replace(report, branches=tuple(map(completed, report.branches))) for report in reports]


@bounded
def representatives(
    network: Network,
    data: DataSet,
    matching: Matching,
    names: Collection[str],
    batch: int = 16,
    progress: Progress = quiet,
) -> dict[tuple[str, int], PatchOf]:
    """For each of these classes and each branch's side the picture of the class whose patch speaks most for it."""
    kept: list[Sample] = []
    for label, output in matching.outputs.items():
        if network.label(output) in names:
            own = replace(data, samples=tuple(sample for sample in data.samples if sample.label == label))
            kept += own.first(EVERY).samples
    best: dict[tuple[str, int], PatchOf] = {}
    for samples, tensors, shown in _batches(network, replace(data, samples=tuple(kept)), batch, [], progress):
        out, boxes, sides = seen_by_branches(network, tensors)
        for i, sample in enumerate(samples):
            output = matching.outputs[sample.label]
            name = network.label(output)
            for branch, box, side in zip(out.branches, boxes, sides, strict=True):
                cells = branch.activation[i, output], branch.evidence[i, output]
                patch = _best_patch(sample, name, side, *cells, box, shown[i])
                if (name, side) not in best or patch.evidence > best[name, side].evidence:
                    best[name, side] = patch
    return best


def _batches(
    network: Network, data: DataSet, batch: int, skipped: list[tuple[str, str]], progress: Progress
) -> Iterator[tuple[list[Sample], Tensor, Sequence[Shown]]]:
    for group in groups(network, data, batch):
        skipped += group.skipped
        if group.batch is not None:
            yield group.of(data.samples), group.batch, group.shown
        progress(group.done, group.total)


def _best_patch(
    sample: Sample, true: str, side: int, values: Tensor, evidence: Tensor, boxes: Tensor, shown: Shown
) -> PatchOf:
    """The best cell of one heatmap (h,w), with its evidence (h,w)."""
    cell = int(values.argmax())
    return PatchOf(sample, true, side, on_picture(boxes[cell].tolist(), shown), float(evidence.flatten()[cell]))
