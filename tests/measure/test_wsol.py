import csv
import io
import os
import tarfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.data import open_data, open_folder, open_pack
from fovea.measure.stream import rank_of
from fovea.measure.wsol import measure
from fovea.transforms import Prepare


def picture(where: tuple[int, int, int, int], colour: int) -> Image.Image:
    pixels = np.zeros((60, 80, 3), dtype=np.uint8)
    x0, y0, x1, y1 = where
    pixels[y0:y1, x0:x1, colour] = 255
    return Image.fromarray(pixels)


@pytest.fixture
def net() -> fovea.Network:
    """The class is the colour, the map is where the colour is."""
    module = nn.Sequential(
        nn.AvgPool2d(4),
        nn.Conv2d(3, 3, 1, bias=False),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(3, 3, bias=False),
    ).eval()
    module[1].weight.data = torch.eye(3).view(3, 3, 1, 1)
    module[4].weight.data = torch.eye(3) * 10
    return fovea.wrap(module, Prepare((60, 80), (0.0,) * 3, (1.0,) * 3, None), ("red", "green", "blue"), layer="1")


BOXES = [(8, 8, 32, 28), (40, 20, 72, 52), (20, 4, 60, 24)]


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    rows = []
    with tarfile.open(tmp_path / "00.tar", "w") as tar:
        for i, box in enumerate(BOXES):
            buffer = io.BytesIO()
            picture(box, i).save(buffer, "png")
            info = tarfile.TarInfo(f"{i}/a.png")
            info.size = buffer.tell()
            buffer.seek(0)
            tar.addfile(info, buffer)
            rows.append(
                {"file": f"{i}/a.png", "shard": "00.tar", "label": i, "boxes": " ".join(map(str, box)), "split": "test"}
            )
        broken = tarfile.TarInfo("broken.png")
        broken.size = 4
        tar.addfile(broken, io.BytesIO(b"oops"))
    rows.append({"file": "broken.png", "shard": "00.tar", "label": 0, "boxes": "0 0 1 1", "split": "test"})
    with open(tmp_path / "manifest.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path


def test_maps_on_the_object_score_one_and_bad_pictures_are_reported(net: fovea.Network, pack: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = measure(net, open_pack(pack), ["cam", "gradcam", "l2caf"], batch=2, progress=lambda *now: seen.append(now))
    rows, skipped = found.rows, found.skipped
    for row in rows:
        assert (row["images"], row["top1"], row["top1_loc"], row["gt_known"], row["max_box_acc_v2"]) == (3, 1, 1, 1, 1)
    assert [row["method"] for row in rows] == ["cam", "gradcam", "l2caf"]
    assert skipped[0][0] == "broken.png"
    assert seen[-1] == (8, 8)  # looked at, then boxes drawn


def test_a_wrong_box_scores_zero(net: fovea.Network, pack: Path) -> None:
    text = (pack / "manifest.csv").read_text().replace("8 8 32 28", "60 40 79 59")
    (pack / "manifest.csv").write_text(text)
    rows = measure(net, open_pack(pack), ["cam"]).rows
    assert rows[0]["gt_known"] == pytest.approx(2 / 3)
    assert rows[0]["top1"] == 1


def test_a_tie_is_not_a_hit() -> None:
    outputs = torch.tensor([[1.0, 1.0, 1.0], [float("nan")] * 3, [0.0, 2.0, 1.0]])
    assert rank_of(outputs, torch.tensor([0, 0, 1])).tolist() == [2, 2, 0]


def test_folders_with_boxes(net: fovea.Network, tmp_path: Path) -> None:
    with open(tmp_path / "boxes.csv", "w") as file:
        file.write("file,boxes\n")
        for i, name in enumerate(("red", "green", "blue")):
            (tmp_path / name).mkdir()
            picture(BOXES[i], i).save(tmp_path / name / "one.png")
            file.write(f"{name}/one.png,{' '.join(map(str, BOXES[i]))}\n")
    found = open_folder(tmp_path, net.labels)
    assert sorted(sample.label for sample in found.samples) == [0, 1, 2]
    rows = measure(net, found, ["l2caf"]).rows
    assert (rows[0]["top1"], rows[0]["gt_known"]) == (1, 1)


def test_data_that_is_not_there(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEA_DATA", str(pack.parent))
    with pytest.raises(fovea.BadChoice, match="no data 'nowhere'"):
        open_data("nowhere")
    assert len(open_data(pack.name)) == 4
    with pytest.raises(fovea.BadChoice, match="no split 'tset'; did you mean 'test'"):
        open_pack(pack, "tset")
    (pack / "00.tar").unlink()
    with pytest.raises(fovea.BadChoice, match=r"incomplete: 00\.tar"):
        open_pack(pack)


def test_nothing_to_measure_against(net: fovea.Network, pack: Path) -> None:
    text = (pack / "manifest.csv").read_text().splitlines()
    kept = [",".join([*line.split(",")[:3], "", "test"]) for line in text[1:]]
    (pack / "manifest.csv").write_text("\n".join([text[0], *kept]))
    with pytest.raises(fovea.BadChoice, match="no boxes"):
        measure(net, open_pack(pack), ["cam"])


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the pack imagenet-val-3k")
def test_real_pictures(lite0: fovea.Network) -> None:
    found = measure(lite0.squashed(), open_data("imagenet-val-3k").first(120), ["cam", "gradcam", "l2caf"])
    cam, gradcam, l2caf = found.rows
    assert not found.skipped
    assert cam["top1"] > 0.55
    assert {**cam, "method": ""} == {**gradcam, "method": ""}
    assert l2caf["gt_known"] > 0.45
