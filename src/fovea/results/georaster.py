"""Maps and regions with coordinates, for QGIS, QuPath and whatever else reads GeoTIFF and GeoJSON.

Where a file has a coordinate system both are in it; else in full-resolution pixels, x to the right and y down, as
QuPath has them. A cell of a map is a pixel of a cloud-optimized GeoTIFF, smaller levels inside.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.basics import FoveaError, whole, write_json
from fovea.pictures import BigFacts

IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0)
BLOCK = 256  # pixels of a side of a tile
Extent = Sequence[float]  # x0 y0 x1 y1 in full-resolution pixels
PIXELS = "full-resolution pixels of the picture, x to the right, y down"


def placed(transform: Sequence[float] | None, x: float, y: float) -> tuple[float, float]:
    """A place in full-resolution pixels, in the file's coordinate system."""
    a, b, c, d, e, f = transform or IDENTITY
    return a * x + b * y + c, d * x + e * y + f


def cells_placed(transform: Sequence[float] | None, extent: Extent, grid: tuple[int, int]) -> tuple[float, ...]:
    """The transform of a raster of so many rows and columns that fills a part of the picture."""
    a, b, _, d, e, _ = transform or IDENTITY
    (x0, y0, x1, y1), (rows, columns) = extent, grid
    across, down = (x1 - x0) / columns, (y1 - y0) / rows
    c, f = placed(transform, x0, y0)
    return a * across, b * down, c, d * across, e * down, f


def write_raster(
    path: Path, values: NDArray[np.floating], extent: Extent, big: BigFacts, tags: Mapping[str, Any]
) -> None:
    """One band of single-precision values, as a cloud-optimized GeoTIFF."""
    rasterio = _rasterio()
    from rasterio.transform import Affine

    transform = Affine(*cells_placed(big.transform, extent, (values.shape[0], values.shape[1])))
    about = {"extent_in_pixels": " ".join(f"{side:g}" for side in extent), "picture": "x".join(map(str, big.size))}
    options = {"compress": "deflate", "predictor": "yes", "blocksize": BLOCK, "overview_resampling": "average"}
    with whole(path) as part, rasterio.Env(GDAL_PAM_ENABLED="NO"), rasterio.open(
        part.absolute(), "w", driver="COG", width=values.shape[1], height=values.shape[0], count=1, dtype="float32",
        crs=big.crs, transform=transform, **options,
    ) as file:  # fmt: skip
        file.write(values.astype(np.float32), 1)
        file.update_tags(**{str(key): str(value) for key, value in {**about, **tags}.items()})


def write_regions(path: Path, big: BigFacts, regions: Iterable[tuple[Extent, Mapping[str, Any]]]) -> None:
    """Boxes with their properties, as GeoJSON: a polygon each, and in `box` its pixels."""
    features = []
    for number, ((x0, y0, x1, y1), properties) in enumerate(regions, 1):
        corners = [(x0, y0), (x1, y0), (x1, y1), (x0, y1), (x0, y0)]
        ring = [list(placed(big.transform, x, y)) for x, y in corners]
        label = properties.get("label")
        about = {"objectType": "annotation", "name": f"{number} {label}", "classification": {"name": label}}  # QuPath's
        features.append(
            {
                "type": "Feature",
                "geometry": {"type": "Polygon", "coordinates": [ring]},
                "properties": {**about, **properties, "box": [x0, y0, x1, y1]},
            }
        )
    crs = None if big.crs is None else {"type": "name", "properties": {"name": named(big.crs)}}
    where = big.crs if big.crs is not None else PIXELS if big.transform is None else "the file's own"
    write_json(path, {"type": "FeatureCollection", "crs": crs, "coordinates": where, "features": features})


def named(crs: str) -> str:
    """As GeoJSON names a coordinate system: by its number where it has one, else in its own words."""
    _rasterio()
    from rasterio.crs import CRS

    authority = CRS.from_user_input(crs).to_authority()
    return crs if authority is None else f"urn:ogc:def:crs:{authority[0]}::{authority[1]}"


def _rasterio() -> Any:
    try:
        import rasterio
    except ImportError:
        raise FoveaError("maps with coordinates are written by rasterio: pip install 'fovea[big]'") from None
    return rasterio
