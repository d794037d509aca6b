"""Attributions to pixels beside captum, called by hand on the module itself."""

import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
import torch
from captum import attr
from torch import Tensor, nn
from torch.nn import functional as F

import fovea
from checks import left_as_found
from conftest import Pooled, Stacked, Through, seeded
from fovea.basics import DoesNotApply
from fovea.heatmaps import names
from fovea.heatmaps.methods import find

CLASS = 2


def smoothgrad(module: nn.Module, x: Tensor) -> Tensor:
    """The noise of fovea's, which is the same for every picture, by captum's own seed."""
    found = []
    for picture in x:
        torch.manual_seed(0)
        spread = 0.15 * float(picture.max() - picture.min())
        tunnel = attr.NoiseTunnel(attr.Saliency(module))
        found.append(
            tunnel.attribute(picture[None], nt_type="smoothgrad", nt_samples=32, stdevs=spread, target=CLASS, abs=False)
        )
    return torch.cat(found).abs()


BY_HAND: dict[str, Callable[[nn.Module, Tensor], Tensor]] = {
    "integrated-gradients": lambda module, x: attr.IntegratedGradients(module).attribute(x, target=CLASS, n_steps=32),
    "input-x-gradient": lambda module, x: attr.InputXGradient(module).attribute(x, target=CLASS),
    "guided-backprop": lambda module, x: attr.GuidedBackprop(module).attribute(x, target=CLASS).abs(),
    "deeplift": lambda module, x: attr.DeepLift(module).attribute(x, target=CLASS),
    "smoothgrad": smoothgrad,
}


@pytest.mark.filterwarnings("ignore")  # captum's words about the hooks it places
@pytest.mark.parametrize("network", [Pooled, Stacked])
@pytest.mark.parametrize("name", BY_HAND)
def test_is_captum_s(name: str, network: type[nn.Module], batch: Tensor) -> None:
    module = seeded(network)
    seen = fovea.explain(fovea.wrap(module, labels=5), batch, method=name, target=[CLASS])
    wanted = BY_HAND[name](module, batch.clone().requires_grad_()).sum(1).detach()
    assert torch.allclose(seen.values[:, 0], wanted, rtol=1e-3, atol=1e-6)


def reused(x: Tensor, conv: nn.Module, relu: nn.Module, other: nn.Module, head: nn.Module) -> Tensor:
    """One ReLU layer in two places, in place, and one that is a function."""
    return F.relu(head(relu(other(relu(conv(x)))).mean((2, 3))))


def test_rectifiers_that_captum_alone_does_not_find(batch: Tensor) -> None:
    torch.manual_seed(0)
    parts = nn.Conv2d(3, 4, 3, 2), nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, 2), nn.Linear(4, 5)
    module = Through(reused, *parts).eval()
    parts[3].bias.data += 1
    net = fovea.wrap(module, labels=5)
    apart = nn.Sequential(parts[0], nn.ReLU(), parts[2], nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), parts[3])
    plain = fovea.wrap(apart.append(nn.ReLU()).eval(), labels=5)
    with left_as_found(module):
        for name in ("guided-backprop", "deeplift"):
            seen, wanted = (fovea.explain(one, batch, method=name, target=[CLASS]).values for one in (net, plain))
            assert torch.allclose(seen, wanted, rtol=1e-3, atol=1e-6)
            assert float(seen.abs().max()) > 0


@pytest.mark.parametrize("name", ["guided-backprop", "deeplift"])
def test_relu6_is_a_rectifier(name: str, batch: Tensor) -> None:
    """In a network that never reaches 6, it is a ReLU."""
    torch.manual_seed(0)
    start, end = nn.Conv2d(3, 4, 3, 2), nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    seen, wanted = (
        fovea.explain(fovea.wrap(nn.Sequential(start, act, end).eval(), labels=5), batch, method=name).values
        for act in (nn.ReLU6(inplace=True), nn.ReLU())
    )
    assert torch.allclose(seen, wanted, rtol=1e-3, atol=1e-6)


def test_all_pixels_make_up_the_score(pooled: nn.Module, batch: Tensor) -> None:
    maps = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=["integrated-gradients", "deeplift"], target=[1])
    with torch.no_grad():
        wanted = pooled(batch)[:, 1] - pooled(batch * 0)[:, 1]
    for seen in maps.values():
        assert torch.allclose(seen.values.sum((1, 2, 3)), wanted, rtol=2e-2, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "words"),
    [("guided-backprop", "the network has none: use smoothgrad"), ("deeplift", "has none|do not make")],
)
def test_refused_without_rectifiers(name: str, words: str, batch: Tensor) -> None:
    module = nn.Sequential(nn.Conv2d(3, 4, 3, 2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    with pytest.raises(DoesNotApply, match=words):
        fovea.explain(fovea.wrap(module.eval(), labels=5), batch, method=name)


def test_without_captum_it_says_what_to_install(
    pooled: nn.Module, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    net = fovea.wrap(pooled, labels=5)
    with pytest.raises(DoesNotApply, match=r"pip install 'fovea\[attributions\]'"):
        fovea.explain(net, batch, method="integrated-gradients")
    maps = fovea.explain(net, batch[:1], method="all")
    assert maps.refused.keys() >= BY_HAND.keys()
    assert "gradcam" in maps


@pytest.mark.parametrize("name", [name for name in names() if find(name).on == "pixels"])
def test_nothing_is_left_behind_by_an_error(name: str, pooled: nn.Module, batch: Tensor) -> None:
    calls = []

    def late(out: Tensor) -> Tensor:
        calls.append(out)
        if len(calls) > 1:
            raise ZeroDivisionError
        return out[:, 0]

    with left_as_found(pooled):
        with suppress(ZeroDivisionError):
            fovea.explain(fovea.wrap(pooled, labels=5), batch, method=name, target=late)
        assert len(calls) > 1
        assert not any(vars(layer).keys() & {"input", "output", "input_ref"} for layer in pooled.modules())
