"""Megapixel digits: a large dark canvas with a few digits, fragments of others and short strokes. Nothing is stored.

A canvas follows from the settings, the seed and its index alone, and is made when it is read. After cluttered MNIST
(Mnih et al. 2014) and Megapixel MNIST (Katharopoulos & Fleuret 2019, which has copies=3, others=2, canvas=1500)."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from fovea.basics import SEED, BadChoice, Bound, bounded, within
from fovea.data import digits, mnist
from fovea.data.layouts import layout
from fovea.data.options import Size, splits_asked
from fovea.data.places import at_home, find
from fovea.data.samples import Box, DataSet, Sample

FRAGMENT = 8 / 28  # of a digit's side, as in cluttered MNIST
INK = 32  # pixels at least this bright are the digit's: resizing leaves a faint rim
CROWDED = 8  # areas of a digit for each fragment and each stroke, where their number is not given
TRIES = 40  # random places for a digit before they are dealt out on a grid


# the options are the text after a set's name, so this door has them all
@layout("megapixel", about="made: a few digits on large canvases")
@bounded
def open_megapixel(  # a public door: these are the options of --data megapixel:
    *,
    split: str | None = None,
    canvas: Annotated[Size, Bound(8, 14_000)] = (1000, 1000),
    count: Annotated[int, Bound(1, 500_000)] = 1000,
    digit: Annotated[int, Bound(8, 2000)] = 28,
    copies: Annotated[int, Bound(1, 300)] = 1,
    others: Annotated[int, Bound(0, 300)] = 0,
    clutter: Annotated[int, Bound(0, 1_000_000)] | None = None,
    noise: Annotated[int, Bound(0, 1_000_000)] | None = None,
    seed: Annotated[int, SEED] = 0,
    source: str = "digits",
) -> DataSet:
    """`count` canvases. The label is the class of the `copies` digits; the boxes are theirs, tight. `others` digits are
    of other classes, each class fewer times than `copies`. `clutter` fragments and `noise` strokes grow with the canvas
    unless given. `source` is digits (scikit-learn's), mnist or a folder with MNIST's files, or several of them, as
    mnist+digits. split= train (the default) and test take their digits from the source's own halves, so that no digit
    is in both."""
    part = splits_asked("megapixel", split or "train", ("train", "test"))[0]
    width, height = canvas
    if others > 9 * (copies - 1):
        raise BadChoice(
            f"megapixel: others={others} with copies={copies}: another class would occur as often as the label's; "
            f"at most {9 * (copies - 1)} others fit {copies} copies"
        )
    if (width // digit) * (height // digit) < copies + others:
        raise BadChoice(
            f"megapixel: {copies + others} digits of {digit} pixels do not fit a canvas of {width} x {height}; "
            "take a larger canvas= or a smaller digit="
        )
    crowd = round(width * height / digit**2 / CROWDED)
    several = [source] if os.path.isdir(at_home(source)) else source.split("+")
    within("megapixel: the number of sources in source=", len(several), 1, 10)
    sources = tuple(map(digit_source, several))
    scene = Scene(
        canvas, digit, copies, others, crowd if clutter is None else clutter, crowd if noise is None else noise,
        seed, part, sources,
    )  # fmt: skip
    glyphs(sources, part)  # a source that is not there is said now
    row = {"split": part}
    labels = np.random.default_rng([seed, part == "test"]).integers(10, size=count)
    drawn = [Canvas(scene, i, int(label)) for i, label in enumerate(labels)]
    samples = (Sample(f"{part}/{canvas.index:06}", canvas.label, canvas, Tight(canvas), row) for canvas in drawn)
    return DataSet("megapixel", tuple(samples), tuple(map(str, range(10))))


@dataclass(frozen=True)
class Scene:
    """What all canvases of a set have in common."""

    size: Size
    digit: int
    copies: int
    others: int
    clutter: int
    noise: int
    seed: int
    split: str
    sources: tuple[str, ...]  # "digits", or folders of MNIST's files


@dataclass(frozen=True)
class Glyphs:
    images: NDArray[np.uint8]  # N,h,w
    of_class: tuple[NDArray[np.intp], ...]  # ten lists of indices


def digit_source(given: str) -> str:
    """Where digits come from: "digits", or the folder of MNIST's files."""
    return given if given == "digits" else str(find(given, (), mnist.is_mnist).absolute())


@lru_cache(maxsize=4)
def glyphs(wanted: tuple[str, ...], split: str) -> Glyphs:
    """Read once per process, so that a canvas is cheap to send to another. Several sources are equally likely."""
    sources = [_glyphs(source, split) for source in wanted]
    side = max(images.shape[1] for images, _ in sources)
    images = np.concatenate([_enlarged(images, side) for images, _ in sources])
    starts = np.cumsum([0, *(len(labels) for _, labels in sources)])
    of_class = []
    for name in range(10):
        found = [np.flatnonzero(labels == name) + start for (_, labels), start in zip(sources, starts, strict=False)]
        if not all(map(len, found)):
            raise BadChoice(f"megapixel: the {split} digits of {' and '.join(wanted)} lack a class")
        most = max(map(len, found))
        of_class.append(np.concatenate([np.resize(numbers, most) for numbers in found]))  # a smaller source is repeated
    return Glyphs(images, tuple(of_class))


def _glyphs(source: str, split: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    if source != "digits":
        return mnist.read_digits(Path(source), split)
    images, labels = digits.read_digits(split)
    return np.pad(images, ((0, 0), (1, 1), (1, 1))), labels  # they touch their frame: room for a smooth edge


def _enlarged(images: NDArray[np.uint8], side: int) -> NDArray[np.uint8]:
    if images.shape[1] == side:
        return images
    return np.stack([np.asarray(_resized(image, side)) for image in images])


@dataclass(frozen=True, slots=True)
class Canvas:
    """One picture, made when it is read."""

    scene: Scene
    index: int
    label: int

    def read(self) -> Image.Image:
        scene, random = self.scene, self._random()
        placed = self._digits(random)
        image = Image.new("L", scene.size)
        _draw_strokes(image, scene, random)
        pixels = np.array(image)
        _paste_fragments(pixels, scene, random)
        for glyph, x, y, _ in placed:
            lighten(pixels, np.asarray(glyph), x, y)
        return Image.fromarray(pixels).convert("RGB")

    def boxes(self) -> tuple[Box, ...]:
        return tuple(ink_box(glyph, x, y) for glyph, x, y, is_label in self._digits(self._random()) if is_label)

    def _random(self) -> np.random.Generator:
        return np.random.default_rng([self.scene.seed, self.scene.split == "test", self.index, 1])

    def _digits(self, random: np.random.Generator) -> list[tuple[Image.Image, int, int, bool]]:
        """The digits, their corners, and whether they are the label's; drawn first, so boxes need nothing else."""
        scene, known = self.scene, glyphs(self.scene.sources, self.scene.split)
        rest = [digit for digit in range(10) if digit != self.label] * (scene.copies - 1)
        classes = [self.label] * scene.copies
        classes += [rest[i] for i in random.permutation(len(rest))[: scene.others]] if scene.others else []
        chosen = random.random(len(classes))
        placed = []
        for name, which, (x, y) in zip(classes, chosen, _corners(scene, len(classes), random), strict=True):
            image = known.images[known.of_class[name][int(which * len(known.of_class[name]))]]
            placed.append((_resized(image, scene.digit), x, y, name == self.label))
        return placed


@dataclass(frozen=True, slots=True)
class Tight:
    """The boxes of a canvas, found when looked at."""

    canvas: Canvas

    def read(self) -> tuple[Box, ...]:
        return self.canvas.boxes()


def _resized(values: NDArray[np.uint8], side: int) -> Image.Image:
    image = Image.fromarray(values)
    return image if image.size == (side, side) else image.resize((side, side), Image.Resampling.BICUBIC)


def _corners(scene: Scene, count: int, random: np.random.Generator) -> list[tuple[int, int]]:
    """Places where no two digits overlap: at random, or in a full canvas on cells of a grid chosen at random."""
    (width, height), side = scene.size, scene.digit
    spots = (random.random((count * TRIES, 2)) * (width - side + 1, height - side + 1)).astype(int).tolist()
    found: list[tuple[int, int]] = []
    for x, y in spots:
        if all(abs(x - a) >= side or abs(y - b) >= side for a, b in found):
            found.append((x, y))
            if len(found) == count:
                return found
    across, down = width // side, height // side
    cells = random.permutation(across * down)[:count].tolist()
    return [(i % across * side, i // across * side) for i in cells]


def _draw_strokes(image: Image.Image, scene: Scene, random: np.random.Generator) -> None:
    """Straight, a quarter to a whole digit long, about as thick and bright as a digit's own."""
    count, side = scene.noise, scene.digit
    start = random.random((count, 2)) * scene.size
    angle, length = random.random(count) * np.pi, side * (0.25 + 0.75 * random.random(count))
    end = start + np.stack((np.cos(angle), np.sin(angle)), 1) * length[:, None]
    shade = random.integers(128, 256, count).tolist()
    draw, thick = ImageDraw.Draw(image), max(1, round(side / 10))
    for ends, fill in zip(np.concatenate((start, end), 1).tolist(), shade, strict=True):
        draw.line(ends, fill, thick)


def _paste_fragments(pixels: NDArray[np.uint8], scene: Scene, random: np.random.Generator) -> None:
    """Squares cut from any digits, where their strokes are."""
    images = glyphs(scene.sources, scene.split).images
    native, side = images.shape[1], max(2, round(scene.digit * FRAGMENT))
    cut = native * FRAGMENT
    which = random.integers(len(images), size=scene.clutter).tolist()
    inside = (native * (0.15 + random.random((scene.clutter, 2)) * (0.7 - FRAGMENT))).tolist()
    spots = (random.random((scene.clutter, 2)) * (scene.size[0] - side + 1, scene.size[1] - side + 1)).astype(int)
    for i, (left, top), (x, y) in zip(which, inside, spots.tolist(), strict=True):
        if native == scene.digit:  # nothing to resize
            piece = images[i, round(top) : round(top) + side, round(left) : round(left) + side]
        else:
            box = (left, top, left + cut, top + cut)
            piece = np.asarray(Image.fromarray(images[i]).resize((side, side), Image.Resampling.BICUBIC, box))
        lighten(pixels, piece, x, y)


def ink_box(glyph: Image.Image, x: int, y: int) -> Box:
    """Tight around a digit that is drawn at x, y."""
    x0, y0, x1, y1 = glyph.point([0] * INK + [255] * (256 - INK)).getbbox() or (0, 0, *glyph.size)
    return float(x + x0), float(y + y0), float(x + x1), float(y + y1)


def lighten(pixels: NDArray[np.uint8], piece: NDArray[np.uint8], x: int, y: int) -> None:
    place = pixels[y : y + len(piece), x : x + piece.shape[1]]
    np.maximum(place, piece, out=place)
