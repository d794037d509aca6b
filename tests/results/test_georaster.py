"""Rasters and regions with coordinates, as GDAL reads them."""

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio

from fovea.pictures import BigFacts, Counts
from fovea.results import write_raster, write_regions

TURNED = (0.0, 2.0, 100.0, 3.0, 0.0, 50.0)  # a quarter turn: x = 2 row + 100, y = 3 column + 50


def facts(crs: str | None = "EPSG:32632", transform: tuple[float, ...] | None = TURNED) -> BigFacts:
    return BigFacts((4000, 3000), crs, transform, Counts(), 1.0)


def test_a_large_map_has_smaller_levels_inside(tmp_path: Path) -> None:
    values = np.random.default_rng(0).random((600, 800), np.float32) - 0.5
    path = tmp_path / "map.tif"
    write_raster(path, values, (40, 30, 3960, 2970), facts(), {"method": "cam", "target": "Zürich <b>"})
    with rasterio.open(path) as file:
        assert file.tags(ns="IMAGE_STRUCTURE")["LAYOUT"] == "COG"
        assert file.overviews(1)
        assert file.block_shapes == [(256, 256)]
        np.testing.assert_array_equal(file.read(1), values)
        assert file.tags()["target"] == "Zürich <b>"
        assert file.tags()["extent_in_pixels"] == "40 30 3960 2970"
        # by hand: column 40, row 30 is x = 160, y = 170; column 3960, row 2970 is x = 6040, y = 11930
        assert file.transform @ (0, 0) == pytest.approx((160, 170))
        assert file.transform @ (800, 600) == pytest.approx((6040, 11930))
    assert [each.name for each in tmp_path.iterdir()] == ["map.tif"]  # written whole, and nothing beside it


@pytest.mark.parametrize(
    ("crs", "transform", "corner"),
    [("EPSG:4326", TURNED, [140, 80]), (None, None, [10, 20]), (None, TURNED, [140, 80])],
)
def test_regions_name_their_coordinates(
    crs: str | None, transform: tuple[float, ...] | None, corner: list[float], tmp_path: Path
) -> None:
    path = tmp_path / "regions.geojson"
    write_regions(path, facts(crs, transform), [((10, 20, 30, 60), {"label": "cat", "probability": 0.5})])
    content = json.loads(path.read_text())
    ring = content["features"][0]["geometry"]["coordinates"][0]
    assert ring[0] == ring[-1] == corner
    assert content["features"][0]["properties"]["box"] == [10, 20, 30, 60]
    assert (content["crs"] is None) == (crs is None)
