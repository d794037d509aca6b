"""What a two-stream network saw of one picture: the whole of it, and each patch at every step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from fovea.basics import finite
from fovea.heatmaps import HeatMap
from fovea.pictures import Shown, facts
from fovea.results import Panel, ShowsBoxes, Size, View, write_picture, write_values
from fovea.streams import figure

Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Said:
    """The class put first, and its probability."""

    label: str
    probability: float

    def __str__(self) -> str:
        return f"{self.label} {self.probability:.2f}"

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probability": finite(self.probability)}


@dataclass(frozen=True)
class SeenStep:
    """A patch at step t: what its features phi_t alone are taken for, and where that comes from."""

    number: int  # t, from 1
    weight: float  # alpha_t
    said: Said
    map: HeatMap  # of one class, on the user's pixels inside the patch's box

    def to_dict(self) -> dict[str, Any]:
        about = {"solver": self.map.solver or None, "diagnosis": self.map.diagnosis[0]}
        return {"step": self.number, "weight": finite(self.weight), **self.said.to_dict(), **about}


@dataclass(frozen=True)
class SeenPatch:
    box: Box  # in the user's pixels
    said: Said  # by all steps together
    steps: tuple[SeenStep, ...]

    def to_dict(self) -> dict[str, Any]:
        steps = [step.to_dict() for step in self.steps]
        return {"box": list(self.box), **self.said.to_dict(), "steps": steps}


@dataclass(frozen=True, repr=False)
class Looked(ShowsBoxes):
    """`said` is the answer, `whole_said` and `local_said` are the two streams' own; maps are of the class `target`."""

    shown: Shown  # with the predictions of both streams together
    said: Said
    whole_said: Said
    local_said: Said
    target: str
    method: str
    whole: HeatMap  # of the global stream
    patches: tuple[SeenPatch, ...]
    truth: str | None = None

    @property
    def label(self) -> str:
        return self.said.label

    @property
    def probability(self) -> float:
        return self.said.probability

    @property
    def boxes(self) -> tuple[Box, ...]:
        """The patches, in the user's pixels."""
        return tuple(patch.box for patch in self.patches)

    @property
    def note(self) -> str | None:
        """Why a map is blank, where one is."""
        maps = [self.whole, *(step.map for patch in self.patches for step in patch.steps)]
        return next((reason for heatmap in maps if (reason := heatmap.diagnosis[0]) is not None), None)

    def draw(self) -> Image.Image:
        """The strip: the picture with the global stream's map, its patches, and each of their steps."""
        return figure.draw(self)

    def view(self) -> View:
        """The strip, with what the two streams say."""
        count = len(self.patches)
        patches = f"{count} patch{'' if count == 1 else 'es'}"
        words = f"global stream: {self.whole_said}, local stream: {self.local_said}, {patches}"
        return View((Panel(self.draw),), words=words)

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.said.to_dict(),
            **facts(self.shown),
            "truth": self.truth,
            "global": self.whole_said.to_dict(),
            "local": self.local_said.to_dict(),
            "target": self.target,
            "method": self.method,
            "patches": [patch.to_dict() for patch in self.patches],
        }

    def files(self, folder: Path, stem: str, size: Size = None) -> dict[str, Any]:
        """The strip, the global stream's map, the patches, and the values of every step."""
        names: dict[str, Any] = {"strip": f"{stem}.strip.png", "global": f"{stem}.global.png"}
        write_picture(folder / names["strip"], self.draw())
        write_picture(folder / names["global"], self.whole.draw(box=False, size=size))
        write_values(folder / f"{stem}.global.npy", self.whole.map())
        names |= {"values": f"{stem}.global.npy", "patches": []}
        for number, (patch, crop) in enumerate(zip(self.patches, self.crops(), strict=True), 1):
            base = f"{stem}.patch{number}"
            write_picture(folder / f"{base}.png", crop)
            for step in patch.steps:
                write_values(folder / f"{base}.step{step.number}.npy", step.map.map())
            values = [f"{base}.step{step.number}.npy" for step in patch.steps]
            names["patches"].append({"patch": f"{base}.png", "values": values})
        return names
