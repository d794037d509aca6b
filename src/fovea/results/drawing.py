"""Pictures for people: a map over its picture, boxes that show on any background, and strips of them."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from fovea.basics import boxes as regions

COLORS, GRAY = "viridis", "#555555"  # of maps, and of what is said beside
SMALLEST, LARGEST = 320, 1200  # longer side of what is drawn: a thumbnail is enlarged, a poster shrunk


def blend(
    image: Image.Image, values: NDArray[np.floating], window: tuple[float, float, float, float] | None = None
) -> Image.Image:
    """Color by value, stronger where the value is; what lies outside the window that the network saw is pale gray."""
    scaled = regions.normalized(values)
    size = _good_size(image.size)
    base = np.asarray(image.resize(size, Image.Resampling.LANCZOS), dtype=np.float32)
    heat = np.asarray(Image.fromarray(scaled.astype(np.float32)).resize(size, Image.Resampling.BILINEAR))
    gray = base.mean(2, keepdims=True)
    share = (0.30 + 0.45 * heat)[..., None]
    mixed = (1 - share) * (0.5 * base + 0.5 * gray) + share * color(heat)
    if window is not None:
        x0, y0, x1, y1 = (
            round(side * new / old) for side, new, old in zip(window, size * 2, image.size * 2, strict=True)
        )
        unseen = np.ones(mixed.shape[:2], dtype=bool)
        unseen[y0:y1, x0:x1] = False
        mixed[unseen] = (0.5 * gray + 110).repeat(3, axis=2)[unseen]
    return Image.fromarray(mixed.clip(0, 255).astype(np.uint8))


def _good_size(size: tuple[int, int]) -> tuple[int, int]:
    longer = max(size)
    zoom = SMALLEST / longer if longer < SMALLEST else min(1.0, LARGEST / longer)
    return max(round(size[0] * zoom), 1), max(round(size[1] * zoom), 1)


def enlarged(image: Image.Image) -> tuple[Image.Image, float]:
    """A picture at a size that is good to look at, and how much larger that is."""
    image = image if image.mode == "RGB" else image.convert("RGB")
    drawn = image.resize(_good_size(image.size), Image.Resampling.LANCZOS)
    return drawn, drawn.width / image.width


def dimmed(image: Image.Image, boxes: Sequence[Sequence[float]]) -> Image.Image:
    """Pale gray outside the boxes."""
    base = np.asarray(image, dtype=np.float32)
    shown = np.zeros(base.shape[:2], dtype=bool)
    for x0, y0, x1, y1 in boxes:
        shown[round(y0) : round(y1), round(x0) : round(x1)] = True
    pale = (0.45 * base.mean(2, keepdims=True) + 0.1 * base + 105).clip(0, 255)
    return Image.fromarray(np.where(shown[..., None], base, pale).astype(np.uint8))


def with_boxes(image: Image.Image, boxes: Sequence[Sequence[float]], numbered: bool = True) -> Image.Image:
    """A picture at a size to look at with its boxes, numbered from 1; what no box shows is pale."""
    drawn, zoom = enlarged(image)
    scaled = [[side * zoom for side in box] for box in boxes]
    drawn = dimmed(drawn, scaled)
    for number, box in reversed(list(enumerate(scaled, 1))):
        draw_box(drawn, box, str(number) if numbered else "")
    return drawn


def color(share: NDArray[np.floating]) -> NDArray[np.float32]:
    """0..1 to red, green, blue in 0..255."""
    colors: NDArray[np.float32] = _colors()[(share.clip(0, 1) * 255).astype(int)]
    return colors


@lru_cache
def _colors() -> NDArray[np.float32]:
    from matplotlib import colormaps

    return (colormaps[COLORS](np.linspace(0, 1, 256))[:, :3] * 255).astype(np.float32)


def draw_box(image: Image.Image, box: Sequence[float], name: str = "") -> None:
    """White inside black: visible on any background."""
    pen = ImageDraw.Draw(image)
    x0, y0, x1, y1 = box
    x1, y1 = max(x1 - 1, x0), max(y1 - 1, y0)
    for inset, ink in ((0, "black"), (1, "white"), (2, "white"), (3, "black")):
        if x1 - x0 > 2 * inset and y1 - y0 > 2 * inset:
            pen.rectangle((x0 + inset, y0 + inset, x1 - inset, y1 - inset), outline=ink)
    if name:
        write(image, (x0 + 6, y0 + 5), name, 14)


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
    """The color bar, with the map's own smallest and largest values at its ends."""
    clipped = np.clip(np.nan_to_num(values), 0, None)
    canvas = padded(image, (image.width + 58, image.height))
    top, bottom = 16, max(image.height - 16, 17)
    ramp = np.linspace(1, 0, bottom - top)[:, None].repeat(12, axis=1)
    canvas.paste(Image.fromarray(color(ramp).astype(np.uint8)), (image.width + 8, top))
    pen = ImageDraw.Draw(canvas)
    pen.text((image.width + 6, 1), f"{clipped.max():.2g}", fill="black", font=font(11))
    pen.text((image.width + 6, bottom + 2), f"{clipped.min():.2g}", fill="black", font=font(11))
    return canvas


def legend(width: int, height: int) -> Image.Image:
    """The colors of maps that are each scaled by itself."""
    canvas, top = Image.new("RGB", (width, height), "white"), (height - 14) // 2
    ramp = np.linspace(0, 1, 90)[None].repeat(9, axis=0)
    canvas.paste(Image.fromarray(color(ramp).astype(np.uint8)), (34, top + 3))
    pen = ImageDraw.Draw(canvas)
    pen.text((0, top), "least", fill=GRAY, font=font(11))
    pen.text((130, top), "most, in each map by itself", fill=GRAY, font=font(11))
    return canvas


def titled(image: Image.Image, title: str, subtitle: str = "") -> Image.Image:
    lines = [(line, 15, "black") for line in wrapped(title, 15, image.width - 8)]
    lines += [(line, 12, GRAY) for line in wrapped(subtitle, 12, image.width - 8)]
    return headed(image, lines, edge=4, between=5, below=2)


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
    zoom = min(room[0] / image.width, room[1] / image.height)
    width, height = (max(round(side * zoom), least) for side in image.size)
    return image.resize((width, height), Image.Resampling.LANCZOS)


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
