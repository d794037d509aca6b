"""What was seen in a clip: the maps of its explained frames, the strip and the film that show them."""

from bisect import bisect_right
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import Names, Progress, finite, plain, quiet
from fovea.heatmaps import HeatMaps
from fovea.pictures import Frames, facts
from fovea.results import Panel, Results, Shows, Size, View, write_picture, write_values
from fovea.video import film

ENDS = (("strip", "strip.png"), ("film", "film.mp4"))


@dataclass(frozen=True, eq=False, repr=False)
class Watched(Shows):
    """`.map` are HeatMaps with values 1,T,K,h,w; boxes are in the clip's own pixels."""

    map: HeatMaps
    times: tuple[float, ...]  # T, of the explained frames, in seconds
    numbers: tuple[int, ...]  # T, of the explained frames in the file
    rate: float  # frames per second
    net: str
    share: tuple[float, ...]  # K: the probability of each target in the clip as a whole; empty where it has none
    shares: tuple[tuple[float, ...], ...]  # T of K: in each frame alone; empty where frames are seen together
    film: Frames  # every frame of the stretch that was watched
    end: float  # when the last of them is over
    notes: tuple[str, ...] = ()  # what the reader should know: frames that could not be decoded
    alone: bool = True  # its clip was explained by one method
    answers: tuple[tuple[str, float], ...] = ()  # T: what each frame alone is taken for; empty where it is nothing

    def __len__(self) -> int:
        return len(self.times)

    @property
    def name(self) -> str:
        return self.map.shown[0].name

    @property
    def label(self) -> str:
        return self.map[0].label

    @property
    def probability(self) -> float | None:
        return self.map[0].probability

    @property
    def note(self) -> str | None:
        """Why a map is blank, where one is."""
        return self.map[0].note

    @property
    def best(self) -> tuple[tuple[str, float], ...]:
        """The classes that the clip as a whole is taken for, with their probabilities; none of an embedding."""
        return self.map.shown[0].predictions

    @property
    def values(self) -> NDArray[np.float32]:
        """T,K,h,w."""
        return self.map.numpy()[0]

    @property
    def boxes(self) -> NDArray[np.int64]:
        """T,K,4 in the clip's own pixels; all zeros where a map is blank."""
        return self.map[0].boxes

    def at(self, time: float, target: int = 0) -> NDArray[np.float32]:
        """The map at any time, h,w: on the straight line between the explained frames before and after it, and that of
        the first or the last where there is none before or after."""
        after = bisect_right(self.times, time)
        values = self.values[:, target]
        if after in (0, len(self)):
            return values[min(after, len(self) - 1)]
        before = self.times[after - 1]
        part = np.float32((time - before) / (self.times[after] - before))
        return (1 - part) * values[after - 1] + part * values[after]

    def title(self, target: int = 0) -> str:
        """The target and its probability; of the whole output, what the clip is taken for, where that has a name."""
        name = self.map.targets[0][target]
        words = name if name != "output" else "where it looks"
        if name == "output" and self.best:
            words = f"{words} · says {self.best[0][0]} {self.best[0][1]:.2f}"
        return (f"{words} {self.share[target]:.2f}" if self.share else words).replace("_", " ")

    def draw(self, target: int = 0) -> Image.Image:
        """The strip: the frames beside each other, and under each the same with its map and box."""
        return film.draw(self, target)

    def save_film(self, path: str | Path, target: int = 0, advance: Progress = quiet) -> None:
        """An mp4 of the whole stretch, map, box and label on every frame."""
        film.write(self, Path(path), target, advance)

    def save(self, folder: str | Path, files: bool = False) -> list[dict[str, Any]]:
        """The page with strip and film, and results.json; where they are asked for, loose files: strip, film and raw
        values (.npy, T,h,w). The rows come back."""
        return Results([self], what="watch", settings={"net": self.net}).save(folder, files)

    def view(self) -> View:
        """One strip and one film per target."""
        panels = []
        for k in range(len(self.map.targets[0])):
            film = partial(self.save_film, target=k)
            panels.append(Panel(partial(self.draw, k), f"{self.map.method}: {self.title(k)}", film))
        return View(tuple(panels), predictions=self.best, words=f"{len(self)} of its frames explained")

    def to_dict(self) -> dict[str, Any]:
        share, heatmaps = self.probability, self.map
        return {
            "label": self.label,
            "probability": None if share is None else finite(share),
            **facts(heatmaps.shown[0]),
            "rate": self.rate,
            "frames": [self._frame(place) for place in range(len(self))],
            "notes": list(self.notes),
            "maps": [self._row(target) for target in range(len(heatmaps.targets[0]))],
        }

    def _frame(self, place: int) -> dict[str, Any]:
        label, share = self.answers[place] if self.answers else (None, None)
        about = {"label": label, "probability": None if share is None else finite(share)} if self.answers else {}
        return {"number": self.numbers[place], "time": self.times[place], **about}

    def said(self, place: int, target: int) -> str:
        """What an explained frame alone says of the target, and what it is taken for where that is something else."""
        name, words = self.map.targets[0][target], []
        if self.shares and self.shares[place]:
            words = [f"{name} {self.shares[place][target]:.2f}"]
        if self.answers and self.answers[place][0] != name:
            words.append("says {} {:.2f}".format(*self.answers[place]))
        return " · ".join(words).replace("_", " ")

    def _row(self, target: int) -> dict[str, Any]:
        """As of a picture, with a loss, a probability and boxes for each frame."""
        heatmaps = self.map
        losses = None if heatmaps.loss is None else heatmaps.loss[0, :, target].float().cpu().tolist()
        return {
            "target": heatmaps.targets[0][target],
            "class": heatmaps.classes[0][target],
            "probability": finite(self.share[target]) if self.share else None,
            "probabilities": [finite(row[target]) for row in self.shares if row] or None,
            "method": heatmaps.method,
            "layer": heatmaps.layer,
            "solver": heatmaps.solver,
            "loss": None if losses is None else list(map(finite, losses)),
            "iterations": heatmaps.iterations,
            "boxes": [[box.tolist()] if box.any() else [] for box in self.map[0].boxes_at()[:, target]],
            "diagnosis": heatmaps.diagnosis[0][target],
            "note": heatmaps.note or None,
        }

    def files(self, folder: Path, stem: str, size: Size = None) -> dict[str, Any]:
        """STEM.strip.png and STEM.film.mp4, or one of each per map where there are several; the values."""
        names, written = Names(), []
        short = self.alone and len(self.map.targets[0]) == 1
        for target, name in enumerate(self.map.targets[0]):
            base = f"{stem}.{plain(self.map.method)}.{names.take(name, str(target))}"
            row = {"values": f"{base}.npy", **{kind: f"{stem if short else base}.{end}" for kind, end in ENDS}}
            write_values(folder / row["values"], self.values[:, target])  # T,h,w
            write_picture(folder / row["strip"], self.draw(target))
            self.save_film(folder / row["film"], target)
            written.append(row)
        return {"maps": written}
