"""Pictures for people: a map over its picture, boxes that show on any background, and strips of them."""

import math
from bisect import bisect_left
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from io import BytesIO
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fovea.basics import boxes as regions

COLORS, GRAY = "viridis", "#555555"  # of maps, and of what is said beside
MORE, LESS = "#d55e00", "#0072b2"  # Okabe and Ito's: than the mean
OPACITY = 0.8  # of a map's color where it is largest
UNSEEN = "hatched: not seen by the network"
BAND = 512  # rows of pixels that are colored at once
SMALLEST, LARGEST = 320, 1200  # longer side of what is drawn: a thumbnail is enlarged, a poster shrunk

Place = tuple[float, float, float, float]  # x0 y0 x1 y1
Size = int | Literal["full"] | None  # longer side in pixels; "full" is the picture's own


def opacity(shares: NDArray[np.floating]) -> NDArray[np.floating]:
    """How much of the color, and how little of the photograph, is seen where a map has these shares of its largest
    value. Pages paint by the same rule: where the map is 0 the photograph is as it was."""
    return OPACITY * shares


def blend(
    image: Image.Image,
    values: NDArray[np.floating],
    window: Place | None = None,
    size: Size = None,
    most: float | None = None,
) -> Image.Image:
    """The photograph under the map, whose colors are the stronger the larger the value; hatched outside the window.
    `most` is the value of the strongest color; the map's own largest unless given."""
    drawn = enlarged(image, size)
    shares = regions.normalized(values) if most is None else _shares(values, most)
    levels = Image.fromarray((shares * 255).round().astype(np.uint8))
    heat = levels.resize(drawn.size, Image.Resampling.BILINEAR)
    opaque_at = (255 * opacity(np.linspace(0, 1, 256))).round().astype(int).tolist()
    palette = _colors().astype(np.uint8).tobytes()
    for top in range(0, drawn.height, BAND):  # a picture of 24 megapixels is not held four times
        part = heat.crop((0, top, drawn.width, min(top + BAND, drawn.height)))
        opaque = part.point(opaque_at)
        part.putpalette(palette)
        drawn.paste(part.convert("RGB"), (0, top), opaque)
    if window is not None and crops(window, image.size):
        across, down = drawn.width / image.width, drawn.height / image.height
        hatch(drawn, (window[0] * across, window[1] * down, window[2] * across, window[3] * down))
    return drawn


def differ(image: Image.Image, values: NDArray[np.floating], most: float) -> Image.Image:
    """The photograph under what is more (MORE) and what is less (LESS), `most` being the strongest color's."""
    drawn = image.convert("RGB")
    for ink, own in ((MORE, values), (LESS, -values)):
        opaque = Image.fromarray((255 * opacity(_shares(own, most))).round().astype(np.uint8))
        drawn.paste(ink, mask=opaque.resize(drawn.size, Image.Resampling.BILINEAR))
    return drawn


def _shares(values: NDArray[np.floating], most: float) -> NDArray[np.floating]:
    shares: NDArray[np.floating] = np.clip(values / most, 0, 1) if most > 0 else np.zeros_like(values)
    return shares


def crops(window: Place | None, size: tuple[int, int]) -> bool:
    """Whether a picture has more than a window shows, by a pixel at least."""
    return window is not None and (max(window[:2]) >= 1 or size[0] - window[2] >= 1 or size[1] - window[3] >= 1)


def hatch(image: Image.Image, window: Place) -> None:
    """Thin lines over what lies outside a window, and around it: light beside dark, to show on any background."""
    x0, y0, x1, y1 = map(round, window)
    thick = round(scale_of(image))
    step = 16 * thick
    slant = np.add.outer(np.arange(step), np.arange(step)) % step // thick
    repeat = -(-image.height // step), -(-image.width // step)
    for ink, lines in (("black", slant == 0), ("white", slant == 1)):
        mask = np.tile(lines.astype(np.uint8) * 150, repeat)[: image.height, : image.width]
        mask[y0:y1, x0:x1] = 0
        image.paste(ink, mask=Image.fromarray(mask))
    pen = ImageDraw.Draw(image)
    for apart, ink in ((thick, "white"), (2 * thick, "black")):
        pen.rectangle((x0 - apart, y0 - apart, x1 + apart - 1, y1 + apart - 1), outline=ink, width=thick)


def scale_of(image: Image.Image) -> float:
    """How much larger lines and letters are on a large picture than on one of 600 pixels."""
    return max(1.0, max(image.size) / 600)


def _good_size(size: tuple[int, int], asked: Size) -> tuple[int, int]:
    longer = max(size)
    zoom = SMALLEST / longer if longer < SMALLEST else min(1.0, LARGEST / longer)
    if asked is not None:
        zoom = 1.0 if asked == "full" else asked / longer
    return max(round(size[0] * zoom), 1), max(round(size[1] * zoom), 1)


def enlarged(image: Image.Image, size: Size = None) -> Image.Image:
    """A copy of a picture at a size that is good to look at, or at the one asked for."""
    image = image if image.mode == "RGB" else image.convert("RGB")
    return image.resize(_good_size(image.size, size), Image.Resampling.LANCZOS)


def color(share: NDArray[np.floating]) -> NDArray[np.float32]:
    """0..1 to red, green, blue in 0..255."""
    colors: NDArray[np.float32] = _colors()[(share.clip(0, 1) * 255).astype(int)]
    return colors


@lru_cache
def _colors() -> NDArray[np.float32]:
    """As matplotlib has them, which takes longer to import than a picture to draw."""
    table: NDArray[np.float32] = np.load(BytesIO(files("fovea.results").joinpath(f"{COLORS}.npy").read_bytes()))
    return table


def write(image: Image.Image, at: tuple[float, float], text: str, size: int, anchor: str = "la") -> None:
    """White letters with a black rim: visible on any background."""
    pen = ImageDraw.Draw(image)
    pen.text(at, text, fill="white", font=font(size), anchor=anchor, stroke_width=2, stroke_fill="black")


def padded(image: Image.Image, size: tuple[int, int], at: tuple[int, int] = (0, 0)) -> Image.Image:
    """On white of a size."""
    canvas = Image.new("RGB", size, "white")
    canvas.paste(image, at)
    return canvas


def with_bar(image: Image.Image, values: NDArray[np.floating]) -> Image.Image:
    """Beside its colors as they are on white, with a few round values of the map."""
    clipped = np.clip(np.nan_to_num(values), 0, None)
    low, high = float(clipped.min()), float(clipped.max())
    low = 0.0 if low < high / 50 else low  # so near that 0 is read there
    scale = scale_of(image)
    edge, letters = round(9 * scale), font(round(12 * scale))
    marks = ticks(low, high, most=max(1, min(5, round(image.height / scale / 50))))
    words = [f"{mark:g}" for mark in marks]
    wide = max(map(letters.getlength, words), default=0)
    canvas = padded(image, (image.width + round(4 * edge + wide), image.height))
    length, left = max(image.height - 2 * edge, 1), image.width + edge
    canvas.paste(ramp_of(np.linspace(1, 0, length)[:, None].repeat(round(12 * scale), axis=1)), (left, edge))
    pen, right = ImageDraw.Draw(canvas), left + round(12 * scale)
    for mark, word in zip(marks, words, strict=True):
        y = edge + (length - 1) * (high - mark) / (high - low or 1)
        pen.line((right, y, right + 4 * scale, y), fill=GRAY, width=round(scale))
        pen.text((right + 6 * scale, y), word, fill="black", font=letters, anchor="lm")
    return canvas


def ticks(low: float, high: float, most: int) -> list[float]:
    """Round values in a range, about so many: two at least, where it is not too narrow for that."""
    if not low < high:
        return [low]
    wide, places = (high - low) / most, list[float]()
    steps = [digit * 10.0 ** math.floor(math.log10(wide)) for digit in (0.1, 0.2, 0.5, 1, 2, 5, 10)]
    for step in reversed(steps[: bisect_left(steps, wide * (1 - 1e-9)) + 1]):
        around = range(math.floor(low / step), math.ceil(high / step) + 1)
        places = [place for i in around if low <= (place := i * step) <= high]
        if len(places) > 1:
            break
    return places or [high]


def ramp_of(shares: NDArray[np.floating]) -> Image.Image:
    """Colors as a map has them on white: none where it is 0."""
    opaque = opacity(shares)[..., None]
    return Image.fromarray(((1 - opaque) * 255 + opaque * color(shares)).astype(np.uint8))


def legend(width: int, height: int) -> Image.Image:
    """The colors of maps that are each scaled by itself."""
    canvas, top = Image.new("RGB", (width, height), "white"), (height - 14) // 2
    ramp = np.linspace(0, 1, 90)[None].repeat(9, axis=0)
    canvas.paste(ramp_of(ramp), (34, top + 3))
    pen = ImageDraw.Draw(canvas)
    pen.text((0, top), "least", fill=GRAY, font=font(11))
    pen.text((130, top), "most, in each map by itself", fill=GRAY, font=font(11))
    return canvas


def titled(image: Image.Image, title: str, subtitle: str = "", scale: float = 1.0) -> Image.Image:
    large, small, edge = (round(size * scale) for size in (15, 12, 4))
    lines = [(line, large, "black") for line in wrapped(title, large, image.width - 2 * edge)]
    lines += [(line, small, GRAY) for line in wrapped(subtitle, small, image.width - 2 * edge)]
    return headed(image, lines, edge=edge, between=edge + 1, below=edge // 2)


def headed(
    image: Image.Image, lines: Sequence[tuple[str, int, str]], edge: int, between: int, below: int
) -> Image.Image:
    """Under lines of text, each with its size and color."""
    height = edge + sum(size + between for _, size, _ in lines) + below
    canvas, y = padded(image, (image.width, image.height + height), (0, height)), edge
    for line, size, ink in lines:
        ImageDraw.Draw(canvas).text((edge, y), line, fill=ink, font=font(size))
        y += size + between
    return canvas


def fitted(image: Image.Image, room: tuple[int, int], least: int = 1) -> Image.Image:
    """As large as there is room, in its own proportions, unless they would leave less than `least` pixels of a side."""
    return image.resize(fitted_size(image.size, room, least), Image.Resampling.LANCZOS)


def fitted_size(size: tuple[int, int], room: tuple[int, int], least: int = 1) -> tuple[int, int]:
    zoom = min(room[0] / size[0], room[1] / size[1])
    return max(round(size[0] * zoom), least), max(round(size[1] * zoom), least)


def shortened(text: str, size: int, width: float, after: str = "") -> str:
    """Text with what comes after it; of one too long, its end is left out."""
    letters = font(size).getlength
    if letters(text + after) <= width:
        return text + after
    while text and letters(f"{text}…{after}") > width:
        text = text[:-1]
    return f"{text}…{after}"


def wrapped(text: str, size: int, width: int) -> list[str]:
    """Text in lines of at most this width, as far as its words allow."""
    lines: list[str] = []
    for word in text.split():
        if lines and font(size).getlength(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def spaced(label: str) -> str:
    """Names of classes are often written with underscores, at which no line would end."""
    return label.replace("_", " ")


def in_rows(tiles: Sequence[Image.Image], most: int, gap: int = 6) -> Image.Image:
    """At most so many in a row, in rows as even as can be."""
    rows = -(-len(tiles) // most)
    columns = -(-len(tiles) // rows)
    return grid([tiles[i : i + columns] for i in range(0, len(tiles), columns)], gap)


def grid(rows: Sequence[Sequence[Image.Image]], gap: int = 6) -> Image.Image:
    """Pictures in rows, each column as wide as its widest."""
    widths = [max(row[i].width for row in rows if i < len(row)) for i in range(max(map(len, rows)))]
    heights = [max(image.height for image in row) for row in rows]
    canvas = Image.new("RGB", (sum(widths) + gap * (len(widths) - 1), sum(heights) + gap * (len(rows) - 1)), "white")
    for r, row in enumerate(rows):
        for c, image in enumerate(row):
            canvas.paste(image, (sum(widths[:c]) + gap * c, sum(heights[:r]) + gap * r))
    return canvas


def named(image: Image.Image, room: tuple[int, int], title: str, subtitle: str) -> Image.Image:
    """In the middle of a tile, under its name, cut off where it is too long for a line."""
    canvas = padded(image, room, ((room[0] - image.width) // 2, (room[1] - image.height) // 2))
    above, below = (shortened(text, size, room[0] - 8) for text, size in ((title, 15), (subtitle or " ", 12)))
    return titled(canvas, above, below)


def framed(image: Image.Image, edge: int = 8, above: int | None = None) -> Image.Image:
    """With a white edge, another one above where that is given."""
    top = edge if above is None else above
    return padded(image, (image.width + 2 * edge, image.height + top + edge), (edge, top))


@lru_cache
def font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)
