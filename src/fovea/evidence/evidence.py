"""One picture, one answer, all of its evidence."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from PIL import Image

from fovea.basics import finite
from fovea.evidence import figure
from fovea.evidence.closer import CloserLook
from fovea.evidence.enough import Sufficient
from fovea.evidence.trust import Trust
from fovea.evidence.where import EXACT
from fovea.evidence.words import paragraph, place_of
from fovea.heatmaps import HeatMap
from fovea.pictures import Shown, facts
from fovea.prototypes.reasons import LooksLike
from fovea.results import ShowsBoxes, View
from fovea.retrieval import Search
from fovea.streams import Looked

KINDS = ("answer", "runner-up", "contrast")  # of maps, in their order
CLOSE = 0.5  # of the answer's probability: a label that has so much might be the answer, too
SURE = 0.5  # an answer below is doubtful


@dataclass(frozen=True)
class Cost:
    forwards: int  # pictures that passed the network, whole ones with parts hidden counted as one
    macs: int | None  # multiplications of one; None where the network cannot be counted
    ms: float  # for all of it, from the decoded picture on
    pixels: int  # that the network took
    picture: int  # that there are


@dataclass(frozen=True, repr=False, eq=False)
class Evidence(ShowsBoxes):
    """What a picture is taken for, and why. `heatmap` has maps of the answer, of the runner-up, and of the one rather
    than the other (`contrast`: what each cell adds to the difference of the two logits)."""

    shown: Shown  # with its best labels
    calibrated: bool
    heatmap: HeatMap
    contrast: HeatMap | None
    enough: Sufficient | None  # None: nothing less than the whole was found
    needed: Sufficient | None
    closer: CloserLook | None
    longer: Looked | None
    prototypes: LooksLike | None
    like: Search | None
    trust: Trust | None
    cost: Cost

    saved_as = ("figure", "look.png")

    @property
    def label(self) -> str:
        return self.shown.predictions[0][0]

    @property
    def probability(self) -> float:
        return self.shown.predictions[0][1]

    @property
    def runner_up(self) -> str:
        return self.shown.predictions[1][0]

    @property
    def unsure(self) -> tuple[str, ...]:
        """The labels between which it is not sure; the answer alone where that is doubtful; none where all is well."""
        near = [label for label, share in self.shown.predictions if share >= CLOSE * self.probability]
        return tuple(near) if len(near) > 1 or self.probability < SURE else ()

    @property
    def boxes(self) -> list[list[float]]:
        """That of the answer's map, then those of what is enough."""
        first = [box.tolist() for box in self.heatmap.boxes[:1] if box.any()]
        return [*first, *(list(box) for box in (self.enough.boxes if self.enough else ()))]

    @property
    def words(self) -> str:
        return paragraph(self.to_dict())

    @property
    def note(self) -> str | None:
        return None if self.calibrated else UNCALIBRATED

    def draw(self) -> Image.Image:
        """Maps, what is enough and what is needed, side by side over the words."""
        return figure.draw(self)

    def view(self) -> View:
        return figure.view(self)

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "probability": finite(self.probability),
            "calibrated": self.calibrated,
            "unsure": list(self.unsure),
            "runner_up": self.runner_up,
            **facts(self.shown),
            "where": [*self._where()],
            "enough": None if self.enough is None else self.enough.to_dict(),
            "needed": None if self.needed is None else self.needed.to_dict(),
            "closer": None if self.closer is None else self.closer.to_dict(),
            "longer": None if self.longer is None else self.longer.to_dict(),
            "prototypes": None if self.prototypes is None else self.prototypes.to_dict()["reasons"],
            "like": None if self.like is None else self.like.to_dict(),
            "trust": None if self.trust is None else self.trust.to_dict(),
            "cost": asdict(self.cost),
        }

    def _where(self) -> Sequence[dict[str, Any]]:
        maps = list(zip(KINDS, self.heatmap.rows(), strict=False))[:2]
        found = [{"kind": kind, **row, "place": _place(self.heatmap, k)} for k, (kind, row) in enumerate(maps)]
        if self.contrast is not None:
            about = {"place": _place(self.contrast, 2), "exact": self.contrast.solver == EXACT}
            found.append({"kind": "contrast", **self.contrast.rows()[2], **about})
        return found


def _place(heatmap: HeatMap, target: int) -> str | None:
    """In words, where a map is hottest: the box of its largest part above half of its range."""
    box, placement = heatmap.maps.box(heatmap.place, target, threshold=0.5), heatmap.shown.placement
    return place_of(box.tolist(), placement.picture) if box.any() and placement is not None else None


UNCALIBRATED = "probabilities are the network's own, uncalibrated ('fovea calibrate' makes them come true)"
