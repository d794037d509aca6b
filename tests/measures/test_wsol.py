import copy
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from typer.testing import CliRunner

import fovea
from checks import refused
from commands import ran
from fovea import cli
from fovea.data import open_data, open_folder, open_pack
from fovea.measures.figures import printed
from fovea.measures.localized import draw, localized
from fovea.measures.registry import find
from fovea.networks import rank_of
from fovea.pictures import Prepare, placement_of
from fovea.results import marks
from made_data import write_pack

measure = partial(fovea.measure, "wsol")


def picture(where: tuple[int, int, int, int], color: int) -> Image.Image:
    pixels = np.zeros((60, 80, 3), dtype=np.uint8)
    x0, y0, x1, y1 = where
    pixels[y0:y1, x0:x1, color] = 255
    return Image.fromarray(pixels)


@pytest.fixture
def net() -> fovea.Network:
    """The class is the color, the map is where the color is."""
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
    rows = [(f"{i}/a.png", picture(box, i), str(i), " ".join(map(str, box)), "test") for i, box in enumerate(BOXES)]
    write_pack(tmp_path, [*rows, ("broken.png", b"oops", "0", "0 0 1 1", "test")])
    return tmp_path


def class_folders(root: Path, **places: int) -> None:
    """A picture with its box in the folder of each color."""
    lines = ["file,boxes"]
    for name, i in places.items():
        (root / name).mkdir()
        picture(BOXES[i], i).save(root / name / "one.png")
        lines.append(f"{name}/one.png,{' '.join(map(str, BOXES[i]))}")
    (root / "boxes.csv").write_text("\n".join(lines))


def test_maps_on_the_object_score_one_and_bad_pictures_are_reported(net: fovea.Network, pack: Path) -> None:
    seen: list[tuple[int, int]] = []
    found = measure(
        net, open_pack(pack), method=["cam", "gradcam", "l2caf"], batch=2, progress=lambda *now: seen.append(now)
    )
    rows, skipped = found.rows, found.skipped
    for row in rows:
        assert (row["images"], row["top1"], row["top1_loc"], row["gt_known"], row["max_box_acc_v2"]) == (3, 1, 1, 1, 1)
    assert [row["method"] for row in rows] == ["cam", "gradcam", "l2caf"]
    assert skipped[0][0] == "broken.png"
    assert seen[-1] == (8, 8)  # looked at, then boxes drawn


def test_pictures_are_drawn_with_true_and_found_boxes(net: fovea.Network, pack: Path) -> None:
    """The picture with the true box, then a map by each method with the box that was found, in orange."""
    found = measure(net, pack, method=["cam", "gradcam"])
    rows = list(found.extra.rows())
    assert [len(row) for row in rows] == [3, 3, 3]  # the picture, and a map by each method; the broken one is left out
    assert found.extra.thresholds == {(row["net"], row["method"]): row["threshold"] for row in found.rows}
    orange = [int(marks.INKS[0][i : i + 2], 16) for i in (1, 3, 5)]
    for plain, *maps in rows:
        assert [bool((np.asarray(tile) == orange).all(2).any()) for tile in (plain, *maps)] == [False, True, True]
    sheet = draw(found)
    assert sheet.width > 3 * 300
    assert sheet.height > 3 * 240


def test_a_page_holds_the_table_and_the_pictures(pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = f"measure wsol --net timm/test_resnet --untrained --data {pack} --split test --method gradcam --page"
    assert "wsol.html" in ran(words).output
    page = (tmp_path / "wsol.html").read_text()
    assert "<th>gt_known</th>" in page
    assert page.count("data:image/jpeg;base64,") == 1
    ran(f"{words} --out boxes.png")
    assert (tmp_path / "boxes.png").is_file()
    assert (tmp_path / "boxes.html").is_file()


def test_a_wrong_box_scores_zero(net: fovea.Network, pack: Path) -> None:
    text = (pack / "manifest.csv").read_text().replace("8 8 32 28", "60 40 79 59")
    (pack / "manifest.csv").write_text(text)
    rows = measure(net, open_pack(pack), method=["cam"]).rows
    assert rows[0]["gt_known"] == pytest.approx(2 / 3)
    assert rows[0]["top1"] == 1


def test_without_clipping_a_map_counts_from_its_least_value(net: fovea.Network, pack: Path) -> None:
    """The object is 0 and all around it -1: clipped, there is nothing to draw a box around."""
    dark = replace(net, transform=Prepare((60, 80), (1.0,) * 3, (1.0,) * 3, None))
    for clip, share in ((True, 0), (False, 1)):
        (row,) = measure(dark, open_pack(pack), method=["cam"], clip=clip).rows
        assert row["gt_known"] == row["gt_known_fixed"] == row["gt_known_apart"] == share


def test_a_tie_is_not_a_hit() -> None:
    outputs = torch.tensor([[1.0, 1.0, 1.0], [float("nan")] * 3, [0.0, 2.0, 1.0]])
    assert rank_of(outputs, torch.tensor([0, 0, 1])).tolist() == [2, 2, 0]


def test_folders_with_boxes(net: fovea.Network, tmp_path: Path) -> None:
    class_folders(tmp_path, red=0, green=1, blue=2)
    found = open_folder(tmp_path, net.labels)
    assert sorted(sample.label for sample in found.samples) == [0, 1, 2]
    rows = measure(net, found, method=["l2caf"]).rows
    assert (rows[0]["top1"], rows[0]["gt_known"]) == (1, 1)


def test_nothing_to_measure_against(net: fovea.Network, pack: Path) -> None:
    text = (pack / "manifest.csv").read_text().splitlines()
    kept = [",".join([*line.split(",")[:3], "", "test"]) for line in text[1:]]
    (pack / "manifest.csv").write_text("\n".join([text[0], *kept]))
    refused("no boxes", measure, net, open_pack(pack), method=["cam"])


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the pack imagenet-val-3k")
def test_real_pictures(lite0: fovea.Network) -> None:
    found = measure(lite0.squashed(), open_data("imagenet-val-3k").first(120), method=["cam", "gradcam", "l2caf"])
    cam, gradcam, l2caf = found.rows
    assert not found.skipped
    assert cam["top1"] > 0.55
    assert {**cam, "method": ""} == {**gradcam, "method": ""}
    assert l2caf["gt_known"] > 0.45


def test_classes_are_matched_by_name(net: fovea.Network, tmp_path: Path) -> None:
    """Sorted, blue is the folders' class 0; the network has it last."""
    class_folders(tmp_path, blue=2, green=1)
    found = measure(net, open_folder(tmp_path), method=["cam"])
    assert found.settings["labels"] == "matched by name"
    assert (found.rows[0]["top1"], found.rows[0]["gt_known"]) == (1, 1)
    assert (found.rows[0]["top5"], found.rows[0]["top5_loc"]) == (None, None)  # of three outputs


def test_processes_draw_the_same_boxes() -> None:
    cells = np.random.default_rng(0).random((33, 3, 4), dtype=np.float32)
    jobs = [(one, placement_of(Prepare((60, 80), crop=None), 80, 60), (BOXES[0],)) for one in cells]
    seen: list[tuple[int, int]] = []
    here = localized({"a": jobs})["a"]
    there = localized({"a": jobs}, lambda *now: seen.append(now), workers=8)["a"]
    assert (here.largest == there.largest).all()
    assert (here.any_one == there.any_one).all()
    assert seen[-1] == (33, 33)


def test_a_plain_script_measures(tmp_path: Path) -> None:
    """One without `if __name__ == "__main__":`, which processes of its own would run again."""
    script = tmp_path / "script.py"
    script.write_text(
        "from fovea.measures.localized import localized\n"
        "import numpy as np\n"
        "from fovea.pictures.transforms import Prepare, placement_of\n"
        "job = np.ones((2, 2), np.float32), placement_of(Prepare((8, 8), crop=None), 8, 8), ((0, 0, 8, 8),)\n"
        "print(localized({'a': [job] * 40})['a'].largest.shape)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("(40, 99)\n", "")


def test_no_method_and_no_batch(net: fovea.Network, pack: Path) -> None:
    refused("no method was named", measure, net, open_pack(pack), method=[])
    refused("batch is 1 to 65,536; got 0", measure, net, open_pack(pack), method=["cam"], batch=0)


@pytest.mark.parametrize("where", [".", "00.tar/found.json"])
def test_figures_that_could_not_be_written_are_not_measured(pack: Path, where: str) -> None:
    words = ["measure", "wsol", "--data", "nowhere", "--json", str(pack / where)]
    done = CliRunner().invoke(cli.app, words)
    assert isinstance(done.exception, fovea.BadChoice)
    assert f"--json {pack / where}" in str(done.exception)


def test_a_network_for_other_classes_is_told(tmp_path: Path) -> None:
    (tmp_path / "data/mauve").mkdir(parents=True)
    picture(BOXES[0], 0).save(tmp_path / "data/mauve/one.png")
    (tmp_path / "data/boxes.csv").write_text("file,boxes\nmauve/one.png,8 8 32 28")
    words = f"measure wsol --net timm/test_resnet --untrained --data {tmp_path}/data --method cam"
    done = ran(words)
    assert "the network knows no 'mauve'" in done.stderr


def test_networks_side_by_side(net: fovea.Network, pack: Path, tmp_path: Path) -> None:
    """The second network calls red green, so that its classes suffer and its boxes do not."""
    wrong = copy.deepcopy(net.module)
    wrong[4].weight.data = wrong[4].weight.data[[1, 0, 2]]
    networks = [replace(net, name=f"right-seed{i}") for i in range(2)]
    networks += [replace(net, name=f"wrong-seed{i}", module=wrong, _cuts={}) for i in range(2)]
    decoded: list[str] = []
    found = measure(
        networks, open_pack(pack), method=["cam"], progress=lambda done, total: decoded.append(f"{done}/{total}")
    )
    right, swapped = found.rows
    assert (right["net"], right["seeds"], right["top1"], right["top1_loc"]) == ("right", 2, 1, 1)
    assert (swapped["net"], swapped["seeds"]) == ("wrong", 2)
    assert swapped["top1"] == pytest.approx(1 / 3)
    assert swapped["top1_change"] == pytest.approx(-2 / 3)
    assert swapped["top1_change_low"] == pytest.approx(-2 / 3)
    assert swapped["top1_loc_fixed_low"] == swapped["top1_loc_apart_high"] == pytest.approx(1 / 3)
    columns = ["top1", "top1_change", "top1_loc", "top1_loc_change"]
    columns += ["gt_known", "gt_known_change", "gt_known_fixed", "gt_known_apart", "max_box_acc_v2", "threshold"]
    assert list(printed(found.rows, find("wsol").columns)[0])[4:] == columns
    assert "beside right" in found.settings["change"]
    assert len(found.skipped) == 1  # decoded once for all
    refused("each by another name", measure, [networks[0], networks[0]], open_pack(pack), method=["cam"])


def test_the_command_takes_several_networks(pack: Path) -> None:
    words = f"measure wsol --net timm/test_resnet --net timm/test_vit --untrained --data {pack} --method gradcam"
    assert "top1_loc_change" in ran(words).output
    (weights := pack / "x.safetensors").write_bytes(b"")
    done = CliRunner().invoke(cli.app, [*words.split(), "--weights", str(weights)])
    assert isinstance(done.exception, fovea.BadChoice)
    assert "--weights is for one network" in str(done.exception)
