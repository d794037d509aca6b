"""What a page shows of a result: a photograph with maps over it and what was read of it closely, or drawn figures;
small enough for thousands of them.

Maps are kept as values of cells, in a byte each, with where they lie; the page paints them as `drawing` does.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import finite, whole, whole_pixels, write_text
from fovea.pictures import PHOTOGRAPH, BigFacts, Placement, Shown, Windows, fitting, on_pixels, smaller
from fovea.results import pages
from fovea.results.marks import INKS

FOLDER = "index_files"  # beside index.html, as browsers call what they save with a page
OVERVIEW, REGION = (1024, 1024), 640  # pixels at most of a picture that parts of are shown with, and of their sides
FIGURE = 1600, 6000  # pixels, at most; a tall figure is read by scrolling
QUALITIES = 82, 65, 45, 30  # of JPEG: the first that keeps a photograph
BYTES = 64_000  # below this
CELLS, COARSE = 16_000, 400  # values of all fine maps of a result together, and of one that is kept as it is
DEEP = 360_000  # such values of a picture that is zoomed into

Window = tuple[Sequence[float], tuple[float, float]]  # x0 y0 x1 y1 in the user's pixels; width and height it is read at


@dataclass(frozen=True)
class Panel:
    """A photograph or a figure, drawn when it is written."""

    draw: Callable[[], Image.Image]
    caption: str = ""
    film: Callable[[Path], None] | None = None  # writes the same as an mp4


@dataclass(frozen=True)
class Beside:
    """A file that is written beside the page whatever else is asked for: what it is, how its name ends."""

    kind: str
    end: str
    write: Callable[[Path], None]


@dataclass(frozen=True)
class Overlay:
    """A map over a photograph."""

    method: str
    target: str  # with its probability
    cells: NDArray[np.float32]  # h,w
    placement: Placement
    box: Sequence[float] = ()  # in the user's pixels
    note: str = ""  # why it is blank
    panel: int = 0  # which photograph it is over

    def to_dict(self, size: tuple[int, int], most: int) -> dict[str, Any]:
        """As the page's script reads it: the share of the network's input at share x of the photograph's width is
        at[0] x + at[1]; of its height by the other two."""
        values = np.clip(np.nan_to_num(self.cells, nan=0.0, posinf=0.0, neginf=0.0), 0, None)
        values = _coarser(values.astype(np.float32), most)
        drawn = on_pixels(values, self.placement.at_size(size))
        low, high = float(drawn.min()), float(drawn.max())
        shares = ((values - low) / (high - low) if high > low else 0 * values).clip(0, 1)
        placed = self.placement
        sides = zip(placed.picture, placed.input, placed.scale, placed.offset, strict=True)
        lines = [(pixels / (scale * length), -offset / (scale * length)) for pixels, length, scale, offset in sides]
        box = [side / pixels for side, pixels in zip(self.box, placed.picture * bool(self.box) * 2, strict=True)]
        return {
            "method": self.method,
            "target": self.target,
            "panel": self.panel,
            "grid": list(values.shape),
            "values": base64.b64encode((shares * 255).round().astype(np.uint8).tobytes()).decode(),
            "at": [round(number, 6) for line in lines for number in line],
            "box": [round(side, 4) for side in box],
            "note": self.note,
        }


@dataclass(frozen=True)
class Part:
    """A region that was read by itself: a box on the first panel, and another panel that shows it closely."""

    name: str
    box: Sequence[float]  # in the user's pixels
    panel: int  # which shows it as it was read
    level: int = 2  # the overview's is 1: it has no box
    ink: str = "white"
    share: float | None = None  # the probability of the answer after it
    ahead: str = ""  # the answer at that time, where it was another

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"box": list(self.box), "share": None if self.share is None else finite(self.share)}


@dataclass(frozen=True)
class View:
    """Photographs with maps over them where there are any, then figures; or a text. With a size, the first panel is a
    picture of that size, on which maps and parts lie."""

    panels: tuple[Panel, ...] = ()
    overlays: tuple[Overlay, ...] = ()
    predictions: tuple[tuple[str, float], ...] = ()
    size: tuple[int, int] | None = None  # width and height in the user's pixels
    parts: tuple[Part, ...] = ()  # in the order of reading
    table: tuple[tuple[str, ...], ...] = ()  # rows, the first of them its heading
    deep: bool = False  # one zooms into it: a picture too large to be loaded
    words: str = ""  # what there is to say beside the label and its probability
    beside: tuple[Beside, ...] = ()
    text: tuple[tuple[str, str], ...] = ()  # parts of a text, each after what it is: "", "mark" or "unread"

    @property
    def photographs(self) -> set[int]:
        """The panels that maps lie on, where those are shown beside one another."""
        return {overlay.panel for overlay in self.overlays} if self.size is None else set()

    def pictures(self) -> list[Image.Image]:
        """Of a size to look at."""
        rooms = [PHOTOGRAPH if place in self.photographs else FIGURE for place in range(len(self.panels))]
        return [smaller(panel.draw().convert("RGB"), room) for panel, room in zip(self.panels, rooms, strict=True)]

    def to_dict(self, sizes: Sequence[tuple[int, int]], sources: Sequence[str], films: Sequence[str]) -> dict[str, Any]:
        """As the page's script reads it; pictures and films by their addresses."""
        fine = sum(overlay.cells.size > COARSE for overlay in self.overlays)
        most = max((DEEP if self.deep else CELLS) // max(fine, 1), COARSE)
        rows = zip(self.panels, sizes, sources, films, strict=True)
        return {
            "panels": [
                {"src": source, "size": size, "caption": panel.caption, "film": film}
                for panel, size, source, film in rows
            ],
            "maps": [overlay.to_dict(sizes[overlay.panel], most) for overlay in self.overlays],
            "predictions": [[label, finite(share)] for label, share in self.predictions],
            "size": self.size,
            "parts": [part.to_dict() for part in self.parts],
            "table": self.table,
            "viewer": pages.VIEWER if self.deep else "",
            "words": self.words,
            "text": [list(part) for part in self.text],
        }


def view_of_big(shown: Shown, big: BigFacts, near: Sequence[Window] = (), said: Sequence[str] = ()) -> View:
    """A picture too large to load, with the regions of it that were looked into, or others that there are words for."""
    if not near:
        regions = [box for box in big.regions if box[2] - box[0] < big.size[0] or box[3] - box[1] < big.size[1]]
        near = [(box, ((box[2] - box[0]) * big.resolution, (box[3] - box[1]) * big.resolution)) for box in regions]
        said = [f"region {number}" for number in range(1, len(near) + 1)]
    captions, windows = list[str](), list[Window]()
    for ((x0, y0, x1, y1), (width, height)), words in zip(near, said, strict=True):
        where = f"{x1 - x0:,.0f} x {y1 - y0:,.0f} pixels at {x0:,.0f}, {y0:,.0f}"
        captions.append(f"{words}: {where}, looked into at {width:,.0f} x {height:,.0f}")
        shrink = min(1.0, REGION / max(width, height))
        windows.append(((x0, y0, x1, y1), (width * shrink, height * shrink)))
    parts = tuple(Part(str(number), box, number, ink=INKS[0]) for number, (box, _) in enumerate(windows, 1))
    panels = windows_of(shown, windows, captions)
    return View(panels, size=big.size, parts=parts, deep=True, words=big.reading())


def windows_of(shown: Shown, windows: Sequence[Window], captions: Sequence[str]) -> tuple[Panel, ...]:
    """The picture, small, and windows of it in the detail of so many pixels, each in the picture's proportions. It is
    opened once, when the first is drawn; a big file is not loaded."""

    @cache
    def pictures() -> list[Image.Image]:
        with shown.windows() as source:
            whole = source.read((0, 0, *source.size), fitting(source.size, OVERVIEW))
            return [whole, *(_window(source, *window) for window in windows)]

    def picture(place: int) -> Image.Image:
        return pictures()[place]

    return tuple(Panel(partial(picture, place), caption) for place, caption in enumerate(["", *captions]))


def _window(source: Windows, box: Sequence[float], detail: tuple[float, float]) -> Image.Image:
    sides = whole_pixels(box, source.size)
    width, height = sides[2] - sides[0], sides[3] - sides[1]
    read = max(round(detail[0]), 1), max(round(detail[1]), 1)
    scale = max(read[0] / width, read[1] / height)
    shrunk = source.read(sides, read, Image.Resampling.BOX)
    return shrunk.resize((max(round(width * scale), 1), max(round(height * scale), 1)))


def _coarser(values: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """Of at most about so many cells, each the mean of those that it stands for."""
    shrink = (most / values.size) ** 0.5
    if shrink >= 1:
        return values
    height, width = (max(int(side * shrink), 1) for side in values.shape)
    return np.array(Image.fromarray(values).resize((width, height), Image.Resampling.BOX))


def _jpeg(image: Image.Image, most: int | None) -> bytes:
    """Coarser where it would take more bytes, as noise does."""
    for quality in QUALITIES:
        buffer = BytesIO()
        image.save(buffer, "jpeg", quality=quality)
        if most is None or buffer.tell() <= most:
            break
    return buffer.getvalue()


def write(view: View, folder: Path, stem: str) -> dict[str, Any]:
    """Into the folder beside the page; the names of what was written."""
    place, names = folder / FOLDER, dict[str, Any]()
    pictures, films = view.pictures(), []
    bases = [stem if number == 0 else f"{stem}.{number + 1}" for number in range(len(pictures))]
    for number, (base, picture, panel) in enumerate(zip(bases, pictures, view.panels, strict=True)):
        with whole(place / f"{base}.jpg") as part:
            part.write_bytes(_jpeg(picture, BYTES if number in view.photographs else None))
        films.append(f"{base}.mp4" if panel.film is not None else "")
        if panel.film is not None:
            panel.film(place / films[-1])
    content = view.to_dict([picture.size for picture in pictures], [f"{base}.jpg" for base in bases], films)
    if view.deep and not (place / pages.VIEWER).is_file():
        write_text(place / pages.VIEWER, pages.viewer())
    write_text(place / f"{stem}.js", f"fovea({script_json(stem)}, {script_json(content)})\n")
    if bases:
        names["photograph" if view.overlays else "figure"] = f"{FOLDER}/{stem}.jpg"
    others = [f"{base}.jpg" for base in bases[1:]] + [name for name in films if name]
    more = {"more": [f"{FOLDER}/{name}" for name in others]} if others else {}
    return names | {"data": f"{FOLDER}/{stem}.js", **more}


def write_beside(view: View, folder: Path, stem: str) -> dict[str, list[str]]:
    """Names by what the files are."""
    names = dict[str, list[str]]()
    for file in view.beside:
        file.write(folder / f"{stem}.{file.end}")
        names.setdefault(file.kind, []).append(f"{stem}.{file.end}")
    return names


def script_json(content: Any) -> str:
    """JSON that ends no script element, whatever it holds."""
    return json.dumps(content, separators=(",", ":")).replace("<", "\\u003c").replace(">", "\\u003e")


def first_box(boxes: Any) -> list[float]:
    """The first of a result's boxes, however they lie, where it has four sides and is not blank."""
    while len(boxes) and np.ndim(boxes[0]) > 0:
        boxes = boxes[0]
    sides = [float(side) for side in boxes]
    return sides if len(sides) == 4 and any(sides) else []
