"""Made pictures too large to load, in the kinds of files that they come in: a digit on textured ground, some fragments.

A file is written tile by tile. All that is computed are tiles with an edge of something in them; the others repeat.
"""

import math
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import FoveaError, whole
from fovea.data import open_data

TILE, SMALLEST = 256, 512  # pixels: a tile's side, and that of the smallest level
PERIOD, SPECK = 2048, 4  # pixels after which the ground repeats, and of a speck on it
SPECKS, BRIGHT = 0.008, 120  # their share of the dark ground, which stays as dark as networks learned it, and the most
QUALITY, BAND = 75, (1, 1)  # of JPEG; no color is stored coarser than another
CANVAS = "megapixel:canvas=896,count=1,clutter=50,noise=0,split=test"
APERIO = (
    "Aperio Image Library v12.0.15\r\n{side}x{side} [0,0 {side}x{side}] (256x256) JPEG/RGB Q=75|AppMag = 20|MPP = 0.5"
)
PLACE = {"crs": "EPSG:32633", "left": 500_000.0, "top": 5_600_000.0, "pixel": 0.5}  # of the GeoTIFF, in meters
CACHE = 128  # MB that GDAL may hold of a picture
Tell = Callable[[str], None]


@dataclass
class Canvas:
    """A made picture of side x side pixels, any tile of any of its levels."""

    side: int
    known: dict[tuple[int, ...], bytes] = field(default_factory=dict)  # tiles of nothing but ground

    @cached_property
    def base(self) -> NDArray[np.uint8]:
        """Small, in gray."""
        return np.asarray(open_data(CANVAS).samples[0].read().convert("L"))

    @cached_property
    def label(self) -> str:
        """The digit on it."""
        data = open_data(CANVAS)
        return data.labels[data.samples[0].label]

    @property
    def levels(self) -> list[int]:
        """Sides, from the finest."""
        return [self.side >> level for level in range(int(math.log2(self.side / SMALLEST)) + 1)]

    @cached_property
    def grounds(self) -> list[NDArray[np.uint8]]:
        """What repeats, by level: specks of all colors."""
        random, side = np.random.default_rng(0), PERIOD
        specks = random.uniform(0, BRIGHT, (side // SPECK, side // SPECK, 3))
        specks *= random.random((side // SPECK, side // SPECK, 1)) < SPECKS
        levels = [specks.repeat(SPECK, 0).repeat(SPECK, 1)]
        while side > 1:
            side //= 2
            levels.append(levels[-1].reshape(side, 2, side, 2, 3).mean((1, 3)))
        return [np.rint(level).astype(np.uint8) for level in levels]

    def tiles(self, level: int) -> Iterator[bytes]:
        """JPEGs, row by row."""
        count = (self.side >> level) // TILE
        for row in range(count):
            for column in range(count):
                yield self.tile(level, column, row)

    def tile(self, level: int, column: int, row: int) -> bytes:
        scale = len(self.base) / (self.side >> level)
        step, beside = TILE * scale, 1 + scale  # of the small picture, and what shrinking takes into account
        left, top = column * step, row * step
        x, y = (slice(max(math.floor(at - beside), 0), math.ceil(at + step + beside)) for at in (left, top))
        shade = self.base[y, x]
        if shade.min() < shade.max():
            box = left, top, min(left + step, len(self.base)), min(top + step, len(self.base))
            drawn = Image.fromarray(self.base).resize((TILE, TILE), Image.Resampling.BILINEAR, box)
            return self._encoded(np.asarray(drawn), level, column, row)
        period = max((PERIOD >> level) // TILE, 1)
        key = level, int(shade[0, 0]), column % period, row % period
        if key not in self.known:
            self.known[key] = self._encoded(np.full((TILE, TILE), shade[0, 0]), *(level, *key[2:]))
        return self.known[key]

    def _encoded(self, shade: NDArray[np.generic], level: int, column: int, row: int) -> bytes:
        ground = self.grounds[min(level, len(self.grounds) - 1)]
        rows, columns = ((np.arange(TILE) + place * TILE) % len(ground) for place in (row, column))
        values = np.maximum(shade[..., None], ground[rows[:, None], columns])
        file = BytesIO()
        Image.fromarray(values.astype(np.uint8)).save(file, "JPEG", quality=QUALITY, subsampling=0)
        return file.getvalue()

    def thumbnail(self, side: int) -> NDArray[np.uint8]:
        return np.asarray(Image.fromarray(self.base).resize((side, side)).convert("RGB"))


def made(kind: str, side: int, folder: Path, tell: Tell = lambda words: None) -> Path:
    """The file of a kind, made where it is not there yet."""
    path = folder / f"{kind}-{side}{'.svs' if kind == 'slide' else '.tif'}"
    if not path.is_file():
        tell(f"making {path.name}")
        with whole(path) as part:
            KINDS[kind](Canvas(side), part, tell)
    return path


def write_pages(canvas: Canvas, path: Path, tell: Tell) -> None:
    """A pyramid whose levels are pages."""
    with _writer(path) as file:
        for number in range(len(canvas.levels)):
            _write(file, canvas, number, tell, subfiletype=1 if number else 0)


def write_subifds(canvas: Canvas, path: Path, tell: Tell) -> None:
    """A pyramid whose levels are SubIFDs of the first, as OME-TIFF has them."""
    with _writer(path) as file:
        for number in range(len(canvas.levels)):
            below = {"subifds": len(canvas.levels) - 1} if number == 0 else {"subfiletype": 1}
            _write(file, canvas, number, tell, **below)


def write_slide(canvas: Canvas, path: Path, tell: Tell) -> None:
    """As Aperio's scanners write slides: a thumbnail after the first page, a label and an overview after the last."""
    with _writer(path) as file:
        about = APERIO.format(side=canvas.side)
        _write(file, canvas, 0, tell, description=about, metadata=None)
        beside: dict[str, Any] = {"photometric": "rgb", "compression": "jpeg", "rowsperstrip": 16, "metadata": None}
        file.write(canvas.thumbnail(768), description=about, **beside)
        for number in range(1, len(canvas.levels)):
            _write(file, canvas, number, tell, description=about, metadata=None)
        for name, kind in (("label", 1), ("macro", 9)):
            file.write(
                canvas.thumbnail(400), description=f"Aperio Image Library\r\n{name} 400x400", subfiletype=kind, **beside
            )


def write_cog(canvas: Canvas, path: Path, tell: Tell) -> None:
    """A GeoTIFF as clouds serve it, written by GDAL out of a pyramid of pages."""
    import rasterio
    from rasterio.shutil import copy
    from rasterio.transform import from_origin

    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        pages = Path(folder, "pages.tif")
        write_pages(canvas, pages, tell)
        with warnings.catch_warnings(action="ignore"), rasterio.open(pages, "r+") as file:  # it is nowhere yet
            file.crs, pixel = PLACE["crs"], PLACE["pixel"]
            file.transform = from_origin(PLACE["left"], PLACE["top"], pixel, pixel)
        tell(f"copying {path.name} as a COG")
        how = {
            "compress": "JPEG",
            "quality": QUALITY,
            "blocksize": TILE,
            "bigtiff": "IF_SAFER",
            "num_threads": "ALL_CPUS",
        }
        with rasterio.Env(GDAL_CACHEMAX=CACHE):
            copy(str(pages), str(path), driver="COG", overviews="FORCE_USE_EXISTING", **how)


def _writer(path: Path) -> Any:
    try:
        import tifffile
    except ImportError:
        raise FoveaError("big pictures are made by a package that is not installed: pip install tifffile") from None
    return tifffile.TiffWriter(path, bigtiff=True)


def _write(file: Any, canvas: Canvas, number: int, tell: Tell, **options: Any) -> None:
    side = canvas.levels[number]
    file.write(
        _told(canvas.tiles(number), (side // TILE) ** 2, f"{side:,} x {side:,}", tell),
        shape=(side, side, 3), dtype=np.uint8, tile=(TILE, TILE), photometric="ycbcr", subsampling=BAND,
        compression="jpeg", **options,
    )  # fmt: skip


def _told(tiles: Iterable[bytes], count: int, what: str, tell: Tell) -> Iterator[bytes]:
    for number, tile in enumerate(tiles):
        if number % 1024 == 0:
            tell(f"making {what}, {100 * number // count} %")
        yield tile


KINDS: dict[str, Callable[[Canvas, Path, Tell], None]] = {
    "pyramid": write_pages,
    "cog": write_cog,
    "subifds": write_subifds,
    "slide": write_slide,
}
