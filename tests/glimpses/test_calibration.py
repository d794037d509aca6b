"""Certainty that comes true: temperatures of the greatest likelihood, errors by hand, and what is kept of them."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

import fovea
from checks import refused
from commands import Run
from fovea.data import DataSet, Pixels, Sample
from fovea.data.samples import UNLABELED
from fovea.glimpses import calibration_error, reliability
from fovea.glimpses.calibration import fit, scored
from fovea.models.glimpsing import Certainty

TINY = {"in_chans": 1, "channels": [8, 8, 16, 16], "stem_width": 8, "base": 32}


def tnet(**options: object) -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("tnet/resnet10t", pretrained=False, classes=3, options=TINY | options)


def canvases(count: int = 12) -> DataSet:
    drawn = np.random.default_rng(0).integers(0, 256, (count, 64, 64), dtype=np.uint8)
    samples = [Sample(f"{i}", i % 3, Pixels(values)) for i, values in enumerate(drawn)]
    return DataSet("made", tuple(samples), ("0", "1", "2"))


def test_a_temperature_is_found_again() -> None:
    """Labels drawn by softmax(logits), which are then multiplied by what the rule is to take back: 2.5 after one thing
    read, 1.5 after two, 1.5 x (1.5 / 2.5) ^ (1 / 3) after three."""
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(4000, 3, 5, generator=generator, dtype=torch.float64)
    true[:, 1:] = true[:, :1]  # the same answer each time, so that one label is drawn by all three
    labels = torch.multinomial(true[:, 0].softmax(1), 1, generator=generator)[:, 0]
    b = 2 * math.log(2.5 / 1.5)
    rule = math.log(2.5) - b, b
    scale = torch.tensor([math.exp(rule[0] + rule[1] / things) for things in (1, 2, 3)], dtype=torch.float64)
    assert scale[:2].tolist() == pytest.approx([2.5, 1.5])
    logits = true * scale[None, :, None]
    found = fit(logits, labels)
    assert found == pytest.approx(rule, abs=0.08)
    certainty = Certainty()
    before = scored(logits, labels, certainty)
    certainty.rule.copy_(torch.tensor(found))
    after = scored(logits, labels, certainty)
    assert after[0] < before[0] - 0.05
    assert after[1] < 0.02 < before[1]


def test_errors_by_hand() -> None:
    certainty, right = np.array([0.9, 0.92, 0.3, 0.31]), np.array([True, False, True, False])
    assert reliability(certainty, right) == [(2, pytest.approx(0.305), 0.5), (2, pytest.approx(0.91), 0.5)]
    assert calibration_error(certainty, right) == pytest.approx((0.195 + 0.41) / 2)
    assert calibration_error(np.ones(3), np.ones(3, dtype=bool)) == 0


def test_a_calibrated_network_is_saved_so_and_training_makes_it_void(tmp_path: Path) -> None:
    network = tnet()
    assert not network.module.certainty.calibrated
    result = fovea.calibrate(network, canvases())
    assert (result.pictures, result.glimpses, len(result.temperatures)) == (12, 4, 5)
    assert result.nll < result.nll_before
    assert network.module.certainty.calibrated
    network.save(tmp_path / "sure.safetensors")
    again = fovea.load(tmp_path / "sure.safetensors")
    assert torch.equal(again.module.certainty.rule, network.module.certainty.rule)
    (answer,) = fovea.zoom(again, canvases(1).samples[0].source.read(), until=1)
    assert not answer.note.count("calibrated")
    assert answer.certainty != pytest.approx(answer.probability)
    hot = again.module.certainty.temperature(len(answer.after)) > 1
    assert (answer.certainty < answer.probability) == hot
    again.module.train()(torch.randn(2, 1, 64, 64))
    assert not again.module.certainty.calibrated


def test_files_of_before_are_not_calibrated(tmp_path: Path) -> None:
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    tnet().save(tmp_path / "new.safetensors")
    about = safe_open(tmp_path / "new.safetensors", "pt").metadata()
    kept = {key: value for key, value in load_file(tmp_path / "new.safetensors").items() if "certainty" not in key}
    save_file(kept, tmp_path / "old.safetensors", {key: value for key, value in about.items() if "sha" not in key})
    old = fovea.load(tmp_path / "old.safetensors")
    assert not old.module.certainty.calibrated
    assert old.module.certainty.temperature(3) == 1


def test_without_an_overview_every_thing_read_is_a_glimpse() -> None:
    network = fovea.load("saccader", classes=3, options={"width": 0.125, "locations": 4, "side": 96})
    result = fovea.calibrate(network, canvases(4))
    assert (result.glimpses, len(result.temperatures)) == (4, 4)


def test_new_classes_have_no_calibration() -> None:
    network = tnet()
    network.module.certainty.rule.fill_(0.5)
    network.module.reset_classifier(4)
    assert not network.module.certainty.calibrated


def test_wrong_choices() -> None:
    refused("at once", fovea.calibrate, fovea.load("smallnet", pretrained=False), canvases())
    bare = DataSet("bare", canvases(2).samples, UNLABELED)
    refused("no labels", fovea.calibrate, tnet(), bare)


def test_the_command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    network = tnet()
    network.save("tnet.safetensors", half=True)
    for sample in canvases(6).samples:
        Path("photos", str(sample.label)).mkdir(parents=True, exist_ok=True)
        sample.source.read().save(f"photos/{sample.label}/{sample.name}.png")
    Path("photos/0/broken.png").write_bytes(b"no picture")
    run = Run("calibrate", monkeypatch, capsys)
    given = ("--net", "tnet.safetensors", "--data", "photos", "--out")
    code, out, err = run(*given, "sure.safetensors", "--json", "a.json")
    assert (code, "NLL over 6 pictures" in out, "broken.png" in err) == (0, True, True), (out, err)
    assert fovea.load("sure.safetensors").module.certainty.calibrated
    assert Path("sure.safetensors").stat().st_size < 1.1 * Path("tnet.safetensors").stat().st_size  # as fp16 still
    (row,) = json.loads(Path("a.json").read_text())["rows"]
    assert row["nll"] < row["nll_before"]
    code, _, err = run(*given, "folder")
    assert (code, "NAME.safetensors; got folder" in err) == (2, True)
