"""What the measures of patches share: pictures localised once, tallies of what is right, what it costs."""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics.errors import BadChoice, BadPicture
from fovea.data import Box, DataSet, Sample
from fovea.networks.cost import macs
from fovea.networks.matching import Matching, match_by_trying
from fovea.networks.network import Network
from fovea.networks.stream import batches, blank, input_of, prepared, rank_of
from fovea.patches.classify import Patches, judged
from fovea.patches.lip import Settings
from fovea.patches.scales import Anchored, Look, Scale, look
from fovea.pictures.placement import Placement

Progress = Callable[[int, int], None]
Row = dict[str, Any]
Chosen = NDArray[np.bool_] | slice  # of the pictures
EVERY = slice(None)
OVERALL = "overall"
MACS = "the classifier's multiplications a picture, and with the localiser's; ratio: to its own on a whole picture"


@dataclass(frozen=True)
class Part:
    """A batch of pictures as the localiser sees it."""

    samples: list[Sample]
    images: list[Image.Image]
    tensors: Tensor  # N,C,H,W
    places: list[Placement]
    boxes: list[tuple[Box, ...]]  # the true ones, in the user's pixels
    seen: Look

    def in_boxes(self, scale: Scale) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Does the centre of each picture's best patch lie in a box, and of what share of all patches does it (N each)?

        NaN where a picture has no box.
        """
        corners = scale.boxes.cpu().double().numpy()
        centres = (corners[:, :2] + corners[:, 2:]) / 2  # P,2  x y
        best = scale.values.flatten(1).argmax(1).tolist()
        found = np.full((2, len(best)), np.nan)
        for i, (place, boxes) in enumerate(zip(self.places, self.boxes, strict=True)):
            if boxes:
                inside = inside_any(centres * place.scale + place.offset, boxes)
                found[:, i] = inside[best[i]], inside.mean()
        return found[0], found[1]


def inside_any(points: NDArray[np.float64], boxes: Sequence[Box]) -> NDArray[np.bool_]:
    """Which points (P,2: x y) lie in any of the half-open boxes."""
    x, y = points.T[:, :, None]  # P,1 each
    x0, y0, x1, y1 = np.array(boxes).T
    found: NDArray[np.bool_] = ((x0 <= x) & (x < x1) & (y0 <= y) & (y < y1)).any(1)
    return found


def parts(
    localizer: Network, data: DataSet, batch: int, skipped: list[tuple[str, str]], progress: Progress
) -> Iterator[Part]:
    """The data, a batch at a time. A picture without an answer, or with boxes that cannot be read, is skipped."""
    done = 0
    for samples, images in batches(data, batch, skipped):
        boxes = [_boxes(sample, skipped) for sample in samples]
        tensors, _, places = prepared(localizer, samples, images)
        seen = look(localizer, tensors)
        lost = ~seen.output.isfinite().all(1).cpu()
        skipped += [(samples[i].name, "the localiser's output is not a number") for i in lost.nonzero()[:, 0].tolist()]
        kept = [i for i, own in enumerate(boxes) if own is not None and not lost[i]]
        if len(kept) < len(samples) and kept:
            seen = look(localizer, tensors[kept])
        if kept:
            yield Part(
                [samples[i] for i in kept],
                [images[i] for i in kept],
                tensors[kept],
                [places[i] for i in kept],
                [boxes[i] or () for i in kept],
                seen,
            )
        done += len(kept)
        progress(min(done + len(skipped), len(data)), len(data))


def _boxes(sample: Sample, skipped: list[tuple[str, str]]) -> tuple[Box, ...] | None:
    try:
        return sample.boxes
    except BadPicture as reason:
        skipped.append((sample.name, str(reason)))
        return None


def demand_anchored(network: Network) -> None:
    if not isinstance(network.module, Anchored):
        raise BadChoice(
            f"the localizer must be an AnchorNet, as anchornet-imagenette is; {network.name or 'this network'} has no "
            "branches that localise"
        )


def demand_same_classes(network: Network, data: DataSet) -> Matching:
    """How the network's classes are those of the data."""
    matching = match_by_trying(network, data, blank(network))
    if matching.how.endswith("differ"):
        raise BadChoice(
            f"{network.name or 'the network'} knows other classes than {data.name}: "
            f"{', '.join((network.labels or ())[:3])} … instead of {', '.join(data.labels[:3])} …; "
            "use a network trained on these"
        )
    return matching


def demand_read(pictures: int, data: DataSet, skipped: Sequence[tuple[str, str]]) -> None:
    if not pictures:
        raise BadPicture(f"no picture of {data.name} could be measured: {skipped[0][1] if skipped else 'it is empty'}")


@dataclass
class Tally:
    """Figures of every picture, by what they tell of, gathered batch after batch."""

    columns: dict[Hashable, list[NDArray[Any]]] = field(default_factory=dict)
    classes: dict[Hashable, int] = field(default_factory=dict)

    def put(self, key: Hashable, values: Tensor | NDArray[Any]) -> None:
        own = values.detach().cpu().numpy() if isinstance(values, Tensor) else values
        self.columns.setdefault(key, []).append(own)

    def answers(self, key: Hashable, output: Tensor, labels: Tensor) -> None:
        self.put(key, rank_of(output, labels))
        self.classes[key] = output.shape[1]

    def __getitem__(self, key: Hashable) -> NDArray[Any]:
        """Of all batches; nothing where none had any."""
        return np.concatenate(self.columns.get(key) or [np.zeros(0)])

    def top(self, key: Hashable, which: Chosen = EVERY) -> dict[str, float | None]:
        rank = self[key][which]
        return {"top1": mean(rank < 1), "top5": mean(rank < 5) if self.classes.get(key, 0) >= 5 else None}

    def together(self, keys: Sequence[Hashable]) -> dict[str, float | None]:
        """The same of several columns as one."""
        classes = max(self.classes.get(key, 0) for key in keys)
        return Tally({OVERALL: [self[key] for key in keys]}, {OVERALL: classes}).top(OVERALL)


def mean(values: NDArray[Any]) -> float | None:
    """Of the values that are numbers."""
    own = values[~np.isnan(values)]
    return float(own.mean()) if len(own) else None


def counts(cut: Sequence[Patches], pictures: int) -> Tensor:
    """How many patches each picture has."""
    return torch.bincount(torch.cat([one.owner for one in cut]), minlength=pictures)


@dataclass(frozen=True)
class Costs:
    """Multiplications: of the classifier on a patch of each side and on a whole picture, and of the localiser."""

    patch: Mapping[int, int]
    whole: int
    localizer: int

    @staticmethod
    def of(localizer: Network, classifier: Network, sides: Sequence[int]) -> "Costs":
        own = blank(classifier)
        one = {side: macs(classifier, own.new_zeros(1, own.shape[1], side, side)) for side in sides}
        return Costs(one, macs(classifier, own), macs(localizer, blank(localizer)))

    def row(self, patches: NDArray[Any]) -> Row:
        """Of what the classifier multiplies for each picture: the mean, without and with the localiser."""
        own = mean(patches)
        if own is None:
            return dict.fromkeys(("macs", "macs_ratio", "macs_with_localizer", "ratio_with_localizer"))
        both = own + self.localizer
        return {
            "macs": round(own),
            "macs_ratio": own / self.whole,
            "macs_with_localizer": round(both),
            "ratio_with_localizer": both / self.whole,
        }

    def row_of_whole(self, own: int) -> Row:
        """Of a network that needs no localiser."""
        told = {"macs": own, "macs_ratio": own / self.whole}
        return {**told, "macs_with_localizer": own, "ratio_with_localizer": own / self.whole}


def settings_of(
    nets: Sequence[Network], matchings: Sequence[Matching], data: DataSet, skipped: Sequence[tuple[str, str]]
) -> Row:
    own = dict(zip(("localizer", "net", "full"), nets, strict=False))
    return {
        "data": data.name,
        **{name: network.name or "network" for name, network in own.items()},
        "input": ", ".join(f"{name} {input_of(network)}" for name, network in own.items() if name != "net"),
        "labels": "matched by " + ", ".join(dict.fromkeys(one.how for one in matchings)),
        "skipped": len(skipped),
    }


def words(settings: Settings) -> str:
    return f"K {settings.count}, T {settings.overlap:g}, P {settings.share:g}"


def alone(localizer: Network, classifier: Network, squares: Tensor) -> Tensor:
    """What the classifier says of each square (M,C,side,side, as the localiser takes pixels) by itself: M,classes."""
    count, side = len(squares), squares.shape[3]
    whole = torch.tensor([0, 0, side, side]).expand(count, 4)
    return judged(localizer, classifier, squares, [Patches(side, torch.arange(count), whole)])
