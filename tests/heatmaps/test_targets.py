from pathlib import Path

import numpy as np
import pytest
import torch
import torchvision
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import refused
from commands import ran
from conftest import Pooled, Through, seeded
from fovea.evidence import SHARE
from fovea.results import read

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
        (fovea.each([["lynx"], [0, 1], [2]]), "same number of targets for every picture"),
        (lambda out: out, "one number per picture"),
    ):
        refused(words, fovea.explain, net, batch, target=target)
    refused("no labels", fovea.explain, fovea.wrap(pooled), batch, target="tabby")
    spatial = fovea.wrap(nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 5, 1)), labels=5)
    refused("give a callable", fovea.explain, spatial, batch, target=1)


WEIGHTS, BIAS = torch.tensor([[3.0, 0], [0, 2], [1, 1]]), torch.tensor([0.5, -1, 0])
CELLS = torch.tensor(  # N,channels,2,2: logits are 1.25 -0.5 0.5, then 0.5 3 2, then 6.5 5.5 5.25
    [
        [[[1.0, 0], [0, 0]], [[0, 0], [0, 1]]],
        [[[0, 0], [0, 0]], [[0, 8], [0, 0]]],
        [[[0, 0], [8, 0]], [[0, 0], [0, 13]]],
    ]
)
CAMS = torch.einsum("ck,nkhw->nchw", WEIGHTS, CELLS)  # N,classes,2,2: every class's weights times each cell's channels


@pytest.fixture
def by_hand() -> fovea.Network:
    """Cells are means of 4 x 4 pixels; their mean over the picture goes into one linear layer."""
    layers = nn.AvgPool2d(4), nn.Conv2d(2, 2, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 3)
    module = nn.Sequential(*layers).eval()
    module[1].weight.data, module[4].weight.data, module[4].bias.data = torch.eye(2).view(2, 2, 1, 1), WEIGHTS, BIAS
    return fovea.wrap(module, layer="1", labels=["ape", "bat", "cat"])


@pytest.fixture
def three() -> Tensor:
    return CELLS.repeat_interleave(4, 2).repeat_interleave(4, 3)  # N,2,8,8


@pytest.mark.parametrize("method", ["cam", SHARE], ids=["cam", "share"])
def test_contrast_is_the_difference_of_two_maps(method: object, by_hand: fovea.Network, three: Tensor) -> None:
    """Every picture has its own two classes, all in one batch; what cells add is the difference of the logits."""
    maps = fovea.explain(by_hand, three, method=method, target=["contrast", "top2"])
    assert [row[0] for row in maps.targets] == ["ape vs cat", "bat vs cat", "ape vs bat"]
    assert [row[0] for row in maps.classes] == [None] * 3
    pairs = [(0, 2), (1, 2), (0, 1)]
    wanted = torch.stack([CAMS[i, a] - CAMS[i, b] for i, (a, b) in enumerate(pairs)])
    assert wanted[0].tolist() == [[2, 0], [0, -1]]
    assert wanted[2].tolist() == [[0, 0], [24, -26]]
    torch.testing.assert_close(maps.values[:, 0], wanted)
    torch.testing.assert_close(maps.values[:, 0], maps.values[:, 1] - maps.values[:, 2])
    logits = by_hand(three).detach()
    differences = [float(logits[i, a] - logits[i, b] - BIAS[a] + BIAS[b]) for i, (a, b) in enumerate(pairs)]
    assert differences == pytest.approx([0.25, 2, -0.5])
    assert maps.values[:, 0].mean((1, 2)).tolist() == pytest.approx(differences)


def test_one_class_rather_than_another(by_hand: fovea.Network, three: Tensor) -> None:
    both = fovea.explain(by_hand, three, method="cam", target=["ape vs bat", "bat vs ape", "Ape vs 1"])
    assert both.targets == (("ape vs bat", "bat vs ape", "ape vs bat"),) * 3
    torch.testing.assert_close(both.values[:, 0], CAMS[:, 0] - CAMS[:, 1])
    assert torch.equal(both.values[:, 0], -both.values[:, 1])
    assert torch.equal(both.values[:, 0], both.values[:, 2])
    some = fovea.explain(by_hand, three, method="cam", target=["ape vs bat", "contrast"], batch=2)
    assert [row[1] for row in some.targets] == ["ape vs cat", "bat vs cat", "ape vs bat"]
    assert torch.equal(some.values[:, 0], both.values[:, 0])


def test_contrast_of_classes_that_have_no_names(by_hand: fovea.Network, three: Tensor) -> None:
    maps = fovea.explain(by_hand.module, three, method="cam", target=["contrast", "0 vs 2"], layer="1")
    assert maps.targets == (("0 vs 2", "0 vs 2"), ("1 vs 2", "0 vs 2"), ("0 vs 1", "0 vs 2"))
    torch.testing.assert_close(maps.values[:, 1], CAMS[:, 0] - CAMS[:, 2])


def test_two_pairs_of_one_name_are_two_maps(net: fovea.Network, batch: Tensor) -> None:
    """Classes 3 and 4 are both called crane."""
    both = fovea.explain(net, batch, method="cam", target=["3 vs 0", "4 vs 0"])
    assert both.targets[0] == ("crane vs tabby",) * 2
    every = fovea.explain(net, batch, method="cam", target=[0, 3, 4]).values
    torch.testing.assert_close(both.values, every[:, 1:] - every[:, :1])


def test_a_class_that_is_called_so_itself(by_hand: fovea.Network, three: Tensor) -> None:
    net = fovea.wrap(by_hand.module, layer="1", labels=["bat vs cat", "bat", "cat"])
    maps = fovea.explain(net, three, method="cam", target=["bat vs cat", "cat vs bat"])
    assert maps.classes == ((0, None),) * 3
    torch.testing.assert_close(maps.values, torch.stack([CAMS[:, 0], CAMS[:, 2] - CAMS[:, 1]], 1))


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("tabby vs lnyx", "no class 'lnyx'.*did you mean 'lynx'"),
        ("tabbi vs lynx", "no class 'tabbi'.*did you mean 'tabby'"),
        ("tabby vs crane", "names classes 3 and 4: give the index"),
        ("tabby vs 9", "classes 0 to 4"),
        ("tabby vs lynx vs tiger cat", "no class 'tabby vs lynx vs tiger cat'"),
        (["tabby", "tabby vs "], "no class"),
    ],
)
def test_a_pair_that_is_none_is_refused_before_anything_runs(
    target: object, words: str, net: fovea.Network, batch: Tensor
) -> None:
    ran = list[None]()
    net.module.register_forward_pre_hook(lambda *_: ran.append(None))
    refused(words, fovea.explain, net, batch, target=target)
    assert not ran


def test_contrast_needs_two_classes(batch: Tensor) -> None:
    refused("at least 2 classes", fovea.explain, fovea.wrap(seeded(Pooled, 1), labels=1), batch, target="contrast")


def test_contrast_on_the_command_line(tmp_path: Path) -> None:
    net = fovea.load("smallnet", pretrained=False, classes=3, options={"side": 32, "widths": [4, 6]})
    net.save(tmp_path / "small.safetensors")
    noise = np.random.default_rng(0).integers(0, 256, (32, 32), dtype=np.uint8)
    Image.fromarray(noise).save(tmp_path / "noise.png")
    line = ["explain", tmp_path / "noise.png", "--net", tmp_path / "small.safetensors", "--out", tmp_path / "out"]
    ran([*map(str, line), "--method", "cam", "--target", "contrast", "--target", "2 vs 0"])
    (row,) = read(tmp_path / "out").results
    best = [each["label"] for each in row["predictions"][:2]]
    assert [each["target"] for each in row["maps"]] == [" vs ".join(best), "2 vs 0"]
