"""Whole-slide formats that are no plain TIFF, read by OpenSlide."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from PIL import Image

from fovea.basics import BadPicture
from fovea.pictures.big.source import CountedFile, Georeference, Level, Metered, Pixels

SUFFIXES = frozenset((".svs", ".ndpi", ".scn", ".mrxs", ".vms", ".vmu", ".bif", ".svslide"))
# TIFF files whose pictures are not what the first of their directories says: by their descriptions and makers
VENDORS = re.compile(r"leica-microsystems|hamamatsu|philips|iscan|ventana|trestle", re.IGNORECASE)
TILE, LARGEST = 256, 4096  # sides of tiles: where a slide tells none, and from which on they are not read whole
CACHE = 16 << 20  # bytes that OpenSlide keeps for itself


class SlideSource(Metered):
    orientation, bands, bits = 1, 3, 8

    def __init__(self, file: CountedFile, closing: ExitStack) -> None:
        import openslide

        super().__init__()
        self._file, path = file, file.path
        self.file_bytes = file.size + sum(part.stat().st_size for part in _others(path))
        with self.metered():
            try:
                self._slide = slide = openslide.OpenSlide(path)
                plain = slide.properties[openslide.PROPERTY_NAME_VENDOR] == "generic-tiff"
            except openslide.OpenSlideUnsupportedFormatError:
                plain = True
        if plain:
            raise BadPicture(f"{path} is no slide in a format that can be read")
        closing.enter_context(slide)
        slide.set_cache(openslide.OpenSlideCache(CACHE))
        tiles = [
            [_tile(slide.properties.get(f"openslide.level[{k}].tile-{side}", "")) for side in ("width", "height")]
            for k in range(slide.level_count)
        ]
        self._scales = slide.level_downsamples
        self.levels = tuple(
            Level(size[0], size[1], tile[0], tile[1], (scale, scale))
            for size, tile, scale in zip(slide.level_dimensions, tiles, self._scales, strict=True)
        )

    def tile(self, level: int, column: int, row: int) -> Pixels:
        stored, scale = self.levels[level], self._scales[level]
        left, top = column * stored.tile_width, row * stored.tile_height
        size = min(stored.tile_width, stored.width - left), min(stored.tile_height, stored.height - top)
        with self.metered():
            part = self._slide.read_region((round(left * scale), round(top * scale)), level, size)
        self._file.refuse_changed()
        return np.asarray(Image.alpha_composite(Image.new("RGBA", size, "white"), part).convert("RGB"))

    def georeference(self) -> Georeference:
        return None, None


def _others(path: Path) -> Iterator[Path]:
    """The files beside one that only names them (Hamamatsu's), or in a folder of its name (MIRAX)."""
    named = path.read_text("utf-8", "replace").splitlines() if path.suffix.lower() in (".vms", ".vmu") else []
    beside = (path.with_name(Path(line.partition("=")[2].strip()).name or path.name) for line in named)
    folder = path.with_suffix("")
    inside = folder.iterdir() if path.suffix.lower() == ".mrxs" and folder.is_dir() else ()
    return (part for part in {*beside, *inside} - {path} if part.is_file())


def _tile(given: str) -> int:
    """The side of what is read at once: stored tiles, several of them where they are small."""
    side = int(given) if given.isdecimal() else TILE
    return -(-TILE // side) * side if 0 < side <= LARGEST else TILE
