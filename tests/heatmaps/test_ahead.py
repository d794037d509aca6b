"""On a GPU nothing is waited for but the one reading at the end. Here the CPU is taken for a device that is far."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import fovea
from conftest import Pooled
from fovea.heatmaps import explain as explaining
from fovea.heatmaps import look as looking
from fovea.heatmaps import looking as at_batches
from fovea.heatmaps.look import Look
from fovea.networks import reader

METHODS = ["cam", "gradcam", "gradcam-abs", "gradcam++", "hirescam", "layercam", "xgradcam", "eigencam"]
METHODS += ["l2caf", "l2caf-sum", "l2caf-signed", "l2caf-oblivious"]
READS: set[Any] = {Tensor.tolist, Tensor.item, Tensor.numpy, Tensor.cpu, Tensor.nonzero, torch.nonzero, torch.equal}
READS |= {Tensor.__bool__, Tensor.__float__, Tensor.__int__, Tensor.__index__, Tensor.unique, Tensor.masked_select}


class Far(TorchFunctionMode):
    """Notes every reading of numbers that are not on the host."""

    def __init__(self) -> None:
        super().__init__()
        self.readings: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        masked = func is Tensor.__getitem__ and isinstance(args[1], Tensor) and args[1].dtype == torch.bool
        if func in READS or masked:
            self.readings.append(func.__name__)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def far(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """fovea.explain as on a device that is far, and how often, and by what, it was read."""

    def call(net: fovea.Network, batch: Tensor, **options: Any) -> tuple[Any, list[str]]:
        with monkeypatch.context() as patch:
            for module in (reader, at_batches, looking):
                patch.setattr(module, "is_far", lambda _: True)
            with Far() as mode:
                found = fovea.explain(net, batch, **options)
        return found, mode.readings

    return call


@pytest.mark.parametrize("method", METHODS)
def test_one_reading(method: str, pooled: Pooled, batch: Tensor, far: Callable[..., Any]) -> None:
    net = fovea.wrap(pooled.eval(), labels=5)
    near = fovea.explain(net, batch, method=method, target="top2")
    found, readings = far(net, batch, method=method, target="top2")
    assert readings == ["cpu", "numpy"]
    assert torch.allclose(found.values, near.values, atol=1e-6)
    assert (found.targets, found.classes, found.diagnosis) == (near.targets, near.classes, near.diagnosis)
    assert [picture.predictions for picture in found.shown] == [picture.predictions for picture in near.shown]
    assert found.solver == near.solver


@pytest.mark.parametrize("oblivious", [False, True])
def test_a_formula_that_does_not_hold_gives_what_waiting_gives(
    oblivious: bool, stacked: nn.Module, batch: Tensor, far: Callable[..., Any]
) -> None:
    net = fovea.wrap(stacked, labels=5)
    with pytest.raises(fovea.FoveaError, match="pooling and one linear layer"):
        far(net, batch, method="cam")
    method = fovea.L2CAF(oblivious=oblivious, descent=fovea.Descent(most=20))
    options = {"method": [method, "gradcam"], "target": "top2"}
    near, found = fovea.explain(net, batch, **options), far(net, batch, **options)[0]
    again, _ = far(net, batch, **options)  # by now it is known
    assert near[method.name].solver == found[method.name].solver == again[method.name].solver != "exact"
    assert list(found) == [method.name, "gradcam"]
    for name in near:
        assert torch.allclose(found[name].values, near[name].values, atol=1e-6)
        assert torch.allclose(again[name].values, near[name].values, atol=1e-6)


@pytest.mark.parametrize("method", ["cam", "l2caf", "l2caf-oblivious", "eigencam"])
@pytest.mark.parametrize("lost", [[1], [0, 1, 2]])
def test_pictures_that_are_no_numbers_are_as_when_waiting(
    method: str, lost: list[int], pooled: Pooled, batch: Tensor, far: Callable[..., Any]
) -> None:
    net, spoiled = fovea.wrap(pooled, labels=5), batch.clone()
    spoiled[lost] = torch.nan
    near, (found, _) = fovea.explain(net, spoiled, method=method), far(net, spoiled, method=method)
    assert torch.equal(found.values, near.values)
    assert found.diagnosis == near.diagnosis


def test_a_method_that_breaks_says_so_once(pooled: Pooled, batch: Tensor, far: Callable[..., Any]) -> None:
    def broken(look: Look, aim: object) -> Tensor:
        raise ValueError("not today")

    with pytest.raises(ValueError, match="not today"):
        far(fovea.wrap(pooled, labels=5), batch, method=broken)


def test_half_a_batch_where_memory_does_not_suffice(
    pooled: Pooled, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, sizes, whole = fovea.wrap(pooled, labels=5), list[int](), explaining.look_at
    near = fovea.explain(net, batch, target=torch.tensor([4, 0, 2]))

    def scarce(network: Any, tensors: Tensor, *rest: Any) -> Any:
        sizes.append(len(tensors))
        if len(tensors) > 1:
            raise torch.OutOfMemoryError("no room")
        return whole(network, tensors, *rest)

    monkeypatch.setattr(explaining, "look_at", scarce)
    found = fovea.explain(net, batch, target=torch.tensor([4, 0, 2]))
    assert sizes == [3, 1, 2, 1, 1]
    assert torch.allclose(found.values, near.values, atol=1e-6)
    assert (found.targets, [shown.name for shown in found.shown]) == (
        near.targets,
        [shown.name for shown in near.shown],
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_looks_where_single_does(dtype: torch.dtype, pooled: Pooled, batch: Tensor) -> None:
    full = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=METHODS, target=[0, 3])
    half = fovea.explain(fovea.wrap(copy.deepcopy(pooled).to(dtype), labels=5), batch, method=METHODS, target=[0, 3])
    for name in METHODS:
        assert full[name].solver == half[name].solver
        rows, wanted = half[name].values.float().flatten(2), full[name].values.flatten(2)
        shown = wanted.amax(2) > 1e-2 * wanted.abs().amax()  # not what is blank but for rounding
        assert bool((torch.cosine_similarity(rows, wanted, dim=2)[shown] > 0.99).all()), name


def test_maps_come_to_the_host_together(pooled: Pooled, batch: Tensor, far: Callable[..., Any]) -> None:
    found, _ = far(fovea.wrap(pooled, labels=5), batch, target="top2")
    with Far() as mode:
        found.boxes, [heatmap.boxes for heatmap in found], [heatmap.map(1) for heatmap in found], found[2].to_dict()
    assert mode.readings.count("cpu") == 2  # the values, and the losses
