"""How a clip's maps are shown: the strip, frames beside each other, under each the same frame with the map and the box;
and the film, the clip once more with the map, its box and the label on every frame, as H.264 that browsers play."""

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadChoice, whole
from fovea.basics import boxes as regions
from fovea.pictures import Frame, library, on_pixels, spread
from fovea.results import drawing, marks

if TYPE_CHECKING:
    from av import Packet
    from av.container import OutputContainer

    from fovea.video.watched import Watched

UNIT = Fraction(1, 90000)  # of time: whole numbers of it are the frames of every usual rate
TEXT, EDGE = 18, 8
TILE, GAP = (320, 240), 6  # pixels: that a frame fits in, between things
COLUMNS, MOST = 6, 18  # frames in a row, and in a strip
COARSE = 4  # pixels of a frame to one of the map that is colored


def write(watched: "Watched", path: Path, target: int, advance: Callable[[int, int], object]) -> None:
    """Frames keep their own times, so a clip of varying rate varies alike. Whole or not there at all."""
    av = library()
    if path.exists() and Path(watched.name).exists() and path.samefile(watched.name):
        raise BadChoice(f"{path} is the clip itself: name another file for the film")
    with whole(path) as part, av.open(str(part), "w", format="mp4", options={"movflags": "faststart"}) as container:
        # frames stored in the order they are shown: else the length of a clip of varying rate is told wrong
        options = {"preset": "veryfast", "crf": "20", "bf": "0"}
        rate = Fraction(watched.rate).limit_denominator(1001)
        stream = container.add_stream("libx264", rate=rate, options=options)
        stream.codec_context.time_base = UNIT
        stream.pix_fmt = "yuv420p"
        lengths: dict[int | None, int] = {}
        for frame, length in _lasting(watched, advance):
            drawn = _drawn(watched, frame.image, frame.time, target)
            if not lengths:
                stream.width, stream.height = drawn.size
            picture = av.VideoFrame.from_ndarray(np.asarray(drawn))
            picture.time_base = UNIT
            picture.pts = round((frame.time - watched.film.times[0]) / UNIT)
            lengths[picture.pts] = round(length / UNIT)
            _mux(container, stream.encode(picture), lengths)
        _mux(container, stream.encode(), lengths)


def _lasting(watched: "Watched", advance: Callable[[int, int], object]) -> Iterator[tuple[Frame, float]]:
    """Every frame, and how long it is shown."""
    numbers, times = watched.film.numbers, watched.film.times
    ends = dict(zip(numbers, (*times[1:], watched.end), strict=True))
    for done, frame in enumerate(watched.film.read(), 1):
        yield frame, ends[frame.number] - frame.time
        advance(done, len(numbers))


def _mux(container: "OutputContainer", packets: Sequence["Packet[Any]"], lengths: dict[int | None, int]) -> None:
    """The encoder does not know how long the last frame is shown."""
    for packet in packets:
        packet.duration = lengths[packet.pts]
        container.mux(packet)


def _drawn(watched: "Watched", image: Image.Image, time: float, target: int) -> Image.Image:
    image = drawing.enlarged(image)
    width, height = (max(side // 2 * 2, 2) for side in image.size)  # colors are stored for two by two pixels
    image = image if image.size == (width, height) else image.resize((width, height), Image.Resampling.LANCZOS)
    drawn = annotated(watched, image, watched.at(time, target))
    words = drawing.shortened(watched.title(target), TEXT, width - 2 * EDGE, f" · {time:.2f} s")
    drawing.write(drawn, (EDGE, EDGE - 2), words, TEXT)
    return drawn


def draw(watched: "Watched", target: int) -> Image.Image:
    places = spread(range(len(watched)), MOST)
    strip = drawing.in_rows([_block(watched, place, target) for place in places], COLUMNS, 2 * GAP)
    strip = drawing.grid([[strip], [drawing.legend(strip.width, 16)]], GAP)
    words = [watched.net, watched.map.method]
    words += [f"{len(places)} of {len(watched)} explained frames"] if len(places) < len(watched) else []
    words += [reason] if (reason := watched.map.diagnosis[0][target]) else []
    words += [drawing.UNSEEN] if watched.map[0].crops else []
    return drawing.titled(strip, f"{Path(watched.name).name}: {watched.title(target)}", " · ".join(filter(None, words)))


def _block(watched: "Watched", place: int, target: int) -> Image.Image:
    """A frame and its map under when it is, which it is and what is said of it."""
    image = drawing.fitted(watched.map.shown[0].image(place), TILE, 2)
    shown = annotated(watched, image, watched.values[place, target])
    when = f"{watched.times[place]:.2f} s · frame {watched.numbers[place]}"
    words = [(when, 13, "black"), (watched.said(place, target), 12, drawing.GRAY)]
    lines = [(drawing.shortened(line, size, image.width), size, ink) for line, size, ink in words if line]
    return drawing.headed(drawing.grid([[image], [shown]], GAP), lines, 0, 4, 2)


def annotated(watched: "Watched", image: Image.Image, cells: NDArray[np.float32]) -> Image.Image:
    """A frame, at any size, under a map of it, with the map's box."""
    placement = watched.map.shown[0].placement
    assert placement is not None  # frames have pixels
    size = image.size
    small = placement.at_size((max(size[0] // COARSE, 2), max(size[1] // COARSE, 2)))
    drawn = drawing.blend(image, on_pixels(cells.clip(0), small), placement.at_size(size).window, size=max(size))
    box = regions.box_of(on_pixels(cells.clip(0), placement.at_size(size)))
    if box.any():
        marks.draw_box(drawn, box.tolist(), size)
    return drawn
