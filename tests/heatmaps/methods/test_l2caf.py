import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from conftest import Pooled
from fovea.basics import DoesNotApply, Listener, listening
from fovea.heatmaps import CONSTRAINTS, Look, different, gaussian, iterative, names
from fovea.networks import as_found, cut


def through_the_whole_network(module: Pooled, x: Tensor, f: Tensor) -> Tensor:
    """The vanilla filtered output, by a hook on the user's own module and nothing of fovea."""
    handle = module.relu.register_forward_hook(lambda _, __, out: out * f.view(-1, 1, 6, 6))
    try:
        return module(x)
    finally:
        handle.remove()


def test_fast_and_vanilla_have_the_same_loss_and_gradient(pooled: Pooled, batch: Tensor) -> None:
    """Eq. 3 is Eq. 1: filtering the head alone is filtering inside the whole network."""
    net = fovea.wrap(pooled)
    f = torch.randn(3, 36, generator=torch.Generator().manual_seed(2))
    with as_found(net):
        look = Look(cut(net, batch).open(batch))
        loss = different(look.output.detach())
        results = []
        for filtered in (
            look.filtered,
            lambda g: look.filtered(g, whole=True),
            lambda g: through_the_whole_network(pooled, batch, g),
        ):
            own = f.clone().requires_grad_()
            value = loss(filtered(own)).sum()
            results.append((value.detach(), torch.autograd.grad(value, own)[0]))
    for value, gradient in results[1:]:
        assert torch.allclose(value, results[0][0], rtol=1e-5)
        assert torch.allclose(gradient, results[0][1], atol=1e-5)


def test_vanilla_reaches_the_exact_loss(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    exact = fovea.explain(net, batch)
    vanilla = fovea.explain(net, batch, method=fovea.L2CAF(solver="vanilla", descent=fovea.Descent.paper()))
    assert vanilla.solver == "vanilla"
    assert vanilla.iterations > 50
    assert bool((exact.loss <= vanilla.loss + 1e-6).all())
    assert torch.allclose(exact.loss, vanilla.loss, rtol=1e-2)


def test_stopping_does_not_depend_on_the_scale_of_the_output(stacked: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(stacked, embedding=True)
    before = fovea.explain(net, batch)
    last = stacked.classifier[-1]
    last.weight.data *= 1000
    last.bias.data *= 1000
    after = fovea.explain(net, batch)
    assert before.iterations == after.iterations < 1000
    assert torch.allclose(before.values, after.values, atol=1e-3)


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_constraints_hold(name: str, pooled: nn.Module, batch: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=fovea.L2CAF(constraint=name, oblivious=True))
    f = seen.values.flatten(1)
    assert seen.solver == ("exact" if name == "l2" else "iterative")
    if name == "l2":
        assert torch.allclose(f.norm(dim=1), torch.ones(3), atol=1e-5)
    else:
        assert torch.allclose(f.sum(1), torch.ones(3), atol=1e-5)


def test_gaussian_by_hand() -> None:
    f = gaussian(torch.tensor([[0.0, 1.0]]), (2, 3)).view(2, 3)
    whole = 1 + 3 * 0.60653 + 2 * 0.36788  # exp(-d² / 2) at the mean, beside it, and across
    assert f[0, 1].item() == pytest.approx(1 / whole, abs=1e-4)
    assert f[0, 0].item() == pytest.approx(0.60653 / whole, abs=1e-4)
    assert f[1, 2].item() == pytest.approx(0.36788 / whole, abs=1e-4)


def test_signed_and_absolute(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    signed = fovea.explain(net, batch, method=fovea.L2CAF(signed=True))
    absolute = fovea.explain(net, batch, method=fovea.L2CAF(signed=False))
    assert float(signed.values.min()) < 0 < float(signed.values.max())
    assert torch.allclose(signed.values.abs(), absolute.values)


@pytest.mark.parametrize("name", ["logits", "embedding", "segmentation", "reconstruction", "volume"])
def test_any_output_can_be_explained(name: str) -> None:
    """Eq. 1 asks nothing of the output but that it is a tensor."""
    torch.manual_seed(0)
    down = nn.Sequential(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 8, 3, 2, 1), nn.ReLU())
    up = nn.Sequential(nn.ConvTranspose2d(8, 4, 2, 2), nn.ReLU(), nn.ConvTranspose2d(4, 3, 2, 2))
    module = {
        "logits": nn.Sequential(down, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)),
        "embedding": nn.Sequential(down, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 16)),
        "segmentation": nn.Sequential(down, nn.Conv2d(8, 21, 1), nn.Upsample(scale_factor=4, mode="bilinear")),
        "reconstruction": nn.Sequential(down, up),
        "volume": nn.Sequential(nn.Conv3d(1, 4, 3, 2, 1), nn.ReLU(), nn.Conv3d(4, 2, 1), nn.Upsample(scale_factor=2)),
    }[name].eval()
    x = torch.randn(2, 1, 8, 8, 8) if name == "volume" else torch.randn(2, 3, 16, 16)
    seen = fovea.explain(fovea.wrap(module, embedding=name in ("logits", "embedding")), x)
    assert seen.targets == (("output",), ("output",))
    assert seen.grid == ((4, 4, 4) if name == "volume" else (4, 4))
    assert seen.solver == ("iterative" if name == "reconstruction" else "exact")
    assert seen.values.flatten(1).norm(dim=1).tolist() == pytest.approx([1, 1], abs=1e-4)
    assert bool((seen.loss > 0).all())


def test_unknown_options_are_refused() -> None:
    refused("did you mean 'softmax'", fovea.L2CAF, constraint="sotfmax")


def test_differentiable_maps_reach_the_weights(pooled: Pooled, batch: Tensor) -> None:
    net, refused = fovea.wrap(pooled, labels=5), set[str]()
    for method in names():
        pooled.zero_grad()
        try:
            seen = fovea.explain(net, batch, method=method, differentiable=True)
        except DoesNotApply:
            refused.add(method)
            continue
        plain = fovea.explain(net, batch, method=method)
        assert not plain.values.requires_grad
        assert torch.allclose(plain.values, seen.values, atol=1e-5)
        seen.values.square().mul(torch.arange(36.0).view(6, 6)).sum().backward()
        gradient = pooled.trunk[0].weight.grad
        assert float(gradient.abs().sum()) > 0
    assert not [name for name in refused if "cam" in name or "caf" in name]


@pytest.mark.parametrize("method", [fovea.L2CAF(), fovea.L2CAF(oblivious=True), fovea.GradCAM()])
def test_gradient_of_a_differentiable_map_is_right(method: fovea.L2CAF, pooled: Pooled, batch: Tensor) -> None:
    """Against a finite difference, in double precision."""
    net, x, places = fovea.wrap(pooled.double(), labels=5), batch[:1].double(), torch.arange(36.0).view(6, 6)
    weight = pooled.trunk[2].weight

    def value() -> Tensor:
        return (fovea.explain(net, x, method=method, target=[1], differentiable=True).values[0, 0] * places).sum()

    (gradient,) = torch.autograd.grad(value(), weight)
    place, step, flat = int(gradient.abs().argmax()), 1e-6, weight.data.view(-1)
    flat[place] += step
    above = value().item()
    flat[place] -= 2 * step
    below = value().item()
    assert gradient.flatten()[place].item() == pytest.approx((above - below) / (2 * step), rel=1e-3)


def test_a_long_search_is_announced(pooled: Pooled) -> None:
    """The second map of 72 x 72 pixels has 36 x 36 cells, and what follows it is not affine in a filter."""
    net, pixels = fovea.wrap(pooled, labels=5), torch.randn(1, 3, 72, 72, generator=torch.Generator().manual_seed(0))
    brief = fovea.L2CAF(descent=fovea.Descent(most=3))
    with pytest.warns(UserWarning, match=r"36 x 36 cells and searches for one: up to 3 times .* or use gradcam"):
        assert fovea.explain(net, pixels, method=brief, layer="trunk.0").solver == "iterative"


def test_a_search_that_takes_long_is_announced_once_with_its_time(
    pooled: Pooled, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which every look takes a second: 30 iterations are about 30 s."""
    ticks = iter(map(float, range(10_000)))
    monkeypatch.setattr(iterative, "perf_counter", lambda: next(ticks) * 10)
    net, pixels = fovea.wrap(pooled, labels=5), torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
    lines, states = list[str](), list[str]()
    with listening(Listener(lines.append, states.append)):
        found = fovea.explain(net, pixels, method=fovea.L2CAF(descent=fovea.Descent(most=30)), layer="trunk.0", batch=1)
    assert found.solver == "iterative"
    assert lines == [
        "l2caf has no exact solution here and searches for one: up to 30 passes through the layers after the cut, at "
        "most about 30 s for each batch of 1; gradcam takes one (--method gradcam)"
    ]
    assert states[:2] == ["l2caf 1 of 30", "l2caf 2 of 30"]
