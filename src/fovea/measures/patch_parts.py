"""What the measures of patches share: pictures localized once, tallies of what is right, what it costs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import BadChoice, BadPicture
from fovea.data import Box, DataSet, Sample
from fovea.measures.figures import Figures, printed
from fovea.measures.runner import Run
from fovea.measures.tally import Tally
from fovea.networks import Matching, Network, as_found, blank, input_of, macs, match_by_trying
from fovea.patches import Look, PatchBatch, Scale, Settings, judged, look
from fovea.pictures import Placement

Row = dict[str, Any]
OVERALL = "overall"
ROLES = ("localizer", "net", "full")  # the networks whose classes are those of the data
MACS = "the classifier's multiplications a picture, and with the localizer's; ratio: to its own on a whole picture"


@dataclass(frozen=True)
class Part:
    """A batch of pictures as the localizer sees it."""

    samples: list[Sample]
    tensors: dict[str, Tensor]  # N,C,H,W, as the network of each role takes them
    places: list[Placement]  # in the localizer's input
    boxes: list[tuple[Box, ...]]  # the true ones, in the user's pixels
    seen: Look

    def in_boxes(self, scale: Scale) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Does the center of each picture's best patch lie in a box, and of what share of all patches does it (N each)?
        NaN where a picture has no box."""
        corners = scale.boxes.cpu().double().numpy()
        centers = (corners[:, :2] + corners[:, 2:]) / 2  # P,2  x y
        best = scale.values.flatten(1).argmax(1).tolist()
        hits = np.full((2, len(best)), np.nan)
        for i, (place, boxes) in enumerate(zip(self.places, self.boxes, strict=True)):
            if boxes:
                inside = inside_any(centers * place.scale + place.offset, boxes)
                hits[:, i] = inside[best[i]], inside.mean()
        return hits[0], hits[1]


def inside_any(points: NDArray[np.float64], boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Which points (P,2: x y) lie in any of the half-open boxes."""
    x, y = points.T[:, :, None]  # P,1 each
    x0, y0, x1, y1 = np.array(boxes).T
    return ((x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)).any(1)


class Trial:
    """A localizer and the networks that read its patches or whole pictures, on the same data, their classes matched."""

    def __init__(self, run: Run, branch: int | None = None) -> None:
        """`branch`: that localizes in every picture; the one that decides unless given."""
        self.run, self.nets, self.branch = run, run.networks, branch
        self.localizer, name = self.nets["localizer"], self.nets["localizer"].name or "this network"
        if not self.localizer.can("branches"):
            why = f"{name} has no branches that localize"
            raise BadChoice(f"the localizer must be an AnchorNet, as anchornet-imagenette is; {why}")
        self.matching = {role: _matched(self.nets[role], run.data) for role in ROLES if role in self.nets}
        self.names = {role: network.name or "network" for role, network in self.nets.items()}
        self.about = {"localizer": self.names["localizer"], "data": run.data.name}
        self.tally, self.sides = Tally(), list[int]()

    def parts(self, batch: int, *roles: str) -> Iterator[Part]:
        """The data as the localizer and the networks of other `roles` take it. A picture without an answer, or with
        boxes that cannot be read, is skipped."""
        skipped, count, roles = self.run.skipped, 0, ("localizer", *roles)
        for samples, inputs in self.run.inputs(batch, [self.nets[role] for role in roles]):
            tensors = {role: taken.tensors for role, taken in zip(roles, inputs, strict=True)}
            boxes = [_boxes(sample, skipped) for sample in samples]
            seen = look(self.localizer, tensors["localizer"], branch=self.branch)
            lost = ~seen.output.isfinite().all(1).cpu()
            why = "the localizer's output is not a number"
            skipped += [(sample.name, why) for sample, is_lost in zip(samples, lost, strict=True) if is_lost]
            kept = [i for i, true in enumerate(boxes) if true is not None and not lost[i]]
            count += len(kept)
            if kept:
                if len(kept) < len(samples):
                    tensors = {role: whole[kept] for role, whole in tensors.items()}
                    seen = look(self.localizer, tensors["localizer"], branch=self.branch)
                self.sides = [scale.side for scale in seen.scales]
                places = [inputs[0].places[i] for i in kept]
                yield Part([samples[i] for i in kept], tensors, places, [boxes[i] or () for i in kept], seen)
        if not count:
            raise BadPicture(f"no picture of {self.run.data.name} could be measured: {skipped[0][1]}")

    def labels(self, role: str, part: Part) -> Tensor:
        return self.matching[role].of(part.samples)

    def figures(self, rows: Sequence[Row], settings: Mapping[str, Any], **more: Any) -> Figures:
        fits = [f"{role} {input_of(self.nets[role])}" for role in self.matching if role != "net"]
        about = {
            **{role: self.names[role] for role in self.matching},
            "input": ", ".join(fits),
            "labels": "matched by " + ", ".join(dict.fromkeys(one.how for one in self.matching.values())),
        }
        return self.run.figures(rows, {**about, **settings}, **more)


def _boxes(sample: Sample, skipped: list[tuple[str, str]]) -> tuple[Box, ...] | None:
    try:
        return sample.boxes
    except BadPicture as reason:
        skipped.append((sample.name, str(reason)))
        return None


def _matched(network: Network, data: DataSet) -> Matching:
    """How the network's classes are those of the data."""
    matching = match_by_trying(network, data, blank(network))
    if matching.how.endswith("differ"):
        raise BadChoice(
            f"{network.name or 'the network'} knows other classes than {data.name}: "
            f"{', '.join((network.labels or ())[:3])} … instead of {', '.join(data.labels[:3])} …; "
            "use a network trained on these"
        )
    return matching


@dataclass(frozen=True)
class Costs:
    """Multiplications: of the classifier on a patch of each side and on a whole picture, and of the localiser."""

    patch: Mapping[int, int]
    whole: int
    localizer: int

    @staticmethod
    def of(trial: Trial) -> "Costs":
        classifier, localizer = trial.nets["net"], trial.localizer
        whole = blank(classifier)
        each = {side: macs(classifier, whole.new_zeros(1, whole.shape[1], side, side)) for side in trial.sides}
        return Costs(each, macs(classifier, whole), macs(localizer, blank(localizer)))

    def row(self, own: float | None, localized: bool = True) -> Row:
        """Of what the classifier multiplies for a picture on average, without and with the localizer."""
        keys = ("macs", "macs_ratio", "macs_with_localizer", "ratio_with_localizer")
        if own is None:
            return dict.fromkeys(keys)
        both = own + self.localizer * localized
        return dict(zip(keys, (round(own), own / self.whole, round(both), both / self.whole), strict=True))


def words(settings: Settings) -> str:
    return f"K {settings.count}, T {settings.overlap:g}, P {settings.share:g}"


def alone(localizer: Network, classifier: Network, squares: Tensor) -> Tensor:
    """What the classifier says of each square (M,C,side,side, as the localizer takes pixels) by itself: M,classes."""
    count, side = len(squares), squares.shape[3]
    whole = torch.tensor([0, 0, side, side]).expand(count, 4)
    return judged(localizer, classifier, squares, [PatchBatch(side, torch.arange(count), whole)])


def answer(network: Network, tensors: Tensor) -> Tensor:
    """What a network says of whole pictures."""
    with as_found(network), torch.no_grad():
        return network(tensors)


def without(rows: Sequence[Row], *keys: str) -> list[Row]:
    """Rows as they are printed: without what is the same in all, and what none has."""
    return printed(rows, [key for key in rows[0] if key not in (*keys, "localizer", "data", "low", "high")], "top1")
