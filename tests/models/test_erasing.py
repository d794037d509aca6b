"""GAP, ADL and ACoL: masks by hand, what each classifier sees, maps of both as one."""

import warnings

import pytest
import torch
from torch import Tensor

import fovea
from checks import refused
from fovea.heatmaps import look_at
from fovea.models.erasing import ADL, ErasingBranch, zero_to_one
from fovea.pictures import Placement, Shown
from fovea.training.losses.acol import Complementary

# two channels whose mean is 0, 1, 2, 4
FEATURES = torch.tensor([[[[0.0, 2.0], [2.0, 6.0]], [[0.0, 0.0], [2.0, 2.0]]]])
SMALL = {"widths": [8, 8], "side": 32}


def adl(keep: float, threshold: float = 0.5) -> ADL:
    return ADL(keep, threshold).train()


def small(kind: str, classes: int = 3, **options: object) -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load(f"{kind}/smallnet", pretrained=False, classes=classes, options={**SMALL, **options})


def test_the_drop_mask_hides_cells_at_or_above_the_share_of_the_maximum() -> None:
    """The mean is 0 1 / 2 4; half of the maximum is 2, so the lower row goes."""
    expected = FEATURES * torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    assert torch.equal(adl(0.0)(FEATURES), expected)


def test_the_importance_map_is_the_sigmoid_of_the_mean() -> None:
    importance = torch.tensor([[0.0, 1.0], [2.0, 4.0]]).sigmoid()
    assert torch.allclose(adl(1.0)(FEATURES), FEATURES * importance)


def test_each_picture_has_its_own_maximum() -> None:
    both = torch.cat([FEATURES, FEATURES / 100])
    dropped = adl(0.0)(both)
    assert torch.allclose(dropped[0], dropped[1] * 100)


def test_a_map_that_is_negative_everywhere_is_told_once() -> None:
    layer = adl(0.0)
    with pytest.warns(UserWarning, match="nowhere above 0 in 1 of 2 maps"):
        hidden = layer(torch.cat([FEATURES, -1 - FEATURES]))
    assert torch.equal(hidden[1], -1 - FEATURES[0])
    with warnings.catch_warnings(action="error"):
        layer(-1 - FEATURES)


def test_one_of_the_two_is_chosen_a_step_as_often_as_asked() -> None:
    torch.manual_seed(0)
    layer = adl(0.25)
    dropped = [bool((layer(FEATURES)[0, 0, 1] == 0).all()) for _ in range(2000)]
    assert sum(dropped) / 2000 == pytest.approx(0.75, abs=0.03)


def test_in_use_features_are_as_they_are() -> None:
    assert adl(0.25).eval()(FEATURES) is FEATURES


@pytest.mark.parametrize(("keep", "threshold"), [(-0.1, 0.5), (1.1, 0.5), (0.5, 2.0)])
def test_shares_are_shares(keep: float, threshold: float) -> None:
    refused("between 0 and 1", ADL, keep, threshold)


def test_adl_stands_after_the_layers_that_were_named() -> None:
    plain, with_adl = small("gap"), small("gap", adl=["stages.1"])
    kinds = [type(one) for one in with_adl.module.modules()]
    assert kinds.count(ADL) == 1
    assert not any(isinstance(one, ADL) for one in plain.module.modules())
    x = torch.randn(2, 3, 32, 32)
    with_adl.module.train()
    torch.manual_seed(1)
    one = with_adl.module.forward_features(x)
    assert bool((one.abs().sum(1) == 0).flatten(1).any(1).all())  # the most telling cells are gone


def test_a_layer_that_is_not_there_is_named() -> None:
    refused(r"no layer 'stage\.1'.*stages\.1", small, "gap", adl=["stage.1"])


def test_gap_is_the_mean_over_cells_and_one_layer() -> None:
    network = small("gap", convs=1, width=5)
    x = torch.randn(2, 3, 32, 32)
    features = network.module.forward_features(x)
    assert features.shape[1] == 5
    by_hand = features.mean((2, 3)) @ network.module.classifier.weight.T + network.module.classifier.bias
    assert torch.allclose(network(x), by_hand, atol=1e-5)
    seen = fovea.explain(network, x, method=["cam", "l2caf"])
    assert seen["l2caf"].solver == "exact"


def test_cells_at_or_above_the_threshold_are_erased() -> None:
    """Class 1's map 1 2 / 4 5 is 0 .25 / .75 1 from 0 to 1: at 0.6 the lower row goes, and class 0 is not asked."""
    acol = small("acol", threshold=0.6).module
    maps = torch.tensor([[[[9.0, 0.0], [0.0, 0.0]], [[1.0, 2.0], [4.0, 5.0]]]])  # 1,classes,h,w
    left = acol.erased(torch.ones(1, 2, 2, 2), maps, torch.tensor([1]))
    assert left[0, 0].tolist() == [[1, 1], [0, 0]]


def test_a_flat_map_erases_nothing() -> None:
    assert zero_to_one(torch.full((1, 2, 2), 3.0)).tolist() == [[[0, 0], [0, 0]]]


def test_the_loss_is_of_both_classifiers_and_the_mask_has_no_gradient() -> None:
    network = small("acol")
    x, target = torch.randn(4, 3, 32, 32), torch.tensor([0, 1, 2, 0])
    out = network.module(x)
    loss = Complementary()(out, target)
    acol = network.module
    second = acol.second(acol.erased(out.features, out.maps, target))
    entropy = torch.nn.functional.cross_entropy
    assert float(loss) == pytest.approx(float(entropy(out.logits, target) + entropy(second, target)), rel=1e-5)
    loss.backward()
    for branch in (acol.first, acol.second):
        assert bool(branch.last.weight.grad.any())


@pytest.mark.parametrize("shared", [False, True])
def test_features_learn_from_the_second_classifier_where_asked(shared: bool) -> None:
    acol, x, target = (
        small("acol", shared_gradient=shared).module,
        torch.randn(4, 3, 32, 32),
        torch.tensor([0, 1, 2, 0]),
    )
    features = acol.forward_features(x).detach().requires_grad_()
    out = acol.forward_head(features)
    (both,) = torch.autograd.grad(Complementary()(out, target), features, retain_graph=True)
    (first,) = torch.autograd.grad(torch.nn.functional.cross_entropy(out.logits, target), features)
    assert torch.allclose(both, first, atol=1e-8) is not shared


@pytest.mark.parametrize("convs", [0, 2])
@pytest.mark.parametrize("method", ["cam", "l2caf", "gradcam"])
def test_maps_of_both_classifiers_are_fused_by_their_maximum(method: str, convs: int) -> None:
    network = small("acol", convs=convs, width=5)
    acol = network.module
    x = torch.randn(2, 3, 32, 32)
    seen = fovea.explain(network, x, method=method, target=[1, 2])
    assert seen.values.shape[:2] == (2, 2)
    assert "two classifiers" in seen.note
    features = acol.features(x)
    maps = acol.first.maps(features)
    for k, label in enumerate((1, 2)):
        classes = torch.full((2,), label)
        own = [_alone(acol.first, features, method, label)]
        own.append(_alone(acol.second, acol.erased(features, maps, classes), method, label))
        by_hand = torch.maximum(*(zero_to_one(maps.clamp(min=0)) for maps in own))
        assert torch.allclose(seen.values[:, k], by_hand, atol=1e-4)


@pytest.mark.parametrize(("clip", "expected"), [(True, [0, 0, 0.5, 1]), (False, [0, 0.5, 0.75, 1])])
def test_what_speaks_against_a_class_is_clipped_before_maps_are_fused(clip: bool, expected: list[float]) -> None:
    """The first one's CAM of class 1 is -2 0 / 1 2; the second one's is 0 everywhere."""
    network = fovea.load("acol/smallnet", pretrained=False, classes=2, options={"widths": [3], "side": 2})
    network.module.features = torch.nn.Identity()
    for branch, weight in ((network.module.first, 1.0), (network.module.second, 0.0)):
        branch.last.weight.data = torch.tensor([[0.0] * 3, [weight, 0.0, 0.0]]).view(2, 3, 1, 1)
    picture = torch.tensor([[-2.0, 0.0], [1.0, 2.0]]).expand(1, 3, 2, 2)
    seen, _ = look_at(network, picture, [Shown("a", Placement.identity(2, 2), picture[0])], ["cam"], [1], clip=clip)
    assert seen["cam"].values.flatten().tolist() == pytest.approx(expected)


def _alone(branch: ErasingBranch, features: Tensor, method: str, label: int) -> Tensor:
    """One classifier's maps at its own last convolution, as a network of its own."""
    features = branch.more(features)

    class Rest(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.start = torch.nn.Conv2d(features.shape[1], features.shape[1], 1, bias=False)
            torch.nn.init.dirac_(self.start.weight)
            self.last = branch.last

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.last(self.start(x)).mean((2, 3))
            return out

    network = fovea.wrap(Rest(), labels=3, layer="start")
    return fovea.explain(network, features.detach(), method=method, target=[label]).values[:, 0]


def test_without_a_class_there_is_still_one_map() -> None:
    seen = fovea.explain(small("acol"), torch.randn(2, 3, 32, 32), method="l2caf-oblivious")
    assert seen.values.shape[:2] == (2, 1)
    assert bool(seen.values.isfinite().all())


def test_other_targets_are_asked_of_both_classifiers() -> None:
    """A score that is a class's logit gives the class's own map of the first classifier, and the second's likewise."""
    network, x = small("acol"), torch.randn(2, 3, 32, 32)
    label = int(network(x[:1]).argmax())  # what is erased for a score is the answer's
    by_class = fovea.explain(network, x[:1], method="gradcam", target=[label])
    by_score = fovea.explain(network, x[:1], method="gradcam", target=lambda out: out[:, label])
    assert torch.allclose(by_class.values, by_score.values, atol=1e-5)
    assert fovea.explain(network, x, method="gradcam", target="pair").values.shape[:2] == (2, 1)


def test_the_whole_network_iterates_on_what_the_second_sees() -> None:
    network, x = small("acol"), torch.randn(1, 3, 32, 32)
    maps = [fovea.explain(network, x, method=fovea.L2CAF(solver=solver)).values for solver in ("vanilla", "iterative")]
    assert torch.allclose(*maps, atol=1e-4)


def test_acol_is_looked_at_where_its_classifiers_part() -> None:
    with pytest.raises(fovea.BadChoice, match=r"leave 'features\.body\.stages' out"):
        fovea.explain(small("acol"), torch.randn(1, 3, 32, 32), layer="features.body.stages")


def test_adl_within_adl_and_where_it_cannot_be() -> None:
    network = small("gap", adl=["stages", "stages.1"])
    assert sum(isinstance(one, ADL) for one in network.module.modules()) == 2
    assert network(torch.randn(1, 3, 32, 32)).shape == (1, 3)
    with pytest.raises(fovea.BadChoice, match="followed by their graph"):
        fovea.load("gap/torchvision/googlenet", pretrained=False, options={"adl": ["body.inception4e"]})
