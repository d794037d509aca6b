import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.models.protopnet import EPSILON, ProtoPNet, similarity_of
from fovea.models.trunks import Trunk

TINY = {"channels": [8, 8, 16, 16], "stem_width": 8, "width": 4, "prototypes": 2}


def tiny(classes: int = 3, **options: object) -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("protopnet/timm/resnet10t", pretrained=False, classes=classes, options=TINY | options)


def plain(classes: int, prototypes: list[list[list[float]]]) -> ProtoPNet:
    """A network whose cells are the picture's own pixels, so that everything can be worked out by hand."""
    width = len(prototypes[0][0])
    module = ProtoPNet(Trunk(nn.Identity(), (2, 2), width), classes, width, len(prototypes[0]))
    module.add_on = nn.Sequential()
    module.prototypes.data = torch.tensor(prototypes)
    return module.eval()


def test_distances_and_similarities_by_hand() -> None:
    module = plain(2, [[[0.0, 0.0]], [[1.0, 0.5]]])
    x = torch.tensor([[[[0.0, 1.0], [0.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]]]])  # cells 00, 10 above 01, 11
    out = module(x)
    apart = torch.tensor([[[0.0, 1.0], [1.0, 2.0]], [[1.25, 0.25], [1.25, 0.25]]])  # P,h,w
    assert torch.allclose(module.distances(x)[0], apart)
    assert torch.allclose(out.maps[0], ((apart + 1) / (apart + EPSILON)).log())
    assert out.distances.tolist() == [[0.0, 0.25]]
    near, far = math.log(1 / 1e-4), math.log(1.25 / 0.2501)
    assert out.similarity[0].tolist() == pytest.approx([near, far], rel=1e-5)
    assert out.logits[0].tolist() == pytest.approx([near - 0.5 * far, far - 0.5 * near], rel=1e-5)  # +1 own, -0.5 other
    assert out.owner.tolist() == [0, 1]


def test_similarity_falls_with_distance_from_its_largest_value() -> None:
    values = similarity_of(torch.tensor([0.0, 0.01, 0.1, 1.0, 100.0]))
    assert values[0] == pytest.approx(math.log(1e4))
    assert bool((values.diff() < 0).all())
    assert bool((values > 0).all())


def test_distances_are_exact_where_prototypes_are_met() -> None:
    module = plain(2, torch.rand(2, 3, 64, generator=torch.Generator().manual_seed(0)).tolist())
    met = module.prototypes.detach().flatten(0, 1).T.view(1, 64, 2, 3)  # each cell is a prototype
    apart = module.distances(met).detach().flatten(2)[0]
    assert float(apart.diagonal().max()) < 1e-12
    assert float((apart + torch.eye(6)).min()) > 0.5


def test_prototypes_begin_in_the_unit_cube_and_classes_with_their_own() -> None:
    module = tiny().module
    assert module.prototypes.shape == (3, 2, 4)
    start = module.prototypes.detach()
    assert 0 <= float(start.min()) <= float(start.max()) <= 1
    assert module.owner.tolist() == [0, 0, 1, 1, 2, 2]
    expected = [[1, 1, -0.5, -0.5, -0.5, -0.5], [-0.5, -0.5, 1, 1, -0.5, -0.5], [-0.5, -0.5, -0.5, -0.5, 1, 1]]
    assert module.last.weight.tolist() == expected
    assert module.picture.unique().tolist() == module.cell.unique().tolist() == [-1]


def test_a_map_for_each_prototype_whose_maxima_are_weighed() -> None:
    network, x = tiny(), torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        out = network.module(x)
    assert out.maps.shape == (2, 6, 2, 2)
    assert torch.equal(out.maps.flatten(2).amax(2), out.similarity)
    assert torch.allclose(out.logits, out.similarity @ out.weights.T)
    assert torch.equal(network(x), out.logits)


def test_frozen_features_keep_their_statistics_in_training() -> None:
    module = tiny().module
    module.train()
    assert module.features.training
    module.features.requires_grad_(False)
    module.train()
    before = {key: value.clone() for key, value in module.features.state_dict().items()}
    module(torch.randn(4, 3, 64, 64))
    assert not module.features.training
    assert module.training
    assert all(torch.equal(value, before[key]) for key, value in module.features.state_dict().items())


def test_a_saved_one_is_loaded_without_other_weights(tmp_path: Path) -> None:
    network, x = tiny(), torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    network.labels = ("wren", "crow", "gull")
    network.module.picture[1, 0] = 7
    network.module.cell[1, 0] = torch.tensor([1, 0])
    network.save(tmp_path / "birds.safetensors")
    again = fovea.load(tmp_path / "birds.safetensors")
    assert again.labels == network.labels
    assert again.module.picture.tolist() == [[-1, -1], [7, -1], [-1, -1]]
    assert again.module.cell[1, 0].tolist() == [1, 0]
    with torch.no_grad():
        assert torch.equal(again(x), network(x))


def test_the_features_are_those_of_the_network_named(lite0: fovea.Network) -> None:
    network = fovea.load("protopnet/efficientnet_lite0", classes=2, options={"prototypes": 1, "width": 4})
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected: Tensor = lite0.module.forward_features(x)
        assert torch.equal(network.module.features(x), expected)
    assert network.transform == lite0.transform


def test_distances_do_not_follow_autocast() -> None:
    module = plain(2, [[[0.5, 0.25]], [[1.0, 0.5]]])
    x = torch.rand(1, 2, 2, 2, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        out = module(x)
    assert out.logits.dtype == torch.float32
    assert torch.equal(out.maps, module(x).maps)


def test_what_it_refuses() -> None:
    refused("at least 2", tiny, classes=1)
    refused("prototypes is at least 1", tiny, prototypes=0)
    refused("N,C,H,W", tiny().module, torch.zeros(3, 64, 64))
