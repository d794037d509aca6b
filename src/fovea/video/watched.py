"""What was seen in a clip: the maps of its explained frames, the strip and the film that show them."""

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.heatmaps.heatmap import HeatMap
from fovea.pictures.clips import Frames


@dataclass(frozen=True)
class Watched:
    """`.map` is a HeatMap with values 1,T,K,h,w; boxes are in the clip's own pixels."""

    map: HeatMap
    times: tuple[float, ...]  # T, of the explained frames, in seconds
    numbers: tuple[int, ...]  # T, of the explained frames in the file
    rate: float  # frames a second
    net: str
    share: tuple[float, ...]  # K: the probability of each target in the clip as a whole; empty where it has none
    shares: tuple[tuple[float, ...], ...]  # T of K: in each frame alone; empty where frames are seen together
    film: Frames  # every frame of the stretch that was watched
    end: float  # when the last of them is over
    notes: tuple[str, ...] = ()  # what the reader should know: frames that could not be decoded

    def __len__(self) -> int:
        return len(self.times)

    @property
    def name(self) -> str:
        return self.map.shown[0].name

    @property
    def best(self) -> tuple[tuple[str, float], ...]:
        """The classes that the clip as a whole is taken for, with their probabilities; none of an embedding."""
        return self.map.shown[0].predictions

    @property
    def values(self) -> NDArray[np.float32]:
        """T,K,h,w."""
        found: NDArray[np.float32] = self.map.numpy()[0]
        return found

    def boxes(self) -> NDArray[np.int64]:
        """T,K,4 in the clip's own pixels; all zeros where a map is blank."""
        found: NDArray[np.int64] = self.map.boxes()[0]
        return found

    def at(self, time: float, target: int = 0) -> NDArray[np.float32]:
        """The map at any time, h,w: on the straight line between the explained frames before and after it, and that of
        the first or the last where there is none before or after."""
        after = bisect_right(self.times, time)
        values = self.values[:, target]
        if after in (0, len(self)):
            held: NDArray[np.float32] = values[min(after, len(self) - 1)]
            return held
        before = self.times[after - 1]
        part = np.float32((time - before) / (self.times[after] - before))
        between: NDArray[np.float32] = (1 - part) * values[after - 1] + part * values[after]
        return between

    def title(self, target: int = 0) -> str:
        """The target and its probability; of the whole output, what the clip is taken for, where that has a name."""
        name = self.map.targets[0][target]
        told = name if name != "output" else "where it looks"
        if name == "output" and self.best:
            told = f"{told} · says {self.best[0][0]} {self.best[0][1]:.2f}"
        return (f"{told} {self.share[target]:.2f}" if self.share else told).replace("_", " ")

    def strip(self, target: int = 0) -> Image.Image:
        """The frames beside each other, and under each the same with its map and box."""
        from fovea.video.strip import draw

        return draw(self, target)

    def save_film(
        self, path: str | Path, target: int = 0, advance: Callable[[int, int], object] = lambda done, total: None
    ) -> None:
        """An mp4 of the whole stretch, map, box and label on every frame."""
        from fovea.video.film import write

        write(self, Path(path), target, advance)

    def save(self, folder: str | Path) -> list[dict[str, Any]]:
        """Strip, film, raw values (.npy, T,h,w) and manifest.json into a folder; the manifest's rows come back."""
        from fovea.heatmaps.writing import Writer
        from fovea.video.writing import add

        with Writer(Path(folder), {"net": self.net}) as writer:
            add(writer, [self])
        return writer.rows

    def _repr_png_(self) -> bytes:
        from io import BytesIO

        buffer = BytesIO()
        self.strip().save(buffer, "png")
        return buffer.getvalue()
