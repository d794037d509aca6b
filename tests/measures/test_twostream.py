"""fovea measure twostream: streams, steps and sums of one pass; seeds told as one; the gain over the global stream."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import fovea
from checks import refused
from fovea.measures import twostream
from fovea.models.twostream import Views
from fovea.networks import Network

OPTIONS = {"side": 40, "size": 32, "patch": 32, "hidden": 6, "steps": 3, "source": "whole"}


def network(name: str, seed: int = 0, **options: object) -> Network:
    torch.manual_seed(seed)
    net = fovea.load("twostream/timm/resnet10t", pretrained=False, classes=2, options={**OPTIONS, **options})
    net.name, net.labels = name, ("green", "red")
    net.module.eval()
    return net


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)  # patches are kept below it
    rng = np.random.default_rng(0)
    for place, name in enumerate(("green", "red")):
        (tmp_path / "data" / name).mkdir(parents=True)
        for number in range(4):
            pixels = rng.integers(0, 80, (44, 50, 3), dtype=np.uint8)
            pixels[..., 1 - place] += 150
            Image.fromarray(pixels).save(tmp_path / "data" / name / f"{number}.png")
    return tmp_path / "data"


def views(count: int = 2) -> Views:
    x: Tensor = torch.randn(count, 3, 40, 40, generator=torch.Generator().manual_seed(3))
    return Views(x, torch.tensor([[[0.0, 0.0, 1.0, 1.0]]]).expand(count, 1, 4))


def test_every_way_of_putting_steps_together_is_that_networks_own() -> None:
    net = network("net")
    with torch.no_grad():
        found = twostream.answers(net.module, net.module(views()))
        for readout in ("sum:1", "sum:3", "step:2", "mean"):
            net.module.local.readout = readout
            other = net.module(views())
            assert torch.allclose(found[readout], other.logits, atol=1e-5)
            assert torch.allclose(found[f"local {readout}"], other.local, atol=1e-5)
    assert torch.allclose(found["sum:1"], found["step:1"])


def test_which_ways_there_are() -> None:
    numbers = ("1", "2", "3")
    expected = [*(f"sum:{n}" for n in numbers), *(f"step:{n}" for n in numbers), "mean"]
    assert twostream.readouts(network("net").module) == expected
    assert twostream.readouts(network("net", local="cnn").module) == []


def test_seeds_are_told_as_one_and_gains_over_the_global_stream_alone(pictures: Path) -> None:
    nets = [network(f"two-seed{seed}", seed) for seed in (0, 1)]
    alone = [network(f"alone-seed{seed}", seed, local="none") for seed in (0, 1)]
    found = fovea.measure("twostream", [*nets, *alone], str(pictures), batch=3)
    (own, *others), (base,) = ([row for row in found.rows if row["net"] == name] for name in ("two", "alone"))
    single = [fovea.measure("twostream", [one], str(pictures)).rows[0]["top1"] for one in (*nets, *alone)]
    assert own["seeds"] == 2
    assert own["readout"] == "attention"
    assert own["top1"] == pytest.approx(np.mean(single[:2]))
    assert base["top1"] == pytest.approx(np.mean(single[2:]))
    assert own["gain"] == pytest.approx(own["top1"] - base["top1"])
    assert own["gain_low"] <= own["gain"] <= own["gain_high"]
    assert base["gain"] == 0
    assert [row["readout"] for row in others] == twostream.readouts(nets[0].module)
    assert found.settings["images"] == 8


def test_seeds_are_compared_with_their_own(pictures: Path) -> None:
    nets = [network(f"two-seed{seed}", seed) for seed in (0, 1)]
    alone = [network(f"alone-seed{seed}", seed, local="none") for seed in (0, 1)]
    one, other = (fovea.measure("twostream", [*order, *alone], str(pictures)).rows[0] for order in (nets, nets[::-1]))
    assert one["gain_low"] == pytest.approx(other["gain_low"])
    three = fovea.measure("twostream", [*nets, network("two-seed7", 7), *alone], str(pictures)).rows[0]
    assert "gain_low" not in three


def test_a_network_that_sums_its_steps_has_that_row_once(pictures: Path) -> None:
    found = fovea.measure("twostream", [network("two", readout="sum:3")], str(pictures))
    assert [row["readout"] for row in found.rows] == ["sum:3", "sum:1", "sum:2", "step:1", "step:2", "step:3", "mean"]


def test_gains_are_over_the_global_stream_that_sees_alike(pictures: Path) -> None:
    """One at 32 pixels and in cells of 32 of them, one in cells of 16, with a network beside each; and one at 24."""
    fine = {"output_stride": 16}
    nets = [network("two"), network("fine", 1, **fine), network("small", 2, size=24)]
    nets += [network("none", 3, local="none"), network("none16", 4, local="none", **fine)]
    found = fovea.measure("twostream", nets, str(pictures))
    first = {row["net"]: row for row in reversed(found.rows)}
    for name, base in (("two", "none"), ("fine", "none16"), ("none", "none"), ("none16", "none16")):
        assert first[name]["gain"] == pytest.approx(first[name]["top1"] - first[base]["top1"])
    assert "gain" not in first["small"]
    assert found.settings["gain"].endswith("sees pictures at the same size, in as many cells")
    twice = [network("none", local="none"), network("other", local="none")]
    refused("none and other are both a global stream alone", fovea.measure, "twostream", twice, str(pictures))


def test_another_network_is_sent_elsewhere(pictures: Path) -> None:
    other = fovea.load("timm/resnet10t", pretrained=False, classes=2)
    refused("is not a two-stream network", fovea.measure, "twostream", [other], str(pictures))
