"""An audit to walk through: what to look at first, then every class with the patches that speak for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from PIL import Image

from fovea.basics import whole_pixels
from fovea.data import Sample
from fovea.evidence.audit.clusters import Cluster
from fovea.evidence.audit.findings import AuditFinding
from fovea.evidence.words import percent, place_of
from fovea.results import Panel, Results, Shows, View, drawing, marks, spaced

TILE, WIDE = 120, 200  # pixels of a patch, and of a picture
Seen = Sequence[tuple[str, tuple[float, ...]]]  # pictures with the box to look at


@dataclass(frozen=True, repr=False, eq=False)
class Findings(Shows):
    """What to look at first, in words, in a table and in pictures."""

    findings: tuple[AuditFinding, ...]
    words: str
    samples: Mapping[str, Sample] = field(repr=False)

    name = "what to look at first"
    label = ""
    probability = None
    saved_as = ("figure", "findings.png")

    @property
    def boxes(self) -> list[tuple[float, ...]]:
        return [box for finding in self.findings for _, box in finding.pictures if box]

    def draw(self) -> Image.Image:
        rows = [drawing.titled(_drawn(self.samples, finding), finding.words) for finding in self.findings[:5]]
        return drawing.framed(drawing.grid([[row] for row in rows], 14) if rows else Image.new("RGB", (8, 8), "white"))

    def view(self) -> View:
        panels = [Panel(partial(_drawn, self.samples, one), one.words) for one in self.findings[:12]]
        heading = ("finding", "class", "in pictures", "keeps the answer alone", "moves others", "score")
        rows = [
            (
                one.kind,
                spaced(f"{one.label} / {one.other}" if one.other else one.label),
                *_figures(one),
                f"{one.score:.2f}",
            )
            for one in self.findings
        ]
        return View(tuple(panels), words=self.words, table=(heading, *rows) if rows else ())

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": None,
            "probability": None,
            "words": self.words,
            "findings": [one.to_dict() for one in self.findings],
        }


def _figures(finding: AuditFinding) -> tuple[str, str, str]:
    known = finding.figures
    shares = (known.get(key) for key in ("share", "carries", "moves"))
    first, *others = ("" if share is None else percent(share) for share in shares)
    return first or f"{known.get('wrong', 0)} wrong", *others  # type: ignore[return-value]


@dataclass(frozen=True, repr=False, eq=False)
class ClassAudit(Shows):
    """One class: its clusters of patches, those that carry the answer in most pictures first (AnchorNet, Fig. 8)."""

    label: str
    pictures: int  # that are taken for it
    right: float | None  # of them, where it is known
    clusters: tuple[tuple[Cluster, Seen], ...]
    findings: tuple[AuditFinding, ...]
    samples: Mapping[str, Sample] = field(repr=False)

    probability = None
    saved_as = ("figure", "class.png")

    @property
    def name(self) -> str:
        return self.label

    @property
    def boxes(self) -> list[tuple[float, ...]]:
        return [box for _, seen in self.clusters for _, box in seen]

    @property
    def words(self) -> str:
        right = "" if self.right is None else f", {percent(self.right)} of them rightly"
        said = " ".join(finding.words for finding in self.findings) or "No finding."
        count = "1 picture is" if self.pictures == 1 else f"{self.pictures} pictures are"
        return f"{count} taken for it{right}. {said}"

    def draw(self) -> Image.Image:
        rows = [strip(self.samples, seen, described(cluster)) for cluster, seen in self.clusters]
        return drawing.framed(drawing.grid([[row] for row in rows], 14) if rows else Image.new("RGB", (8, 8), "white"))

    def view(self) -> View:
        panels = [Panel(partial(strip, self.samples, seen, ""), described(one)) for one, seen in self.clusters]
        return View(tuple(panels), words=self.words)

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "probability": None,
            "pictures": self.pictures,
            "right": self.right,
            "words": self.words,
            "findings": [one.to_dict() for one in self.findings],
            "clusters": [
                {
                    "pictures": one.pictures,
                    "share": one.share,
                    "patches": len(one.patches),
                    "carries": one.carries,
                    "needed": one.needed,
                    "place": list(one.place),
                    "there": one.there,
                    "by_chance": one.by_chance,
                    "outside": one.outside,
                    "elsewhere": one.elsewhere,
                    "patches_shown": [{"name": name, "box": [round(side, 2) for side in box]} for name, box in seen],
                }
                for one, seen in self.clusters
            ],
        }


def described(cluster: Cluster) -> str:
    x, y = cluster.place
    parts = [f"in {percent(cluster.share)} of its pictures", f"keeps the answer alone in {percent(cluster.carries)}"]
    parts += [f"needed in {percent(cluster.needed)}"]
    if cluster.same_place:
        parts.append(
            f"always {place_of((x, y, x, y), (1, 1))}" if cluster.there > 0.95 else place_of((x, y, x, y), (1, 1))
        )
    if cluster.outside is not None:
        parts.append(f"{percent(cluster.outside)} outside the boxes")
    return ", ".join([*parts, f"in {percent(cluster.elsewhere)} of other classes' pictures"])


def strip(samples: Mapping[str, Sample], seen: Seen, title: str) -> Image.Image:
    """The first picture with its box, then the patches cut out; or pictures, where no box is to be looked at."""
    tiles = list[Image.Image]()
    for number, (name, box) in enumerate(seen):
        image = samples[name].read()
        if not box or number == 0:
            whole = marks.with_boxes(image, [box], size=WIDE) if box else drawing.enlarged(image, WIDE)
            tiles.append(drawing.fitted(whole, (WIDE, TILE)))
        if box:
            tiles.append(image.crop(whole_pixels(box, image.size)).resize((TILE, TILE), Image.Resampling.LANCZOS))
    if not tiles:
        return Image.new("RGB", (8, 8), "white")
    row = drawing.grid([tiles])
    return drawing.titled(row, title) if title else row


def _drawn(samples: Mapping[str, Sample], finding: AuditFinding) -> Image.Image:
    if not finding.drawn:
        return strip(samples, finding.pictures, "")
    return drawing.grid([[drawing.fitted(image, (WIDE, TILE)) for image in finding.drawn]])


class Audited(Results[Any]):
    """What to look at first, then the classes, those with findings first."""

    @property
    def findings(self) -> tuple[AuditFinding, ...]:
        return self.items[0].findings if self.items else ()
