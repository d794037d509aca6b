"""Evidence of crops that a classifier sees alone."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

import fovea
from checks import refused
from fovea.basics import Listener, listening
from fovea.models.anchornet import AnchorNet
from fovea.networks import Network, shares_of
from fovea.patches.crops import grids, look_by_crops
from fovea.patches.sources.anchornet import patches_of_evidence
from fovea.pictures import Prepare


class Reddest(nn.Module):
    """Says how red its input is, and how green."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale * x.mean((2, 3))[:, :2]


@pytest.fixture(scope="module")
def smallnet() -> Network:
    torch.manual_seed(0)
    layers = (nn.Conv2d(3, 8, 5, 2, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten())
    return fovea.wrap(nn.Sequential(*layers, nn.Linear(72, 4)).eval())


def spot(x: int, y: int) -> torch.Tensor:
    """Red around a place, less and less."""
    down, across = torch.meshgrid(torch.arange(224.0), torch.arange(224.0), indexing="ij")
    red = torch.exp(-((down - y) ** 2 + (across - x) ** 2) / (2 * 40**2))
    return torch.stack([red, torch.full_like(red, 0.2), torch.zeros_like(red)])


def test_the_grids_are_those_of_anchornet() -> None:
    found = grids((224, 224))
    assert [grid.side for grid in found] == [63, 95, 111]
    assert [grid.shape for grid in found] == [(21, 21), (17, 17), (15, 15)]
    for grid, geometry in zip(found, AnchorNet(2).geometries((224, 224)), strict=True):
        assert torch.equal(grid.boxes, geometry.boxes().long())
    assert [grid.side for grid in grids((112, 112))] == [32, 48, 56]
    assert [grid.shape for grid in grids((224, 300), 95)] == [(17, 26)]


def test_a_value_is_what_the_network_says_of_the_crop_by_itself(smallnet: Network) -> None:
    batch = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    seen = look_by_crops(smallnet, batch, None, None, few=False)
    decided = smallnet(batch).argmax(1)
    assert seen.proven
    assert torch.equal(seen.label, decided)
    for scale, cell in zip(seen.scales, (0, 100, 224), strict=True):
        x0, y0, x1, y1 = scale.boxes[cell].tolist()
        alone = F.interpolate(batch[:, :, y0:y1, x0:x1], (224, 224), mode="bilinear")
        shares = shares_of(smallnet, smallnet(alone))
        torch.testing.assert_close(scale.values.flatten(1)[:, cell], shares[torch.arange(2), decided].detach())


def test_pixels_outside_of_a_patch_have_no_say_at_all(smallnet: Network) -> None:
    batch = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(2))
    label = torch.tensor([1])
    before = look_by_crops(smallnet, batch, label, None, few=False)
    edited = batch.clone()
    edited[:, :, :, 120:] = 3.0
    after = look_by_crops(smallnet, edited, label, None, few=False)
    for one, other in zip(before.scales, after.scales, strict=True):
        outside = one.boxes[:, 2] <= 120
        assert outside.any()
        assert torch.equal(one.values.flatten(1)[:, outside], other.values.flatten(1)[:, outside])
        assert not torch.equal(one.values, other.values)


@pytest.mark.parametrize("place", [(40, 60), (112, 112), (180, 50)])
def test_from_coarse_to_fine_a_tenth_is_read_and_the_same_is_found(place: tuple[int, int]) -> None:
    network, batch = fovea.wrap(Reddest()), spot(*place)[None]
    every, few = (look_by_crops(network, batch, torch.tensor([0]), None, few) for few in (False, True))
    for all_of, some in zip(every.scales, few.scales, strict=True):
        read = int((~some.values.isnan()).sum())
        assert read <= -(-all_of.values.numel() // 10)
        best, found = (scale.values.flatten().nan_to_num(-1).argmax() for scale in (all_of, some))
        middles = [(boxes[:2] + boxes[2:]) / 2 for boxes in (all_of.boxes[best].float(), all_of.boxes[found].float())]
        assert (middles[0] - middles[1]).abs().max() <= 8  # a neighbor at most
        there = ~some.values.isnan()
        torch.testing.assert_close(some.values[there], all_of.values[there])


def test_localize_by_crops_says_what_it_takes(smallnet: Network) -> None:
    noise, told = np.random.default_rng(0).integers(0, 256, (80, 120, 3), dtype=np.uint8), list[str]()
    picture = Image.fromarray(noise)
    smallnet = fovea.wrap(smallnet.module, transform=Prepare((224, 224), (0.5,) * 3, (0.5,) * 3))
    with listening(Listener(passing=told.append)):
        (found,) = fovea.localize(smallnet, picture, evidence="few-crops", count=3)
    assert found.note == ""
    assert found.side in (63, 95, 111)
    assert 1 <= len(found.patches) <= 3
    assert told
    assert told[0] == "crop 0 of 97"
    scored = patches_of_evidence(smallnet, 3, evidence="few-crops")([picture])
    assert [box for box, _ in scored[0]] == [patch.box for patch in found.patches]


def test_what_does_not_go_together_is_refused(smallnet: Network) -> None:
    anchornet = fovea.load("anchornet", pretrained=False, classes=3, options={"side": 128})
    picture = Image.new("RGB", (128, 128))
    refused("evidence is for networks without branches", fovea.localize, anchornet, picture, evidence="crops")
    refused("leave one of them out", fovea.localize, smallnet, picture, evidence="crops", method="cam")
    refused("evidence is map or crops or few-crops; got 'crop'", fovea.localize, smallnet, picture, evidence="crop")


def test_one_side_and_no_answers_of_branches(smallnet: Network) -> None:
    """A branch is a side here, as it is of a map; only a network with branches has answers of theirs."""
    picture = np.random.default_rng(3).integers(0, 255, (224, 224, 3), dtype=np.uint8)
    net = fovea.wrap(smallnet.module, transform=Prepare((224, 224), (0.5,) * 3, (0.5,) * 3, None))
    (found,) = fovea.localize(net, Image.fromarray(picture), evidence="few-crops", branch=95)
    assert found.side == 95
    (found,) = fovea.localize(net, Image.fromarray(picture), evidence="few-crops")
    assert not found.branches


@pytest.mark.parametrize("side", [95, 134, 170, 200, 208, 224])
def test_the_coarse_grid_is_read_whole(smallnet: Network, side: int) -> None:
    seen = look_by_crops(smallnet, torch.randn(1, 3, 224, 224), None, side, few=True)
    known = ~seen.scales[0].values[0].isnan()
    assert known[0, 0] and known[0, -1] and known[-1, 0] and known[-1, -1]  # noqa: PT018 - the corners
