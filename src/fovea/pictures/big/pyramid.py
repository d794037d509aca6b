"""fovea.pyramid: any picture as a tiled TIFF with smaller copies of itself, of which windows are read without the rest.

libvips does it in a memory of a few rows of tiles, whatever the size of the picture.
"""

import os
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from fovea.basics import BadChoice, BadPicture, FoveaError, Progress, bounded, demand_kinds, quiet, whole
from fovea.pictures.decoding import TURNS, as_bad_picture, opened

Layout = Literal["pages", "subifds"]
# of libvips's loaders those for formats that fovea reads: none starts a program or opens a file of another's choice
LOADER = re.compile(r"VipsForeignLoad(Gif|Jpeg|Jp2k|Nsgif|Openslide|Png|Ppm|Tiff|Webp)Source")
LOADERS = {"Nsgif": "gifload"}
PLAIN = ("b-w", "grey16", "multiband", "rgb", "rgb16", "scrgb", "srgb")  # color spaces that are kept as they are
WHOLE_NUMBERS = {"uchar": 1, "char": 1, "ushort": 2, "short": 2, "uint": 4, "int": 4}  # bytes of a value
EVERY = 0.1  # seconds between two tellings of how far it is
SHORT = 8  # bits of a photograph's values
WRITING = re.compile(r"system error|write|no space|too large", re.IGNORECASE)  # what is said where the disk is full
LARGE = 2**32 * 3 // 4  # bytes of a picture from which on its pyramid might have more than an ordinary TIFF counts


@bounded
def pyramid(
    picture: str | os.PathLike[str],
    to: str | os.PathLike[str],
    *,
    tile: int = 256,
    quality: int = 90,
    lossless: bool = False,
    layout: Layout = "pages",
    fresh: bool = False,
    progress: Progress = quiet,
) -> Path:
    """Write a picture of any size as a tiled pyramid: the TIFF `to`, whole or not at all.

    Tiles are JPEGs of a `quality` where the picture is 8-bit gray or color, transparency on white; with `lossless`, or
    of any other picture, as one of 16 bits, of more bands or of a palette, every value is kept. EXIF rotation is
    applied, and a GeoTIFF's place on Earth kept where rasterio is at hand. The `layout` of the levels
    is pages, which most programs know, or sub-IFDs. A file that is there is left alone unless `fresh`.
    """
    demand_kinds(pyramid, locals())
    source, target = Path(picture), Path(to)
    _demand_place(source, target, fresh)
    if tile % 16 or layout not in ("pages", "subifds"):
        raise BadChoice(
            f"tiles are a multiple of 16 pixels a side, and the layout is pages or subifds; got {tile} and {layout!r}"
        )
    with as_bad_picture(str(source)), opened(source):
        image = _prepared(source, lossless)
    photograph = not lossless and image.format == "uchar" and image.bands in (1, 3) and _depth(image) == SHORT
    how: dict[str, Any] = {"compression": "jpeg", "Q": quality}
    if not photograph:
        how = {"compression": "deflate", "predictor": "horizontal" if image.format in WHOLE_NUMBERS else "none"}
    large = image.width * image.height * image.bands * WHOLE_NUMBERS.get(image.format, 8) > LARGE
    how |= {"tile": True, "tile_width": tile, "tile_height": tile, "bigtiff": large, "subifd": layout == "subifds"}
    with whole(target) as part, opened(source):
        if reason := _failed(image, progress, lambda: image.tiffsave(str(part), pyramid=True, **how)):
            if WRITING.search(reason):
                raise FoveaError(f"{target} cannot be written: {reason}")
            raise BadPicture(f"{source} is damaged or cut short: {reason}")
        _place_on_earth(source, part)
    return target


def _demand_place(source: Path, target: Path, fresh: bool) -> None:
    """Whether a pyramid may be written there."""
    if target.suffix.lower() not in (".tif", ".tiff"):
        raise BadChoice(f"a pyramid is a TIFF, and {target.name} is no name of one: {target.stem or 'name'}.tif is")
    with suppress(OSError):
        if target.exists() and target.samefile(source):
            raise BadChoice(f"{target} is the picture itself: name another file for its pyramid")
    if os.path.lexists(target) and not fresh:
        raise BadChoice(f"{target} is there already: name another, or replace it (--fresh, in Python fresh=True)")


def _prepared(path: Path, lossless: bool) -> Any:
    """The picture upright, in colors that a TIFF has; nothing is decoded yet."""
    try:
        import pyvips
    except (ImportError, OSError):
        raise FoveaError("pyramids are written by a package that is not installed: pip install 'fovea[big]'") from None
    kind = pyvips.vips_lib.vips_foreign_find_load_source(pyvips.Source.new_from_file(str(path)).pointer)
    loader = LOADER.fullmatch(pyvips.ffi.string(kind).decode() if kind else "")
    if loader is None:
        raise BadPicture(f"{path} is not a picture in a format that can be read")
    try:
        return _upright(path, LOADERS.get(loader[1], f"{loader[1].lower()}load"), lossless)
    except pyvips.Error as error:
        raise ValueError(_reason(error)) from None


def _upright(path: Path, load: str, lossless: bool) -> Any:
    import pyvips

    # whatever is in its name, and not what libvips kept of an earlier call, with its listeners that are gone
    how = {"fail_on": "truncated", "revalidate": True}
    image = pyvips.Operation.call(load, str(path), access="sequential", **how)
    if image.get_typeof("orientation") and image.get("orientation") in TURNS:  # rows are needed in another order, which
        image = pyvips.Operation.call(load, str(path), **how).autorot()  # takes a file, not memory
    if image.interpretation not in PLAIN:
        image = image.colourspace("srgb")
    if image.hasalpha() and image.bands in (2, 4) and image.format == "uchar" and not lossless:
        image = image.flatten(background=255)
    return image


def _depth(image: Any) -> int:
    """Bits of a value in the file; 0 where values stand for colors of a palette."""
    if image.get_typeof("palette"):
        return 0
    return int(image.get("bits-per-sample")) if image.get_typeof("bits-per-sample") else SHORT


def _failed(image: Any, progress: Progress, write: Callable[[], None]) -> str:
    """Why it could not be written, if so. Percents are told while libvips works in a thread of its own, so that whoever
    stops the one that waits stops both."""
    import pyvips

    percent, done = [0], ThreadPoolExecutor(1)
    image.set_progress(True)
    image.signal_connect("eval", lambda _, state: percent.append(state.percent))
    work = done.submit(write)
    try:
        while not wait([work], timeout=EVERY).done:
            progress(percent[-1], 100)
            del percent[:-1]
        work.result()
    except pyvips.Error as error:
        return _reason(error)
    finally:
        image.set_kill(True)
        done.shutdown()
    return ""


def _reason(error: Exception) -> str:
    """The last of the lines that libvips says."""
    return str(error).strip().splitlines()[-1].strip()


def _place_on_earth(source: Path, target: Path) -> None:
    """The coordinates of a GeoTIFF, and which of its values stand for nothing."""
    try:
        import rasterio
    except ImportError:
        return
    with warnings.catch_warnings(), suppress(rasterio.errors.RasterioIOError):  # most pictures have no coordinates
        warnings.simplefilter("ignore", rasterio.errors.NotGeoreferencedWarning)
        with rasterio.open(source) as place:
            if place.crs is None and place.transform.is_identity and not place.gcps[0] and place.nodata is None:
                return
            with rasterio.open(target, "r+") as file:
                file.crs, file.transform, file.nodata = place.crs, place.transform, place.nodata
                if place.gcps[0]:
                    file.gcps = place.gcps
