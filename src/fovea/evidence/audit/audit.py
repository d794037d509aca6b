"""fovea.audit: what a classifier's answers rest on, over a data set: shortcuts, backgrounds, close classes."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from PIL import Image
from torch import Tensor

from fovea import networks
from fovea.basics import BadChoice, BadPicture, Progress, bounded, demand_kinds, quiet, tell
from fovea.data import DataSet, Sample, Unreadable, open_loosely
from fovea.evidence.audit.clusters import Cluster, clusters_of
from fovea.evidence.audit.examined import Examination, Examined, Vectors
from fovea.evidence.audit.findings import (
    AuditFinding,
    backgrounds,
    first_words,
    is_shortcut,
    is_suspect,
    once_each,
    pairs,
    shortcut,
    shown,
)
from fovea.evidence.audit.report import WIDE, Audited, ClassAudit, Findings
from fovea.evidence.audit.store import AuditStore, opened
from fovea.evidence.audit.table import PatchTable
from fovea.evidence.audit.transplanting import moved
from fovea.evidence.where import SHARE
from fovea.heatmaps import Versus, look_at
from fovea.networks import Group, Matching, Network, NetworkLike, filling, groups, hash_of, in_order, match
from fovea.patches import medium_of
from fovea.pictures import Picture, Placement, tell_skipped

SHOWN = 6  # clusters of a class
NO_MAPS = ("frames", "streams", "glimpses", "embedding")  # abilities of networks whose answer has no map, or no classes


@bounded
def audit(
    net: NetworkLike,
    data: str | Path | DataSet,
    *,
    boxes: bool = True,
    limit: int | None = None,
    folder: str | Path | None = None,
    batch: int = 16,
    device: str | torch.device | None = None,
    progress: Progress = quiet,
) -> Audited:
    """What to look at first, then one report per class with the patches that speak for it.

    `data` is a folder of pictures, per class or not, or a data set by name ("cub100:split=test"); its `boxes`, where it
    has any, tell what is background. In `folder` it is noted what was done of each picture, so that an audit that was
    stopped goes on there. Pictures are squashed into the input, so that places compare."""
    demand_kinds(audit, locals())
    network = networks.as_network(net, device).squashed()
    given = (data if isinstance(data, DataSet) else open_loosely(data, None, network.labels)).first(limit)
    with TemporaryDirectory() as temporary:
        found = Audit(network, given, boxes).run(Path(folder or temporary), batch, progress)
    tell_skipped(True, found.skipped, stacklevel=4)
    return found


@dataclass(frozen=True)
class Audit:
    """A network and the data that it is audited on."""

    network: Network
    data: DataSet
    boxed: bool = True

    def run(self, folder: Path, batch: int = 16, progress: Progress = quiet) -> Audited:
        self._check()
        with opened(folder, self._asked()) as store:
            skipped = self._examine(store, batch, progress)
            table = PatchTable.of(row for row in store.rows() if row[0].name in self._samples)
        if not len(table):
            raise BadPicture(
                f"no picture of {self.data.name} could be read: {next(iter(skipped.values()), 'it is empty')}"
            )
        settings = self.network.settings(
            data=self.data.name, pictures=len(table), input=networks.input_of(self.network)
        )
        return Audited(self._reports(table), tuple(skipped.items()), "audit", settings)

    def _check(self) -> None:
        if medium_of(self.network) != "pictures" or any(map(self.network.can, NO_MAPS)):
            raise BadChoice(
                f"{self.network.name or 'this network'} has no map of its whole answer to audit by: name a classifier "
                "of pictures, such as efficientnet_lite0-cub100"
            )
        if len({sample.name for sample in self.data.samples}) < len(self.data.samples):
            raise BadChoice(f"{self.data.name} has several pictures of the same name: rename all but one")

    @cached_property
    def _samples(self) -> dict[str, Sample]:
        return {sample.name: sample for sample in self.data.samples}

    def _asked(self) -> str:
        """What rows hang on: the weights, how pictures come in, where the network is cut, what classes are called, and
        whether boxes count."""
        net, data = self.network, self.data
        state = {key: value for key, value in net.module.state_dict().items() if isinstance(value, Tensor)}
        how = str(net.transform), str(net.layer), net.temperature, net.labels
        return json.dumps([hash_of(state), *how, self.boxed, data.name, data.labels])

    def _examine(self, store: AuditStore, batch: int, progress: Progress) -> dict[str, str]:
        """What is left of the pictures; what could not be read, and why."""
        known = store.known()
        samples = tuple(self._with_boxes(sample) for sample in self.data.samples if known.get(sample.name) != "")
        left = DataSet(self.data.name, samples, self.data.labels)
        done, total, matching = len(self.data) - len(left), len(self.data), list[Matching | None]()
        progress(done, total)

        def examined(group: Group, tensors: Tensor) -> list[tuple[Examined, Vectors]]:
            if not matching:
                matching.append(self._matching(tensors))
            samples = group.of(left.samples)
            truths = [None if matching[0] is None else matching[0].outputs[sample.label] for sample in samples]
            boxes = [sample.boxes for sample in samples]
            return Examination(self.network, tensors, group.shown, truths, boxes).examined()

        skipped = dict[str, str]()  # what could not be read before is tried again
        if len(left):
            for found, lost, now, _ in in_order(self.network, groups(self.network, left, batch), examined):
                store.add(found, dict(lost))
                skipped |= dict(lost)
                progress(done + now, total)
        return skipped

    def _with_boxes(self, sample: Sample) -> Sample:
        """With its boxes read, where they count; where they cannot be, as a picture that cannot be."""
        try:
            return replace(sample, boxes=sample.boxes if self.boxed else ())
        except BadPicture as reason:
            return replace(sample, source=Unreadable(str(reason)), boxes=())

    def _matching(self, tensors: Tensor) -> Matching | None:
        """Which output is which class of the data's; None where it has no classes, or others than the network."""
        if not self.data.labeled:
            return None
        with torch.no_grad():
            outputs = networks.width_of(self.network(tensors[:1]))
        try:
            return match(self.network, self.data, outputs)
        except BadChoice:
            return None

    def _reports(self, table: PatchTable) -> list[Findings | ClassAudit]:
        by_class = {label: clusters_of(table, label) for label in sorted(set(table.answer.tolist()))}
        near = [*map(self._with_maps, pairs(self.network, table))]
        found = self._shortcuts(table, by_class) + backgrounds(self.network, table) + near
        boxed = bool((table.without >= 0).any())
        samples = self._samples
        reports = [self._of_class(table, label, own, found) for label, own in by_class.items()]
        order = {finding.label: place for place, finding in reversed([*enumerate(found)])}
        reports.sort(key=lambda report: order.get(report.label, len(found)))
        return [Findings(tuple(found), first_words(found, len(by_class), boxed), samples), *reports]

    def _of_class(
        self, table: PatchTable, label: int, clusters: Sequence[Cluster], found: Sequence[AuditFinding]
    ) -> ClassAudit:
        own, name = table.answer == label, self.network.label(label)
        known = own & (table.truth >= 0)
        right = float((table.truth[known] == label).mean()) if known.any() else None
        parts = tuple((cluster, shown(table, cluster)) for cluster in clusters[:SHOWN])
        mine = tuple(one for one in found if name in (one.label, one.other))
        return ClassAudit(name, int(own.sum()), right, parts, mine, self._samples)

    def _shortcuts(self, table: PatchTable, by_class: dict[int, list[Cluster]]) -> list[AuditFinding]:
        suspects = [cluster for clusters in by_class.values() for cluster in clusters if is_suspect(cluster)]
        found, load, blank = list[AuditFinding](), self._loader(), -1
        for number, cluster in enumerate(suspects):
            tell(f"trying patch {number + 1} of {len(suspects)} on pictures of other classes")
            moves = moved(self.network, table, cluster, load)
            blank = self._blank() if blank < 0 else blank
            if is_shortcut(cluster, moves, blank):
                found.append(shortcut(self.network, table, cluster, moves))
        tell("")
        return once_each(sorted(found, key=lambda finding: -finding.score))

    def _with_maps(self, pair: AuditFinding) -> AuditFinding:
        """With what tells the two classes apart drawn over its pictures."""
        pictures = [Picture(name, self._samples[name].read) for name, _ in pair.pictures]
        drawn = list[Image.Image]()
        for group in groups(self.network, pictures, 1):
            if group.batch is not None:
                maps, _ = look_at(self.network, group.batch, group.shown, [SHARE], Versus(torch.tensor([pair.between])))
                drawn += [heatmap.over(box=False, size=WIDE) for heatmap in maps[SHARE.name]]
        return replace(pair, drawn=tuple(drawn))

    def _blank(self) -> int:
        """What a picture is taken for where all of it is hidden."""
        batch = networks.blank(self.network)
        with torch.no_grad():
            return int(self.network(filling("mean", self.network, batch).to(batch).expand_as(batch)).argmax())

    def _loader(self) -> Callable[[str], tuple[Tensor, Placement] | None]:
        samples = self._samples

        def load(name: str) -> tuple[Tensor, Placement] | None:
            try:
                return self.network.prepare(samples[name].read())
            except BadPicture:  # it was there when it was examined
                return None

        return load
