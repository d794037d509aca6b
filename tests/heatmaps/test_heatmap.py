from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.heatmaps import Explained
from fovea.results import drawing, read


def test_one_picture_of_many(pooled: nn.Module, batch: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, target="top2")
    assert len(seen) == len(list(seen)) == 3
    assert torch.equal(seen[1].values, seen.values[1])
    assert torch.equal(seen[1:].values, seen.values[1:])
    assert seen[-1].targets == seen.targets[2]
    assert seen[2].boxes.tolist() == seen.boxes[2].tolist()
    assert (seen[1].map(1) == seen.map(1, 1)).all()
    with pytest.raises(IndexError):
        seen[3]


def test_saved_files_say_what_they_are(pooled: nn.Module, batch: Tensor, tmp_path: Path) -> None:
    seen = fovea.explain(fovea.wrap(pooled, labels=["a/b", "c d", "e", "f", "g"]), batch, target=["a/b", "c d"])
    seen.save(tmp_path, files=True)
    saved = read(tmp_path)
    assert (saved.what, saved.settings["method"], len(saved.results)) == ("explain", "l2caf", 3)
    row, files = saved.results[1]["maps"][0], saved.results[1]["files"]["maps"][0]
    assert (row["target"], row["method"], row["solver"], row["diagnosis"]) == ("a/b", "l2caf", "exact", None)
    assert np.allclose(np.load(tmp_path / files["values"]), seen.map(1, 0))
    assert Image.open(tmp_path / files["overlay"]).size[0] >= drawing.SMALLEST
    assert row["boxes"][0] == seen.boxes[1, 0].tolist()


def test_overlay_is_brightest_where_the_map_is() -> None:
    values = np.zeros((40, 40), dtype=np.float32)
    values[5:15, 25:35] = 1
    drawn = np.asarray(drawing.blend(Image.new("RGB", (40, 40), "grey"), values)).astype(int)
    yellow = drawn[..., 0] + drawn[..., 1] - drawn[..., 2]
    y, x = np.unravel_index(yellow.argmax(), yellow.shape)
    assert 5 <= y * 40 / len(drawn) < 15
    assert 25 <= x * 40 / len(drawn) < 35


def test_title_has_the_label_and_its_probability(lite0: fovea.Network, photographs: Path) -> None:
    seen = fovea.explain(lite0, photographs / "chelsea.png")
    assert repr(seen[0]).startswith(f"<HeatMap {photographs / 'chelsea.png'}: Egyptian cat 0.")
    assert seen.title().startswith("Egyptian cat 0.")
    assert seen._repr_png_()[:4] == b"\x89PNG"
    x0, y0, x1, y1 = seen.boxes[0, 0].tolist()
    assert 0 <= x0 < 120
    assert 0 <= y0 < 60
    assert 280 < x1 <= 451
    assert 220 < y1 <= 300


def test_maps_of_different_sizes_are_no_one_tensor(pooled: nn.Module) -> None:
    net = fovea.wrap(pooled, lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, labels=5)
    pictures = [Image.new("RGB", size, "red") for size in ((24, 24), (48, 24), (24, 24))]
    seen = fovea.explain(net, pictures)
    refused("different sizes \\(6 x 12, 6 x 6 cells\\)", getattr, seen, "values")
    assert [heatmap.grid for heatmap in seen] == [(6, 6), (6, 12), (6, 6)]
    assert torch.allclose(seen[1].values, fovea.explain(net, pictures[1]).values[0], atol=1e-6)
    assert seen.boxes.shape == (3, 1, 4)
    assert [row["seen"] for row in map(fovea.HeatMap.to_dict, seen)] == [
        pytest.approx((0, 0, width, 24), abs=0.1) for width in (24, 48, 24)
    ]
    assert seen[::2].values.shape == (2, 1, 6, 6)


def test_overlays_at_the_pictures_own_size_on_request(pooled: nn.Module, tmp_path: Path) -> None:
    def small(image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image.resize((24, 24)))).permute(2, 0, 1) / 255

    Image.new("RGB", (1500, 1000), "blue").save(tmp_path / "large.png")
    maps = fovea.explain(fovea.wrap(pooled, small, labels=5), tmp_path / "large.png")
    assert maps[0].over(size="full").size == (1500, 1000)
    for files, width in ((True, 1200), ("full", 1500)):
        (row,) = maps.save(tmp_path / str(files), files=files)
        overlay = Image.open(tmp_path / str(files) / row["files"]["maps"][0]["overlay"])
        assert width < overlay.width < 1.2 * width  # with the color bar


@pytest.mark.parametrize("count", [2, 7, 17])
def test_the_sheet_has_every_map_once_and_wraps(pooled: nn.Module, count: int) -> None:
    net = fovea.wrap(pooled, lambda image: torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255, labels=5)
    maps = fovea.explain(net, Image.new("RGB", (24, 24), "blue"), target="top3")[0]
    drawn = np.asarray(Explained((maps,) * count).draw())
    filled = np.flatnonzero((drawn != 255).any(-1).mean(1) > 0.3)
    rows = (np.diff(filled, prepend=-99) > 40).sum()  # between them are the next methods' names
    assert rows == -(-(count + 1) // 2)  # two methods of three targets, and the photograph first
    assert drawn.shape[1] < 7 * 280
