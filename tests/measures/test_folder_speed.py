from pathlib import Path

import pytest
from PIL import Image

import fovea
from checks import refused
from fovea.measures.folder_speed import SIZE, made

FOURS = "bare forwards, 4 at once"


def test_parts_and_all_of_it(tmp_path: Path) -> None:
    for number in range(2):
        Image.new("RGB", (40, 30), (80 * number, 99, 7)).save(tmp_path / f"{number}.png")
    net = fovea.load("timm/test_resnet", pretrained=False)
    seen: list[tuple[int, int]] = []
    found = fovea.measure(
        "bench folder", net, str(tmp_path), counts=[3, 5], batch=2, rounds=1, progress=lambda *now: seen.append(now)
    )
    assert [(row["pictures"], row["stage"]) for row in found.rows] == [
        *((3, stage) for stage in ("bare forwards", FOURS, "decoding", "looking", "drawing", "writing", "all at once")),
        (5, "bare forwards"),
        (5, FOURS),
        (5, "all at once"),
    ]
    parts = [row["processor_s"] for row in found.rows[2:7]]
    assert sum(parts[:4]) >= parts[4] - 0.01  # the last is what the others add up to, none of them below zero
    forwards, together = (found.rows[i] for i in (0, 6))
    assert together["x_forward"] == pytest.approx(together["wall_s"] / forwards["wall_s"], rel=0.5)
    assert together["x_best_forward"] >= together["wall_s"] / forwards["wall_s"] * 0.9  # rounded
    assert found.settings["pictures"] == "2 photographs, over and over, 40 x 30 pixels in the median"
    assert seen == [(3, 8), (8, 8)]
    assert not (tmp_path / "index.html").exists()  # what is written goes elsewhere
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.png", "1.png"]


def test_made_pictures_and_refusals(tmp_path: Path) -> None:
    first = next(made(tmp_path))
    with Image.open(first) as picture:
        assert picture.size == SIZE
    assert 20_000 < first.stat().st_size < 200_000  # as a photograph of this size
    refused(
        "one or more numbers of pictures, as --counts 500", fovea.measure, "bench folder", "timm/test_resnet", counts=[]
    )
