"""What zooming gives: the label, what the network read to get there, in the picture's own pixels, and what it cost."""

from dataclasses import asdict, dataclass
from typing import Any

from PIL import Image

from fovea.basics import finite
from fovea.glimpses import figure
from fovea.glimpses.reading import Box
from fovea.pictures import Shown, about
from fovea.results import ShowsBoxes, View


@dataclass(frozen=True)
class Glimpse:
    """A window of the picture that was read, and what it says alone."""

    number: int  # the overview is 0
    level: int  # the overview's is 1
    box: Box  # as read: over the edge of the picture, maybe
    visible: Box  # the part of it that is in the picture
    parent: int | None  # the number of what it was chosen in
    chosen: float | None  # the probability that it was chosen with
    label: str
    probability: float
    pixels: tuple[int, int]  # width and height that the visible part was read at

    def to_dict(self) -> dict[str, Any]:
        lists = {"box": list(self.box), "visible": list(self.visible), "pixels": list(self.pixels)}
        chosen = None if self.chosen is None else finite(self.chosen)
        return asdict(self) | lists | {"chosen": chosen, "probability": finite(self.probability)}


@dataclass(frozen=True)
class After:
    """What the network would have answered after one of the things that it read."""

    number: int  # of the glimpse; 0 is the overview
    label: str
    probability: float
    answer: float  # the probability, at that time, of the label that was given in the end
    certainty: float | None = None  # as of the answer

    def to_dict(self) -> dict[str, Any]:
        return {name: finite(value) if isinstance(value, float) else value for name, value in asdict(self).items()}


@dataclass(frozen=True)
class WalkCost:
    macs: int
    pixels_read: int  # decoded of a big file, each at the level it was decoded at; of any other picture, in windows
    pixels: int  # of the picture
    share: float  # of them, that was read at the finest resolution
    resolution: float  # which is that; 1 is the picture's own
    pixels_in_windows: int = 0  # of the picture, in all windows together
    tiles: int | None = None  # decoded of a big file
    bytes_read: int | None = None  # of the file, where it was not read whole
    bytes: int | None = None  # of the file

    def reading(self) -> str:
        if self.tiles is not None:
            part = "" if self.bytes_read is None else f", {_size(self.bytes_read)} of {_size(self.bytes or 0)}"
            return f"{100 * self.pixels_read / self.pixels:.3g} % of the picture's pixels decoded{part}"
        how = "at full resolution" if self.resolution == 1 else f"at {self.resolution:.2g} of full resolution"
        return f"{100 * self.share:.3g} % of the picture's pixels read {how}"


def _size(count: int) -> str:
    number, unit = (count / 1e3, "kB") if count < 1e6 else (count / 1e6, "MB") if count < 1e9 else (count / 1e9, "GB")
    return f"{number:.3g} {unit}"


@dataclass(frozen=True, repr=False)
class ZoomAnswer(ShowsBoxes):
    """One picture: what it is taken for, and the descent that led there."""

    shown: Shown
    label: str
    probability: float
    after: tuple[After, ...]  # in the order of reading
    overview: Glimpse | None
    glimpses: tuple[Glimpse, ...]
    cost: WalkCost
    note: str = ""
    certainty: float | None = None  # how probable it is that the label is right, calibrated where the network is
    stopped: str = "glimpses"  # why it read no more: glimpses, sure, budget, or nothing left
    ms: float | None = None  # from before the picture was opened, where a walk could end early

    saved_as = ("figure", "zoom.png")

    @property
    def boxes(self) -> list[Box]:
        """What was read of the picture, glimpse by glimpse."""
        return [glimpse.visible for glimpse in self.glimpses]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        assert self.shown.placement is not None  # windows are read of pictures only
        return self.shown.placement.picture

    def draw(self) -> Image.Image:
        """The descent: the picture with numbered boxes, the glimpses, and the answer's probability after each."""
        return figure.draw(self)

    def view(self) -> View:
        """The picture with what was read of it, how many glimpses it took, why no more, and how much was read."""
        number = f"{len(self.glimpses)} {'glimpse' if len(self.glimpses) == 1 else 'glimpses'}"
        return figure.view(self, ", ".join(filter(None, (number, self.why, self.cost.reading()))))

    @property
    def why(self) -> str:
        """In words, why it read no more, where it did not read all that it might."""
        sure = f"{self.certainty or 0:.2f} certain"
        words = {"sure": sure, "budget": "the budget spent", "nothing left": "nothing left to read"}
        return words.get(self.stopped, "")

    def to_dict(self) -> dict[str, Any]:
        return {
            **about(self.shown),
            "label": self.label,
            "probability": finite(self.probability),
            "after": [after.to_dict() for after in self.after],
            "overview": None if self.overview is None else self.overview.to_dict(),
            "glimpses": [glimpse.to_dict() for glimpse in self.glimpses],
            **asdict(self.cost),
            "note": self.note or None,
            "certainty": None if self.certainty is None else finite(self.certainty),
            "stopped": self.stopped,
            "ms": self.ms,
        }
