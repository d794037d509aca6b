"""Georasters other than TIFF, read by GDAL (rasterio); and where a GeoTIFF lies on the earth."""

import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from fovea.basics import BadPicture
from fovea.pictures.big.source import MAX_TILE, CountedFile, Georeference, Level, Metered, Pixels, advice, as_eight_bits

# by the file's first bytes: formats of one file, which name no others and nothing in a network
DRIVERS = {b"\0\0\0\x0cjP  ": "JP2OpenJPEG", b"\xff\x4f\xff\x51": "JP2OpenJPEG", b"EHFA_HEADER_TAG": "HFA",
           b"NITF0": "NITF"}  # fmt: skip
STRIP = 1 << 20  # pixels of a part of a level whose blocks are single rows
SETTINGS = {"GDAL_DISABLE_READDIR_ON_OPEN": "EMPTY_DIR", "GDAL_PAM_ENABLED": "NO", "GDAL_NUM_THREADS": "1",
            "CPL_VSIL_CURL_ALLOWED_FILENAME": "none"}  # fmt: skip


def driver_of(head: bytes) -> str | None:
    return next((driver for magic, driver in DRIVERS.items() if head.startswith(magic)), None)


class RasterSource(Metered):
    orientation = 1

    def __init__(self, file: CountedFile, driver: str, closing: ExitStack) -> None:
        super().__init__()
        self._file, self._lock, self.file_bytes, path = file, threading.Lock(), file.size, file.path
        with _settings(), self.metered():
            first = _open(file, driver, closing)
            factors = first.overviews(1)
            self._datasets = [first, *(_open(file, driver, closing, overview_level=k) for k in range(len(factors)))]
        names = [color.name for color in first.colorinterp]
        kinds = set(first.dtypes)
        self.bands, self.bits = first.count, 16 if "uint16" in kinds else 8
        if "palette" in names or self.bands not in (1, 2, 3, 4) or (kinds != {"uint8"} and kinds != {"uint16"}):
            what = "a palette" if "palette" in names else f"{self.bands} bands of {', '.join(sorted(kinds))}"
            raise BadPicture(f"{path} has {what}: 1 to 4 bands of 8 or 16 bits can be read; {advice(path)}")
        self._extra = (2 if names[-1] == "alpha" else 0,) if self.bands in (2, 4) else ()
        self.levels = tuple(_level(dataset, path) for dataset in self._datasets)

    def tile(self, level: int, column: int, row: int) -> Pixels:
        stored = self.levels[level]
        left, top = column * stored.tile_width, row * stored.tile_height
        right, bottom = min(left + stored.tile_width, stored.width), min(top + stored.tile_height, stored.height)
        with self._lock, _settings(), self.metered():  # GDAL's data sets are of one thread at a time
            values = self._datasets[level].read(window=((top, bottom), (left, right)))
        self._file.refuse_changed()
        return as_eight_bits(np.moveaxis(values, 0, -1), self._extra)

    def georeference(self) -> Georeference:
        return _georeference(self._datasets[0])


def _level(dataset: Any, path: Path) -> Level:
    high, wide = dataset.block_shapes[0]
    if high == 1:
        high = max(min(STRIP // wide, dataset.height), 1)
    if high * wide > MAX_TILE:
        raise BadPicture(f"{path} has tiles of {wide:,} x {high:,} pixels; {advice(path)}")
    return Level(dataset.width, dataset.height, wide, high)


def _settings() -> Any:
    import rasterio

    return rasterio.Env(**SETTINGS)


def _open(file: CountedFile, driver: str, closing: ExitStack, **options: Any) -> Any:
    import warnings

    import rasterio

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        dataset = rasterio.open(file.alias, driver=driver, sharing=False, **options)
    return closing.enter_context(dataset)


def georeference(file: CountedFile) -> Georeference:
    """Of a GeoTIFF."""
    with ExitStack() as stack, _settings():
        return _georeference(_open(file, "GTiff", stack))


def _georeference(dataset: Any) -> Georeference:
    if dataset.crs is None and dataset.transform.is_identity:
        return None, None
    code = dataset.crs.to_epsg() if dataset.crs else None
    crs = f"EPSG:{code}" if code else dataset.crs.to_wkt() if dataset.crs else None
    return crs, tuple(float(value) for value in dataset.transform[:6])
