import numpy as np
import pytest
import torch
import torchvision
from torch import Tensor, nn

import fovea
from checks import refused
from conftest import Pooled, Through, seeded

NAMES = ("tabby", "tiger cat", "lynx", "crane", "crane")


@pytest.fixture
def net(pooled: nn.Module) -> fovea.Network:
    return fovea.wrap(pooled, labels=NAMES)


def test_the_top_class_is_the_default_of_a_classifier(net: fovea.Network, batch: Tensor) -> None:
    with torch.no_grad():
        best = [NAMES[i] for i in net(batch).argmax(1).tolist()]
    assert [row[0] for row in fovea.explain(net, batch).targets] == best


def test_the_whole_output_is_the_default_of_an_embedding(pooled: nn.Module, batch: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(pooled, embedding=True), batch)
    assert seen.targets == (("output",),) * 3
    assert torch.equal(seen.values, fovea.explain(fovea.wrap(pooled), batch, target="embedding").values)


@pytest.mark.parametrize(
    ("end", "classifies"),
    [
        (nn.Identity(), True),
        (nn.LogSoftmax(1), True),
        (Through(nn.functional.normalize), False),
        (nn.BatchNorm1d(5), False),
        (nn.Linear(5, 1), False),
        (nn.Linear(5, 2), True),
        (nn.Sequential(nn.Unflatten(1, (5, 1, 1)), nn.Conv2d(5, 3, 1), nn.Flatten()), True),
    ],
)
def test_a_module_that_ends_in_a_linear_layer_is_a_classifier(end: nn.Module, classifies: bool, batch: Tensor) -> None:
    module = Through(lambda x, end, inner: end(inner(x)), end, seeded(Pooled)).eval()
    seen = fovea.explain(module, batch)
    best = [str(i) for i in module(batch).argmax(1).tolist()]
    assert [row[0] for row in seen.targets] == (best if classifies else ["output"] * 3)
    assert [bool(shown.predictions) for shown in seen.shown] == [classifies] * 3


def test_a_classifier_of_torchvision_explains_its_top_class() -> None:
    module = torchvision.models.resnet18().eval()
    batch = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    assert fovea.explain(module, batch).targets == ((str(int(module(batch).argmax())),),)


def test_names_indices_and_lists(net: fovea.Network, batch: Tensor) -> None:
    many = fovea.explain(net, batch, method="gradcam-abs", target=["lynx", 0, "Tiger Cat"])
    assert many.targets[0] == ("lynx", "tabby", "tiger cat")
    for k, one in enumerate(("lynx", 0, "tiger cat")):
        assert torch.allclose(
            many.values[:, k], fovea.explain(net, batch, method="gradcam-abs", target=one).values[:, 0]
        )


def test_one_class_a_picture(net: fovea.Network, batch: Tensor) -> None:
    each = fovea.explain(net, batch, method="gradcam-abs", target=torch.tensor([2, 0, 1]), batch=2)
    assert [row[0] for row in each.targets] == ["lynx", "tabby", "tiger cat"]
    every = fovea.explain(net, batch, method="gradcam-abs", target=[2, 0, 1]).values
    assert torch.allclose(each.values[:, 0], torch.stack([every[i, i] for i in range(3)]), atol=1e-6)
    named = fovea.explain(net, batch, method="gradcam-abs", target=fovea.each(["lynx", "tabby", "tiger cat"]))
    assert torch.allclose(named.values, each.values)
    two = fovea.explain(net, batch, target=np.array([[2, 0], [0, 1], [1, 2]]))
    assert two.targets == (("lynx", "tabby"), ("tabby", "tiger cat"), ("tiger cat", "lynx"))


def test_top_k_in_order(net: fovea.Network, batch: Tensor) -> None:
    with torch.no_grad():
        order = net(batch).argsort(1, descending=True)[:, :3].tolist()
    assert fovea.explain(net, batch, target="top-3").targets == tuple(tuple(NAMES[i] for i in row) for row in order)


def test_callable_is_its_gradient(net: fovea.Network, batch: Tensor) -> None:
    """Any score: a logit by a callable is the class by its index."""

    def second(out: Tensor) -> Tensor:
        return out[:, 1]

    seen = fovea.explain(net, batch, method="gradcam-abs", target=second)
    assert seen.targets[0] == ("second",)
    assert torch.allclose(seen.values, fovea.explain(net, batch, method="gradcam-abs", target=1).values)
    margin = fovea.explain(net, batch, target=lambda out: out[:, 0] - out[:, 1])
    assert margin.solver == "exact"
    assert fovea.explain(net, batch, target=lambda out: out.softmax(1)[:, 0]).solver == "iterative"


def test_pair_shows_what_two_pictures_share(batch: Tensor) -> None:
    """The embedding is the mean of the map, so what is alike is where both have the same channel."""
    module = nn.Sequential(
        nn.AvgPool2d(4), nn.Conv2d(2, 2, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    ).eval()
    module[1].weight.data = torch.eye(2).view(2, 2, 1, 1)
    a, b = torch.zeros(2, 2, 8, 8)
    a[0, :4, :4] = 1  # channel 0 above left, channel 1 below right
    a[1, 4:, 4:] = 1
    b[1, :4, 4:] = 1  # channel 1 above right
    for method in ("l2caf", "gradcam", "cam"):
        seen = fovea.explain(fovea.wrap(module, layer="1"), torch.stack([a, b]), method=method, target="pair")
        assert seen.values[0, 0].argmax().item() == 3
        assert seen.values[1, 0].argmax().item() == 1
        assert seen.targets == (("alike",), ("alike",))
    assert seen.values[0, 0, 0, 0].item() == 0


def test_oblivious_maps_name_no_class(net: fovea.Network, batch: Tensor) -> None:
    maps = fovea.explain(net, batch, method=["l2caf", "l2caf-oblivious"], target=["tabby", "lynx"])
    assert maps["l2caf"].classes == ((0, 2),) * 3
    assert maps["l2caf-oblivious"].targets == (("output",),) * 3
    assert maps["l2caf-oblivious"].classes == ((None,),) * 3


def test_what_cannot_be_explained_is_said(net: fovea.Network, pooled: nn.Module, batch: Tensor) -> None:
    for target, words in (
        ("tabbi", "no class 'tabbi'.*did you mean 'tabby'"),
        ("crane", "names classes 3 and 4: give the index"),
        (5, "class 5 does not exist: the network has classes 0 to 4"),
        (-1, "class -1 does not exist"),
        *((target, "classes 0 to 4") for target in ("5", [0, -1], torch.tensor([0, 1, 5]))),
        ("top9", "at least 9 classes"),
        ("pair", "two by two; got 3"),
        (torch.tensor([1, 2]), "one row per picture; got 2 for 3"),
        (torch.tensor([0.5, 1, 2]), "holds class indices"),
        ([], "a target is a class"),
        (fovea.each([["lynx"], [0, 1], [2]]), "as many targets for every picture"),
        (lambda out: out, "one number per picture"),
    ):
        refused(words, fovea.explain, net, batch, target=target)
    refused("no labels", fovea.explain, fovea.wrap(pooled), batch, target="tabby")
    spatial = fovea.wrap(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 5, 1)), labels=5)
    refused("give a callable", fovea.explain, spatial, batch, target=1)
