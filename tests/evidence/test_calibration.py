"""Probabilities that come true: temperatures of the greatest likelihood, errors by hand, and what is kept of them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import refused
from commands import Run
from fovea.data import DataSet, Pixels, Sample
from fovea.data.samples import UNLABELED
from fovea.evidence import calibration_error, reliability
from fovea.evidence.calibration import fit, fit_temperature, scored
from fovea.networks import TEMPERATURES, shares_of
from fovea.pictures import Clip, Prepare

THREE = 3 * math.log(3)  # a logit three times too large: sigmoid(log 3) is 3 / 4
TINY = {"in_chans": 1, "channels": [8, 8, 16, 16], "stem_width": 8, "base": 32}


def tnet(**options: object) -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("tnet/resnet10t", pretrained=False, classes=3, options=TINY | options)


def canvases(count: int = 12) -> DataSet:
    drawn = np.random.default_rng(0).integers(0, 256, (count, 64, 64), dtype=np.uint8)
    samples = [Sample(f"{i}", i % 3, Pixels(values)) for i, values in enumerate(drawn)]
    return DataSet("made", tuple(samples), ("0", "1", "2"))


class Whiteness(nn.Module):
    """Logits of a white picture are those given, and 0 of a black one."""

    def __init__(self, *logits: float) -> None:
        super().__init__()
        self.cells, self.fc = nn.Conv2d(3, 3, 1, groups=3, bias=False), nn.Linear(3, len(logits), bias=False)
        nn.init.ones_(self.cells.weight)
        self.fc.weight.data = torch.tensor(logits).unsqueeze(1).repeat(1, 3) / 3

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.cells(x).mean((2, 3)))


def whiteness(*logits: float, **how: object) -> fovea.Network:
    return fovea.wrap(Whiteness(*logits), Prepare((8, 8), (0.0,) * 3, (1.0,) * 3, None), **how)


WHITE = np.full((8, 8, 3), 255, dtype=np.uint8)
FOUR = DataSet("four", tuple(Sample(f"{i}", int(i == 3), Pixels(WHITE)) for i in range(4)), ("a", "b"))


def test_a_temperature_is_found_again() -> None:
    """White pictures, of which three in four are of class a: its logit is log 3, and three times as large before."""
    network = whiteness(THREE, 0.0, labels=["a", "b"])
    assert network.predict(WHITE)[0].probability == pytest.approx(27 / 28)
    result = fovea.calibrate(network, FOUR)
    assert (result.pictures, result.glimpses, result.temperatures) == (4, 0, (network.temperature,))
    assert network.temperature == pytest.approx(3, abs=1e-3)
    assert (result.ece_before, result.ece) == (pytest.approx(27 / 28 - 3 / 4), pytest.approx(0, abs=1e-3))
    assert result.nll_before == pytest.approx(-math.log(27 / 28) * 3 / 4 - math.log(1 / 28) / 4)
    assert result.nll == pytest.approx(-math.log(3 / 4) * 3 / 4 - math.log(1 / 4) / 4)


@pytest.mark.parametrize("labels", [["a", "b"], None])  # or classes by their numbers
def test_every_verb_tells_what_is_calibrated(labels: list[str] | None) -> None:
    network = whiteness(THREE, 0.0, labels=labels)
    fovea.calibrate(network, FOUR)
    assert network.predict(WHITE)[0].probability == pytest.approx(3 / 4, abs=1e-3)
    assert fovea.explain(network, WHITE)[0].probability == pytest.approx(3 / 4, abs=1e-3)
    assert fovea.localize(network, WHITE)[0].probability == pytest.approx(3 / 4, abs=1e-3)
    assert fovea.classify_patches(network, network, WHITE)[0].probability == pytest.approx(3 / 4, abs=1e-3)
    (watched,) = fovea.watch(network, Clip("made", (Image.fromarray(WHITE),) * 2, (0.0, 1.0), (0, 1), 1.0), target=0)
    assert [watched.share, *watched.shares] == [pytest.approx([3 / 4], abs=1e-3)] * 3


def test_branches_are_calibrated_as_their_network_is() -> None:
    """The decision is as before; what is said of it has the network's temperature."""
    torch.manual_seed(0)
    network = fovea.load("anchornet-imagenette")
    picture = torch.randn(1, 3, 224, 224)
    (before,) = fovea.localize(network, picture)
    network.temperature = 2.0
    (now,) = fovea.localize(network, picture)
    assert (now.label, now.side) == (before.label, before.side)
    assert now.probability == now.shown.predictions[0][1] < before.probability
    assert now.probability in [answer.probability for answer in now.branches]


def test_classes_that_do_not_exclude_each_other() -> None:
    """Of class a in three of four pictures, of class b in the other one, by log odds that are twice too large."""
    logits = torch.tensor([[2 * math.log(3), -2 * math.log(3)]] * 4, dtype=torch.float64)
    found = fit_temperature(logits, torch.tensor([0, 0, 0, 1]), several=True)
    assert found == pytest.approx(2, abs=1e-3)
    nll, error = scored(logits.unsqueeze(1) / 2, torch.tensor([0, 0, 0, 1]), several=True)
    assert nll == pytest.approx(-2 * (math.log(3 / 4) * 3 / 4 + math.log(1 / 4) / 4))
    assert error == pytest.approx(0)
    network = replace(whiteness(2 * math.log(3), 0.0, labels=2), abilities=frozenset({"several"}), temperature=2.0)
    assert shares_of(network, logits[:1]).tolist()[0] == pytest.approx([3 / 4, 1 / 4])


def test_pictures_apart_are_less_of_a_surprise() -> None:
    generator = torch.Generator().manual_seed(0)
    true = 2 * torch.randn(4000, 1, 5, generator=generator, dtype=torch.float64)
    labels = torch.multinomial(true[:, 0].softmax(1), 1, generator=generator)[:, 0]
    found = fit_temperature(2.5 * true[:2000, 0], labels[:2000])
    assert found == pytest.approx(2.5, abs=0.2)
    before, after = scored(2.5 * true[2000:], labels[2000:]), scored(2.5 * true[2000:] / found, labels[2000:])
    assert after[0] < before[0] - 0.05
    assert after[1] < 0.04 < before[1]


def test_always_right_and_always_wrong_have_an_end() -> None:
    coldest, hottest = (fit_temperature(torch.tensor([[1.0, 0.0]]), torch.tensor([label])) for label in (0, 1))
    assert TEMPERATURES[0] <= coldest < 0.1
    assert TEMPERATURES[1] / 2 < hottest <= TEMPERATURES[1]


def test_it_is_saved_with_the_weights(tmp_path: Path) -> None:
    network = fovea.load("smallnet", pretrained=False, classes=3, options={"side": 32, "widths": [4, 6]})
    fovea.calibrate(network, canvases())
    picture = canvases(1).samples[0].read()
    network.save(tmp_path / "sure.safetensors", half=True)
    again = fovea.load(tmp_path / "sure.safetensors")
    assert again.temperature == network.temperature != 1
    best = dict(again.predict(picture)[0].predictions)
    shares = (again(picture)[0] / again.temperature).softmax(0).tolist()
    assert best == pytest.approx(dict(zip("012", shares, strict=True)), abs=1e-5)
    by_name = fovea.load("smallnet", weights=tmp_path / "sure.safetensors", options={"side": 32, "widths": [4, 6]})
    assert by_name.temperature == network.temperature
    assert fovea.load(tmp_path / "sure.safetensors", classes=5).temperature is None


def test_what_cannot_keep_it_has_the_figures() -> None:
    module = Whiteness(THREE, 0.0)
    with pytest.raises(fovea.BadChoice, match="has no transform"):
        fovea.calibrate(module, FOUR)
    result = fovea.calibrate("smallnet", canvases(3))
    assert fovea.load("smallnet").temperature is None
    assert result.nll <= result.nll_before


def test_temperatures_of_glimpses_are_found_again() -> None:
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
    before = scored(logits, labels)
    after = scored(logits / torch.tensor([math.exp(found[0] + found[1] / k) for k in (1, 2, 3)])[:, None], labels)
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
    bare = DataSet("bare", canvases(2).samples, UNLABELED)
    refused("no labels", fovea.calibrate, tnet(), bare)
    refused("reads text, not pictures", fovea.calibrate, "textcnn-mr", FOUR)
    refused("hears sounds, not pictures", fovea.calibrate, "anchornet_sound-made", FOUR)
    refused("embedding-cub100 has no classes .* name a classifier", fovea.calibrate, "embedding-cub100", FOUR)
    refused("Whiteness has no classes", fovea.calibrate, whiteness(1.0, 2.0, embedding=True), FOUR)
    with pytest.raises(fovea.BadNetwork, match="not numbers"):
        fovea.calibrate(whiteness(math.nan, 0.0, labels=2), FOUR)


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


def test_the_command_of_any_classifier(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    network = fovea.load("timm/test_resnet", pretrained=False, classes=3)
    network.save("plain.safetensors")
    for sample in canvases(6).samples:
        Path("photos", str(sample.label)).mkdir(parents=True, exist_ok=True)
        sample.source.read().save(f"photos/{sample.label}/{sample.name}.png")
    run = Run("calibrate", monkeypatch, capsys)
    code, out, err = run("--net", "plain.safetensors", "--data", "photos", "--out", "sure.safetensors")
    sure = fovea.load("sure.safetensors")
    assert (code, f"temperature: {sure.temperature:.3f}" in out) == (0, True), (out, err)
    assert sure.transform == network.transform  # as it was trained, however pictures came in here
    code, _, err = run("--net", "embedding-cub100", "--data", "photos", "--out", "x.safetensors")
    assert (code, "has no classes" in err) == (2, True)
