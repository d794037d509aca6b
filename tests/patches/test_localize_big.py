"""Patches of files too large to load: an anchored network has the evidence of the whole, with the whole's attention."""

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
import torch
from PIL import Image
from rasterio.transform import Affine
from torch import nn

import fovea
from fovea.heatmaps import stitching
from fovea.models.anchoring import BranchOptions
from fovea.models.anchornet import AnchorNet
from fovea.patches.stitched import Averaged
from fovea.pictures import Prepare

SIZE = 301, 244  # width, height: multiples of nothing
GROUND = Affine(2.0, 0.0, 1000.0, 0.0, -3.0, 9000.0)


@pytest.fixture
def pixels() -> np.ndarray:
    small = np.random.default_rng(0).integers(0, 255, (13, 16, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize(SIZE, Image.Resampling.BICUBIC))


@pytest.fixture
def scene(tmp_path: Path, pixels: np.ndarray) -> Path:
    shape = {"width": SIZE[0], "height": SIZE[1], "count": 3, "dtype": "uint8", "crs": "EPSG:3857", "transform": GROUND}
    tiles = {"tiled": True, "blockxsize": 64, "blockysize": 64}
    with rasterio.open(tmp_path / "scene.tif", "w", driver="GTiff", **tiles, **shape) as file:
        file.write(pixels.transpose(2, 0, 1))
    return tmp_path / "scene.tif"


def anchornet(**options: bool) -> fovea.Network:
    torch.manual_seed(0)
    module = AnchorNet(3, form=BranchOptions(**options)).eval()
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            nn.init.uniform_(layer.running_var, 0.5, 2)  # type: ignore[arg-type]
    transform = Prepare((128, 128), (0.5,) * 3, (0.5,) * 3, None)
    return fovea.wrap(module, transform=transform, labels=["rook", "crow", "jay"])


@pytest.mark.parametrize("options", [{}, {"rescale": False}, {"attention": False}])
@pytest.mark.parametrize("target", [None, "jay"])
def test_everywhere_is_the_evidence_of_the_whole(
    options: dict[str, bool], target: str | None, scene: Path, pixels: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stitching, "TILE", 30)
    net = anchornet(**options)
    assert isinstance(net.transform, Prepare)
    whole = net.transform.normalize(torch.from_numpy(pixels.copy()).permute(2, 0, 1))[None]
    (expected,) = fovea.localize(net, whole, target=target)
    (found,) = fovea.localize(net, scene, target=target, all=True, count=len(expected.patches))
    assert (found.label, found.side) == (expected.label, expected.side)
    assert found.probability == pytest.approx(expected.probability, abs=1e-5)
    scale = float(np.abs(expected.heatmap).max())
    np.testing.assert_allclose(found.heatmap, expected.heatmap, rtol=0, atol=1e-5 * max(scale, 1))
    assert found.boxes == expected.boxes
    assert found.to_dict()["map"] == "of the whole"


def test_a_mean_weighed_by_a_softmax_over_parts() -> None:
    torch.manual_seed(0)
    scores, values = 30 * torch.randn(40), torch.randn(5, 40)
    found = Averaged()
    for part in (slice(0, 7), slice(7, 30), slice(30, 40)):
        found.add(scores[part], values[:, part])
    torch.testing.assert_close(found.mean, (values * scores.softmax(0)).sum(1))
    torch.testing.assert_close(found.softmax(scores), scores.softmax(0))


def test_patches_have_the_files_coordinates(scene: Path, tmp_path: Path) -> None:
    found = fovea.localize(anchornet(), scene, all=True)
    (row,) = found.save(tmp_path / "out", files=True)
    with rasterio.open(tmp_path / "out" / row["files"]["heatmaps"][0]) as file:
        side = found[0].side  # the first cell sees a patch at the corner: its middle is the first pixel's
        x, y = side / 2, side / 2
        assert file.transform @ (0.5, 0.5) == pytest.approx((1000 + 2 * x, 9000 - 3 * y))
        assert file.res == (16, 24)
        assert file.read(1).shape == found[0].heatmap.shape
    content = json.loads((tmp_path / "out" / row["files"]["regions"][0]).read_text())
    assert len(content["features"]) == len(found[0].patches)
    x0, y0, _, _ = found[0].boxes[0]
    assert content["features"][0]["geometry"]["coordinates"][0][0] == [1000 + 2 * x0, 9000 - 3 * y0]
    assert {"label", "probability", "evidence"} <= content["features"][0]["properties"].keys()
    with Image.open(tmp_path / "out" / row["files"]["crops"][0]) as crop:
        assert crop.size == (found[0].side, found[0].side)
    view = found[0].view()
    assert view.deep
    assert [part.box for part in view.parts] == found[0].boxes
    assert {image.size for image in view.pictures()[1:]} == {(found[0].side, found[0].side)}


@pytest.mark.parametrize("everywhere", [False, True])
def test_a_network_that_sees_everything_is_shown_windows(everywhere: bool, scene: Path) -> None:
    torch.manual_seed(0)
    net = fovea.wrap(
        AnchorNet(3, "global").eval(), transform=Prepare((128, 128), (0.5,) * 3, (0.5,) * 3, None), labels=list("abc")
    )
    (found,) = fovea.localize(net, scene, all=everywhere)
    assert "not the map of the whole" in found.note
    assert found.patches
    assert all(0 <= x0 < x1 <= SIZE[0] and 0 <= y0 < y1 <= SIZE[1] for x0, y0, x1, y1 in found.boxes)
    assert found.draw().width > 250


@pytest.mark.parametrize("target", [None, "6"])
def test_the_map_of_the_whole_has_the_probability_of_any_class(
    target: str | None, scene: Path, pixels: np.ndarray
) -> None:
    """Also of the least probable of seven, more than predictions tell of."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 5, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 7)
    layers[-1].bias.data[6] = -9  # type: ignore[union-attr,index,operator]
    prepare = Prepare((64, 64), (0.5,) * 3, (0.5,) * 3, None)
    net = fovea.wrap(nn.Sequential(*layers).eval(), transform=prepare, labels=list("0123456"))
    shares = net(prepare.normalize(torch.from_numpy(pixels.copy()).permute(2, 0, 1))[None]).softmax(1)[0].detach()
    (found,) = fovea.localize(net, scene, target=target, all=True)
    assert found.to_dict()["map"] == "of the whole"
    assert found.probability == pytest.approx(float(shares[6] if target else shares.max()), rel=1e-4)


@pytest.mark.parametrize("all", [False, True])
@pytest.mark.parametrize("evidence", ["crops", "few-crops"])
def test_crops_of_a_big_file(evidence: str, all: bool, tmp_path: Path) -> None:
    """Each window is asked by the same scale; what was not read has no evidence."""
    pixels = np.zeros((500, 600, 3), dtype=np.uint8)
    pixels[..., 1] = 60
    pixels[380:440, 90:150, 0] = 255
    Image.fromarray(pixels).save(tmp_path / "field.png")
    linear = nn.Linear(3, 2)  # how red it is, and how green
    linear.weight.data, linear.bias.data = 4 * torch.eye(3)[:2], torch.zeros(2)
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear).eval()
    net = fovea.wrap(module, transform=Prepare((64, 64), (0.0,) * 3, (1.0,) * 3, None), labels=["red", "green"])
    more = {"all": all, "resolution": 0.5, "max_pixels": 100_000}
    (found,) = fovea.localize(net, tmp_path / "field.png", evidence=evidence, target="red", **more)
    assert found.note.startswith(f"{'a tenth of ' * (evidence == 'few-crops')}the crops")
    assert np.isfinite(found.heatmap).all()
    x0, y0, x1, y1 = found.patches[0].box
    assert x0 < 150
    assert x1 > 90
    assert y0 < 440
    assert y1 > 380
