import pytest
import torch
import torchvision

import fovea
from fovea.pictures import Prepare


@pytest.fixture
def lraspp() -> torch.nn.Module:
    return torchvision.models.segmentation.lraspp_mobilenet_v3_large(
        weights=None, weights_backbone=None, num_classes=4
    ).train()


def test_a_class_by_its_mean_logit(lraspp: torch.nn.Module) -> None:
    network, batch = fovea.wrap(lraspp, labels=["sky", "road", "cat", "dog"]), torch.randn(2, 3, 96, 64)
    heatmap = fovea.explain(network, batch, target=["cat", "dog"], method="gradcam")
    assert heatmap.values.shape == (2, 2, 6, 4)
    assert heatmap.layer == "backbone.16"
    assert lraspp.training
    torch.testing.assert_close(network(batch), lraspp.eval()(batch)["out"].mean((2, 3)))


def test_classes_without_names_are_numbers(lraspp: torch.nn.Module) -> None:
    assert fovea.explain(fovea.wrap(lraspp), torch.randn(1, 3, 64, 64), target="top4").values.shape == (1, 4, 4, 4)


def test_torchvisions_weights_say_transform_and_classes() -> None:
    weights = torchvision.models.segmentation.LRASPP_MobileNet_V3_Large_Weights.DEFAULT
    model = torchvision.models.segmentation.lraspp_mobilenet_v3_large(weights=None, weights_backbone=None)
    network = fovea.wrap(model, weights)
    assert network.labels is not None
    assert network.labels[:2] == ("__background__", "aeroplane")
    assert network.transform is not None
    weights = torchvision.models.ResNet18_Weights.DEFAULT  # of classifiers, too
    network = fovea.wrap(torchvision.models.resnet18(), weights)
    assert network.labels == tuple(weights.meta["categories"])
    assert network.transform == Prepare((224, 224), crop=0.875, interpolation="bilinear")
