"""Why a network was wrong, to look at: patches beside one another, each branch's answer in a frame, and JSON."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image, ImageDraw, ImageOps

from fovea.basics import finite, whole_pixels
from fovea.data import Sample
from fovea.patches.localized import Box
from fovea.results import Shows, drawing, marks, spaced

RIGHT, WRONG, NEUTRAL = "#009e73", "#d55e00", "#8a8f98"  # green and red that the color-blind tell apart
TILE, WIDE, MARGIN = 150, 260, 7  # pixels of a patch, of a picture, and of the frame around it


@dataclass(frozen=True)
class PatchOf:
    """One patch of one picture, and how much it speaks for a class."""

    sample: Sample
    true: str  # the picture's own class; nothing where it is not known
    side: int
    box: Box  # in the picture's own pixels
    evidence: float

    def crop(self) -> Image.Image:
        image = self.sample.read()
        return image.crop(whole_pixels(self.box, image.size))

    def on_picture(self) -> Image.Image:
        """The whole picture, pale but for the patch."""
        return marks.with_boxes(self.sample.read(), [self.box])

    def to_dict(self) -> dict[str, Any]:
        return {
            "picture": self.sample.name,
            "class": self.true or None,
            "side": self.side,
            "box": [round(side, 2) for side in self.box],
            "evidence": finite(self.evidence),
        }


@dataclass(frozen=True, repr=False)
class ClassReport(Shows):
    """The patches that speak most for a class, one per picture: of its own pictures, and of other classes' pictures."""

    label: str
    representative: tuple[PatchOf, ...]
    confusing: tuple[PatchOf, ...]
    net: str
    data: str
    pictures: tuple[int, int]  # how many of the class were looked at, and of others
    source: str  # where the heatmaps come from
    skipped: tuple[tuple[str, str], ...] = ()

    saved_as = ("figure", "why.png")
    probability = None

    @property
    def name(self) -> str:
        return self.label

    @property
    def boxes(self) -> list[Box]:
        return [patch.box for patch in (*self.representative, *self.confusing)]

    def draw(self) -> Image.Image:
        own, others = self.pictures
        name = spaced(self.label)
        right = _strip(f"{name}: from {own} pictures of it", [(patch, "") for patch in self.representative])
        confusing = [(patch, patch.true) for patch in self.confusing]
        wrong = _strip(f"confusing: from {others} pictures of other classes", confusing)
        below = f"{self.net} on {self.data}, {self.source}. Numbers: the evidence of the patch for {name}."
        return drawing.framed(drawing.titled(drawing.grid([[right], [wrong]], 10), f"Why {name}?", below), 10)

    def to_dict(self) -> dict[str, Any]:
        return {
            "label": self.label,
            "net": self.net,
            "data": self.data,
            "pictures": list(self.pictures),
            "source": self.source,
            "representative": [patch.to_dict() for patch in self.representative],
            "confusing": [patch.to_dict() for patch in self.confusing],
        }


@dataclass(frozen=True)
class BranchWhy:
    """What one branch took a picture for, by which patch, and a picture of what it was mistaken for."""

    side: int
    label: str
    probability: float
    patch: PatchOf
    right: bool | None  # None: the true class is not known
    mistaken_for: PatchOf | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "side": self.side,
            "label": self.label,
            "probability": finite(self.probability),
            "right": self.right,
            "patch": self.patch.to_dict(),
            "mistaken_for": None if self.mistaken_for is None else self.mistaken_for.to_dict(),
        }

    def says(self) -> str:
        return f"patch of {self.side}: {spaced(self.label)} {self.probability:.2f}"


@dataclass(frozen=True, repr=False)
class PictureReport(Shows):
    """One picture: what the network decided, and what each of its branches would have."""

    name: str
    sample: Sample
    true: str  # nothing where it is not known
    label: str
    probability: float
    branches: tuple[BranchWhy, ...]
    net: str

    saved_as = ("figure", "why.png")

    @property
    def right(self) -> bool | None:
        return None if not self.true else self.label == self.true

    @property
    def boxes(self) -> list[Box]:
        return [branch.patch.box for branch in self.branches]

    def draw(self) -> Image.Image:
        about = f"true: {spaced(self.true)}" if self.true else "its true class is not known"
        decided = f"decided: {spaced(self.label)} {self.probability:.2f}"
        first = _tile(self.sample.read(), decided, about, self.right)
        columns = [[first]]
        for branch in self.branches:
            column = [_tile(branch.patch.on_picture(), branch.says(), _evidence(branch.patch), branch.right)]
            if (other := branch.mistaken_for) is not None:
                title = f"{spaced(branch.label)}, as patches of {branch.side} know it"
                column.append(_tile(other.on_picture(), title, _evidence(other), None))
            columns.append(column)
        drawn = [drawing.grid([[tile] for tile in column], 10) for column in columns]
        title = f"What each branch saw in {Path(self.name).name}"
        return drawing.framed(drawing.titled(drawing.grid([drawn], 10), title, self.net), 10)

    def to_dict(self) -> dict[str, Any]:
        return {
            "picture": self.name,
            "class": self.true or None,
            "label": self.label,
            "probability": finite(self.probability),
            "right": self.right,
            "branches": [branch.to_dict() for branch in self.branches],
        }


def _strip(title: str, patches: Sequence[tuple[PatchOf, str]]) -> Image.Image:
    """Patches side by side, each with what it is of."""
    tiles = []
    for patch, name in patches:
        tile = patch.crop().resize((TILE, TILE), Image.Resampling.LANCZOS)
        tiles.append(drawing.titled(tile, f"{patch.evidence:.1f}", spaced(name) or f"patch of {patch.side}"))
    if not tiles:
        return drawing.titled(Image.new("RGB", (2 * TILE, 1), "white"), title, "none")
    height = max(tile.height for tile in tiles)  # captions differ in their lines: pictures stand on one line even so
    tiles = [drawing.padded(tile, (tile.width, height), (0, height - tile.height)) for tile in tiles]
    return drawing.titled(drawing.grid([tiles]), title)


def _tile(image: Image.Image, title: str, subtitle: str, right: bool | None) -> Image.Image:
    """A picture in a frame: green with a tick, red with a cross, gray where there is nothing to say."""
    small = ImageOps.contain(image.convert("RGB"), (WIDE, WIDE), Image.Resampling.LANCZOS)
    ink = NEUTRAL if right is None else RIGHT if right else WRONG
    framed = ImageOps.expand(small, MARGIN, ink)
    if right is not None:
        _mark(framed, right, ink)
    canvas = drawing.padded(framed, (WIDE + 2 * MARGIN, framed.height))
    word = "" if right is None else "right" if right else "wrong"
    return drawing.titled(canvas, title, f"{word} · {subtitle}" if word else subtitle)


def _mark(image: Image.Image, right: bool, ink: str) -> None:
    """A tick or a cross in the upper right corner, for those who do not see the frame's color."""
    pen, size = ImageDraw.Draw(image), 30
    x, y = image.width - size, 0
    pen.rectangle((x, y, image.width, size), fill=ink)
    lines = [((8, 16), (13, 22), (23, 8))] if right else [((9, 8), (22, 22)), ((22, 8), (9, 22))]
    for line in lines:
        pen.line([(x + across, y + down) for across, down in line], fill="white", width=4, joint="curve")


def _evidence(patch: PatchOf) -> str:
    return f"evidence {patch.evidence:.1f}"
