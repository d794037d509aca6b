"""Files too large to load: explained in tiles as if they were one picture, with coordinates for other programs."""

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch
from PIL import Image
from rasterio.features import bounds
from rasterio.transform import Affine
from torch import Tensor, nn

import fovea
from fovea.basics import BadChoice
from fovea.heatmaps import stitching
from fovea.pictures import Prepare

SIZE = 331, 257  # width, height: multiples of nothing
TURNED = Affine(0.5, 0.1, 500_000, 0.05, -0.4, 5_300_000)  # turned, and pixels are not square
CORNERS = {  # by hand: x = 0.5 column + 0.1 row + 500000, y = 0.05 column - 0.4 row + 5300000
    (0, 0): (500_000, 5_300_000),
    (331, 0): (500_165.5, 5_300_016.55),
    (331, 257): (500_191.2, 5_299_913.75),
    (0, 257): (500_025.7, 5_299_897.2),
}


class Excited(nn.Module):
    """Squeeze and excitation: every cell hangs on every pixel."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.mean((2, 3), keepdim=True).sigmoid()


def network(*more: nn.Module) -> fovea.Network:
    """Cells of 4 x 4 pixels that see 9 x 9, padded."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 4, 5, 2, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2, 1), nn.ReLU(), *more]
    module = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    return fovea.wrap(module.eval(), transform=Prepare((32, 32), (0.5,) * 3, (0.5,) * 3, None), labels=list("abc"))


@pytest.fixture
def pixels() -> np.ndarray:
    rng = np.random.default_rng(0)
    found = rng.integers(0, 60, (SIZE[1], SIZE[0], 3), dtype=np.uint8)
    found[150:190, 200:250] = 255
    return found


@pytest.fixture
def scene(tmp_path: Path, pixels: np.ndarray) -> Path:
    return written(tmp_path / "scene.tif", pixels, crs="EPSG:32632", transform=TURNED)


def written(path: Path, pixels: np.ndarray, **options: object) -> Path:
    height, width, bands = pixels.shape
    shape = {"width": width, "height": height, "count": bands, "dtype": "uint8"}
    with rasterio.open(path, "w", driver="GTiff", tiled=True, blockxsize=64, blockysize=64, **shape, **options) as file:
        file.write(pixels.transpose(2, 0, 1))
    return path


@pytest.mark.parametrize(
    ("method", "kept"), [("l2caf", 1 << 26), ("gradcam", 1 << 26), ("l2caf", 0), ("l2caf-signed", 0), ("cam", 0)]
)
def test_everywhere_is_the_map_of_the_whole(
    method: str, kept: int, scene: Path, pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where features of the whole are too many to be kept, and what cells add is put together instead."""
    monkeypatch.setattr(stitching, "TILE", 40)
    monkeypatch.setattr(stitching, "FEATURES", kept)
    net = network()
    assert isinstance(net.transform, Prepare)
    whole = net.transform.normalize(torch.from_numpy(pixels).permute(2, 0, 1))
    expected, found = fovea.explain(net, whole, method=method), fovea.explain(net, scene, method=method, all=True)
    torch.testing.assert_close(found.values, expected.values, rtol=0, atol=1e-5)
    assert found.targets == expected.targets
    assert found[0].to_dict()["map"] == "of the whole"
    assert found[0].shown.placement is not None
    assert found[0].shown.placement.extent == (-1.5, -1.5, 330.5, 258.5)  # the first cell sees -4 to 5


def test_what_follows_the_cut_may_need_more_cells_than_a_tile_gives(scene: Path, pixels: np.ndarray) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 9, 4), nn.ReLU(), nn.Conv2d(4, 3, 7), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    prepare = Prepare((64, 64), (0.5,) * 3, (0.5,) * 3, None)
    net = fovea.wrap(module.eval(), transform=prepare, labels=list("abc"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stitching, "TILE", 3)
        found = fovea.explain(net, scene, method="gradcam", layer="0", all=True)
    whole = prepare.normalize(torch.from_numpy(pixels).permute(2, 0, 1))
    torch.testing.assert_close(found.values, fovea.explain(net, whole, method="gradcam", layer="0").values)
    assert found[0].to_dict()["map"] == "of the whole"


def test_a_network_that_sees_everything_is_shown_windows(scene: Path) -> None:
    (found,) = fovea.explain(network(Excited()), scene, all=True)
    row = found.to_dict()
    assert row["map"] == "put together from windows"
    assert "not the map of the whole" in str(found.note)
    assert row["maps"][0]["note"] == found.note
    assert found.grid == (65, 83)  # windows of 32 pixels have 8 x 8 cells


def test_a_class_that_no_window_shows_is_said_to_be_maybe_missed(scene: Path) -> None:
    net = network(Excited())
    net.module[-1].bias.data += torch.tensor([9.0, 0.0, 0.0])
    (shown,), (missed,) = (fovea.explain(net, scene, target=label, method="l2caf") for label in net.labels[:2])
    assert "--all looks everywhere" in str(missed.note)
    assert "--all" not in str(shown.note)


def test_the_map_and_its_regions_have_the_files_coordinates(scene: Path, tmp_path: Path) -> None:
    maps = fovea.explain(network(Excited()), scene, method="gradcam")
    (row,) = maps.save(tmp_path / "out")
    assert row["files"]["heatmaps"] == [f"scene.gradcam.{maps[0].label}.tif"]
    with rasterio.open(tmp_path / "out" / row["files"]["heatmaps"][0]) as file:
        assert file.crs.to_epsg() == 32632
        for (column, line), place in CORNERS.items():
            cell = column / SIZE[0] * file.width, line / SIZE[1] * file.height
            assert file.transform @ cell == pytest.approx(place, abs=1e-6)
        np.testing.assert_allclose(file.read(1), maps[0].map(), atol=1e-6)
        assert file.tags()["method"] == "gradcam"
    content = json.loads((tmp_path / "out" / row["files"]["regions"][0]).read_text())
    assert content["crs"]["properties"]["name"] == "urn:ogc:def:crs:EPSG::32632"
    for feature in content["features"]:
        x0, y0, x1, y1 = feature["properties"]["box"]
        places = [TURNED @ corner for corner in ((x0, y0), (x1, y0), (x1, y1), (x0, y1))]
        np.testing.assert_allclose(feature["geometry"]["coordinates"][0][:4], places, atol=1e-6)
        assert bounds(feature["geometry"])[0] == pytest.approx(min(x for x, _ in places))
        assert feature["properties"]["label"] == maps[0].label
    read = row["read"]
    assert read["tiles"] > 0
    assert 0 < read["bytes"] < 1.1 * scene.stat().st_size  # it has one level only


def test_without_a_coordinate_system_they_are_in_pixels(pixels: np.ndarray, tmp_path: Path) -> None:
    path = written(tmp_path / "plain.tif", pixels)
    (row,) = fovea.explain(network(), path, all=True).save(tmp_path / "out")
    with rasterio.open(tmp_path / "out" / row["files"]["heatmaps"][0]) as file:
        assert file.crs is None
        assert tuple(file.transform)[:6] == (4, 0, -1.5, 0, 4, -1.5)
    content = json.loads((tmp_path / "out" / row["files"]["regions"][0]).read_text())
    assert content["crs"] is None
    assert "y down" in content["coordinates"]
    assert content["features"][0]["geometry"]["coordinates"][0][0] == content["features"][0]["properties"]["box"][:2]


def test_regions_are_looked_into_and_drawn_over_an_overview(scene: Path) -> None:
    (found,) = fovea.explain(network(Excited()), scene)
    assert found.shown.big is not None
    assert found.shown.big.regions
    assert 0.25 < found.shown.big.resolution <= 1
    assert (found.boxes[0, 2:] <= SIZE).all()
    assert found.draw().width > 300
    view = found.view()
    assert (view.size, view.deep) == (SIZE, True)
    assert [part.box for part in view.parts] == list(found.shown.big.regions)
    for part, image in zip(view.parts, view.pictures()[1:], strict=True):  # as closely as they were looked into
        assert image.width == pytest.approx((part.box[2] - part.box[0]) * found.shown.big.resolution, abs=1)


def test_big_and_ordinary_files_are_explained_together(scene: Path, tmp_path: Path, pixels: np.ndarray) -> None:
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "z.tif").write_bytes(scene.read_bytes()[:3000])
    with pytest.warns(UserWarning, match=r"1 picture\(s\) skipped: .*z.tif"):
        found = fovea.explain(network(), tmp_path)
    assert [Path(each.name).name for each in found] == ["a.png", "scene.tif"]
    assert [each.shown.big is None for each in found] == [True, False]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": "pair"}, "window by window"),
        ({"differentiable": True}, "no gradient"),
        ({"resolution": 2.0}, "resolution"),
    ],
)
def test_what_makes_no_sense_is_refused(scene: Path, options: dict[str, object], words: str) -> None:
    with pytest.raises(BadChoice, match=words):
        fovea.explain(network(), [scene, scene], **options)  # type: ignore[call-overload]


def test_sanity_compares_no_maps_that_are_put_together(scene: Path) -> None:
    with pytest.raises(BadChoice, match=r"scene\.tif is read in the windows"):
        fovea.sanity(network(Excited()), scene)
