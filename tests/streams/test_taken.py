"""Patches in pictures as a network takes them: other pixels, other patches."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea.basics import BadChoice
from fovea.data import open_data
from fovea.networks import Network
from fovea.pictures import Prepare
from fovea.streams import AsTaken, in_shares, patches_of, source_of

CPU = torch.device("cpu")


def network(source: str = "whole", crop: float | None = 1.0) -> Network:
    options = {"side": 32, "patch": 32, "hidden": 4, "steps": 2, "source": source}
    net = fovea.load("twostream/timm/resnet10t", pretrained=False, classes=2, options=options)
    assert isinstance(net.transform, Prepare)
    net.transform = replace(net.transform, crop=crop)
    return net


@pytest.fixture
def pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for i in range(2):
            Image.fromarray(rng.integers(0, 255, (40, 60, 3), dtype=np.uint8)).save(
                tmp_path / "data" / name / f"{i}.png"
            )
    return tmp_path / "data"


def test_pictures_are_those_that_the_network_takes(pictures: Path) -> None:
    data, net = open_data(str(pictures)), network()
    assert isinstance(net.transform, Prepare)
    taken = AsTaken(data.samples[0].source, net.transform).read()
    assert torch.equal(
        net.transform.pixels(data.samples[0].source.read()).permute(1, 2, 0), torch.tensor(np.array(taken))
    )


def test_another_crop_has_patches_of_its_own(pictures: Path) -> None:
    data = open_data(str(pictures))
    one, same, other = (patches_of(network("random:count=1", crop), data, CPU) for crop in (1.0, 1.0, None))
    assert one is not None
    assert same is not None
    assert other is not None
    assert one.file == same.file != other.file
    assert same.already == 4
    assert dict(one) == dict(same) != dict(other)


def test_shares_of_the_input(pictures: Path) -> None:
    data = open_data(str(pictures))
    found = patches_of(network("random:count=1,side=0.5"), data, CPU)
    assert found is not None
    shares = in_shares(found, data.samples, (32, 32), 3)
    assert shares.shape == (4, 3, 4)
    assert torch.allclose(shares[:, :, 2:] - shares[:, :, :2], torch.full((4, 3, 2), 0.5), atol=1e-3)
    assert torch.equal(shares[:, 0], shares[:, 2])  # the only patch again


def test_a_picture_without_patches_is_named(pictures: Path) -> None:
    data = open_data(str(pictures))
    whole = data.samples[0].source.path.read_bytes()  # type: ignore[attr-defined]
    data.samples[0].source.path.write_bytes(b"")  # type: ignore[attr-defined]
    found = patches_of(network(), data, CPU)
    data.samples[0].source.path.write_bytes(whole)  # type: ignore[attr-defined]
    assert found is not None
    with pytest.raises(BadChoice, match="delete that file"):
        in_shares(found, data.samples, (32, 32), 1)


def test_a_source_is_told_without_folders() -> None:
    assert source_of(network("tnet:some/where/net.safetensors,count=2").module) == "tnet:net.safetensors,count=2"  # type: ignore[arg-type]
    assert source_of(network("embedded").module) == "embedded"  # type: ignore[arg-type]
