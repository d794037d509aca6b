"""The closed forms: worked by hand, never beaten by an iteration, and refused where they do not hold."""

import dataclasses

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import raises
from conftest import Pooled, Through
from fovea.heatmaps import by_power, different, on_the_sphere, rounding

ITERATIVE = fovea.Descent(tolerance=1e-9, most=4000)


class Identity(nn.Module):
    """One channel, no trunk: what the head does is all there is."""

    def __init__(self, head: nn.Module) -> None:
        super().__init__()
        self.trunk, self.head = nn.Conv2d(1, 1, 1, bias=False), head
        nn.init.ones_(self.trunk.weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.trunk(x))


def two_classes(weights: list[list[float]]) -> nn.Module:
    """Logits are weights times the mean of the map."""
    linear = nn.Linear(1, 2, bias=False)
    linear.weight.data = torch.tensor(weights)
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), linear)


def test_class_specific_by_hand() -> None:
    # A = [[3, 4], [0, 0]], logits (2m, -m): L = -2m - m on "sum" = -3/4 (3 f1 + 4 f2): f = (3, 4, 0, 0) / 5
    net = fovea.wrap(Identity(two_classes([[2.0], [-1.0]])), labels=2, layer="trunk")
    seen = fovea.explain(net, torch.tensor([[[[3.0, 4.0], [0.0, 0.0]]]]), method=fovea.L2CAF(others="sum"), target=0)
    assert seen.solver == "exact"
    assert seen.values.flatten().tolist() == pytest.approx([0.6, 0.8, 0, 0])
    assert seen.loss.item() == pytest.approx(-3.75)


def test_oblivious_by_hand() -> None:
    # M = 3 I for two cells: L = 9 (f1 - 1)^2 + 9 (f2 - 1)^2 on the unit circle has its minimum on the diagonal
    f, loss, unique = on_the_sphere(torch.eye(2, dtype=torch.float64).unsqueeze(0) * 3)
    assert f[0].tolist() == pytest.approx([0.5**0.5, 0.5**0.5])
    assert loss.item() == pytest.approx(9 * 2 * (1 - 0.5**0.5) ** 2)
    assert unique


def test_oblivious_with_length_to_spare_says_that_it_is_not_unique() -> None:
    matrix = torch.tensor([[[1.0, -1.0, 0.0, 0.0]]])  # M 1 = 0: f = 0 would do, so all the length is to spare
    f, loss, unique = on_the_sphere(matrix)
    assert not unique
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert f.norm().item() == pytest.approx(1)
    assert (matrix[0].double() @ f[0]).item() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("shape", [(1, 40, 9), (3, 5, 9), (2, 1, 16), (4, 9, 9), (2, 7, 1)])
def test_no_random_filter_beats_the_sphere(shape: tuple[int, int, int]) -> None:
    generator = torch.Generator().manual_seed(3)
    matrix = torch.randn(shape, generator=generator, dtype=torch.float64)
    f, loss, _ = on_the_sphere(matrix)
    assert torch.allclose(f.norm(dim=1), torch.ones(len(f), dtype=torch.float64))
    assert torch.allclose(((matrix @ (f - 1).unsqueeze(2)).squeeze(2) ** 2).sum(1), loss, atol=1e-8)
    others = torch.randn(2000, *f.shape, generator=generator, dtype=torch.float64)
    others = others / others.norm(dim=2, keepdim=True)
    near = f + 0.05 * others
    for tried in (others, near / near.norm(dim=2, keepdim=True)):
        reached = torch.einsum("ndp,tnp->tnd", matrix, tried - 1).square().sum(2)
        assert bool((reached >= loss - 1e-9).all())


@pytest.mark.parametrize("shape", [(1, 40, 9), (3, 5, 9), (2, 1, 16), (4, 9, 9), (3, 100, 49)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_few_products_reach_the_sphere_or_say_that_they_did_not(
    shape: tuple[int, int, int], dtype: torch.dtype
) -> None:
    matrix = torch.randn(shape, generator=torch.Generator().manual_seed(3), dtype=dtype)
    for given in (matrix, matrix.abs()):
        f, loss, reached = by_power(given)
        wanted, least, _ = on_the_sphere(given)
        assert torch.allclose(f.norm(dim=1), torch.ones_like(loss), atol=1e-6)
        assert torch.allclose(f[reached].double(), wanted[reached], atol=100 * torch.finfo(dtype).eps)
        assert torch.allclose(loss[reached].double(), least[reached], rtol=1e3 * torch.finfo(dtype).eps)
        assert bool(reached.all()) or given is matrix or dtype == torch.float64
    spare = torch.tensor([[[1.0, -1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0, 0.0]]], dtype=dtype)
    assert not by_power(spare)[2].any()  # other filters reach their least loss, too


@pytest.mark.parametrize("method", [fovea.L2CAF(), fovea.L2CAF(others="sum"), fovea.L2CAF(oblivious=True)])
def test_exact_is_what_iterating_finds_and_never_worse(method: fovea.L2CAF, pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    exact = fovea.explain(net, batch, method=method)
    slow = fovea.explain(net, batch, method=dataclasses.replace(method, solver="iterative", descent=ITERATIVE))
    assert (exact.solver, slow.solver) == ("exact", "iterative")
    alike = torch.cosine_similarity(exact.values.flatten(1), slow.values.flatten(1))
    assert bool((alike > 0.9999).all())
    assert bool((exact.loss <= slow.loss + 1e-5 * exact.loss.abs()).all())


@pytest.mark.parametrize("start", range(4))
def test_iterating_from_random_starts_never_beats_the_closed_form(start: int, pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    random = fovea.Descent(start="uniform", seed=start, tolerance=1e-9, rate=0.5)
    for method in (fovea.L2CAF(), fovea.L2CAF(oblivious=True)):
        exact = fovea.explain(net, batch, method=method)
        slow = fovea.explain(net, batch, method=dataclasses.replace(method, solver="iterative", descent=random))
        assert bool((exact.loss <= slow.loss + 1e-5 * exact.loss.abs()).all())


def test_map_is_cam_against_the_others(pooled: Pooled, batch: Tensor) -> None:
    """The centered form's map is |CAM_c - mean of the other CAMs| up to scale."""
    net = fovea.wrap(pooled, labels=5)
    seen = fovea.explain(net, batch, target=[2])
    cams = fovea.explain(net, batch, method="cam", target=[0, 1, 2, 3, 4]).values  # N,5,6,6
    wanted = (cams[:, 2] - cams[:, [0, 1, 3, 4]].mean(1)).abs()
    assert torch.allclose(seen.values[:, 0], wanted / wanted.flatten(1).norm(dim=1).view(-1, 1, 1), atol=1e-5)


def test_relu_after_the_cut_is_exact_too(batch: Tensor) -> None:
    """Between the cut and the pooling, as in DenseNet."""
    torch.manual_seed(0)
    kinked = Through(lambda x, conv, fc: fc(conv(x).relu().mean((2, 3))), nn.Conv2d(3, 6, 3, 4, 1), nn.Linear(6, 5))
    net = fovea.wrap(kinked.eval(), labels=5, layer="layers.0")
    exact = fovea.explain(net, batch, target="top2")
    assert exact.solver == "exact"
    for seed in range(3):
        how = fovea.Descent(start="uniform" if seed else "tangent", seed=seed, tolerance=1e-7, most=600)
        slow = fovea.explain(net, batch, method=fovea.L2CAF(solver="iterative", descent=how), target="top2")
        assert bool((exact.loss <= slow.loss + 1e-4 * slow.loss.abs()).all())


def test_relu_with_nothing_to_gain_keeps_one_cell() -> None:
    # every cell adds to the loss: the least bad filter on the sphere is the single cell that adds least
    head = nn.Sequential(nn.ReLU(), two_classes([[-1.0], [0.0]]))
    net = fovea.wrap(Identity(head), labels=2, layer="trunk")
    seen = fovea.explain(net, torch.tensor([[[[3.0, 1.0], [2.0, 4.0]]]]), method=fovea.L2CAF(signed=True), target=0)
    assert seen.solver == "exact"
    # f = -1 at any cell passes nothing through the ReLU, which is better still
    assert seen.loss.item() == pytest.approx(0)
    assert seen.values.min().item() == pytest.approx(-1)


def test_stacked_layers_are_not_taken_for_affine(stacked: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(stacked, labels=5)
    assert fovea.explain(net, batch).solver == "iterative"
    assert fovea.explain(net, batch, method=fovea.L2CAF(oblivious=True)).solver == "iterative"
    raises(fovea.BadNetwork, "no exact solution", fovea.explain, net, batch, method=fovea.L2CAF(solver="exact"))


@pytest.mark.parametrize("seed", range(8))
def test_what_is_called_exact_has_the_loss_it_says(seed: int, batch: Tensor) -> None:
    """Pooling, a linear layer, a ReLU, a linear layer: straight along some directions only."""
    torch.manual_seed(seed)
    trunk, a, b = nn.Sequential(nn.Conv2d(3, 4, 3, 4), nn.ReLU()), nn.Linear(4, 8), nn.Linear(8, 3)
    bent = Through(lambda x, trunk, a, b: b(torch.relu(a(trunk(x).mean((2, 3))))), trunk, a, b)
    net = fovea.wrap(bent.eval(), labels=3, layer="layers.0")
    seen = fovea.explain(net, batch, method=fovea.L2CAF(signed=True), target=[0])
    with torch.no_grad():
        out = b(torch.relu(a((trunk(batch) * seen.values).mean((2, 3)))))
    reached = -out[:, 0] + out[:, 1:].mean(1)
    assert torch.allclose(reached, seen.loss[:, 0], atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_proof_in_half_precision_still_proves_something(dtype: torch.dtype) -> None:
    assert float(rounding(torch.ones(1, dtype=dtype), torch.ones(1, dtype=dtype))) < 0.07


@pytest.mark.skipif(not torch.cuda.is_available(), reason="half precision needs a GPU")
def test_stacked_layers_in_half_precision_are_not_exact(stacked: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(stacked.to("cuda", torch.bfloat16), labels=5)
    assert fovea.explain(net, batch).solver == "iterative"
    raises(fovea.BadNetwork, "cam needs a head", fovea.explain, net, batch, method="cam")


def test_batch_norm_after_the_cut_in_eval_mode_is_affine(batch: Tensor) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4, 3, 4), nn.BatchNorm2d(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    module[1].running_mean.uniform_()
    net = fovea.wrap(module, labels=3, layer="0")
    assert fovea.explain(net, batch).solver == "exact"
    seen = fovea.explain(net, batch, method=fovea.L2CAF(oblivious=True))
    assert seen.solver == "exact"


def test_unpooled_affine_head_is_solved_by_columns(batch: Tensor) -> None:
    """One linear layer on the flattened map is affine, though no cell alone can be put through it."""
    torch.manual_seed(0)
    net = fovea.wrap(nn.Sequential(nn.Conv2d(3, 4, 3, 4), nn.Flatten(), nn.Linear(4 * 36, 7)).eval())
    exact = fovea.explain(net, batch)
    slow = fovea.explain(net, batch, method=fovea.L2CAF(solver="iterative", descent=ITERATIVE))
    assert exact.solver == "exact"
    assert torch.allclose(exact.values, slow.values, atol=5e-3)


def test_bias_cancels_in_eq_1(pooled: Pooled, batch: Tensor) -> None:
    net = fovea.wrap(pooled)
    before = fovea.explain(net, batch).values
    pooled.fc.bias.data += 3
    assert torch.allclose(fovea.explain(net, batch).values, before, atol=1e-4)


def test_one_cell_gives_one() -> None:
    torch.manual_seed(0)
    f, loss, _ = on_the_sphere(torch.randn(2, 4, 1))
    assert f.abs().flatten().tolist() == pytest.approx([1, 1])
    assert loss.tolist() == pytest.approx([0, 0], abs=1e-9)


def test_eq_1_is_a_sum_of_squares() -> None:
    loss = different(torch.tensor([[1.0, 2.0]]))
    assert loss(torch.tensor([[0.0, 4.0]])).item() == pytest.approx(5)
