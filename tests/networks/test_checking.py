"""Strange modules work, or are refused in words; what only spreads or compiles a module changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import raises
from conftest import Pooled, Through, seeded
from fovea.networks import DoesNotRun

pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated")  # torch.jit and quantization, by torch


class Functional(nn.Module):
    """A ReLU that is no layer: only the traced graph has the map after it."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 6, 3, 2, 1))
        self.fc = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(nn.functional.relu(self.trunk(x)).mean((2, 3)))


def functional() -> nn.Module:
    return seeded(Functional)


def inside_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return functional()


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LazyLinear(5))


def partly_on_meta() -> nn.Module:
    module = functional()
    module.get_submodule("fc").to("meta")
    return module


def partly_half() -> nn.Module:
    module = functional()
    module.get_submodule("fc").half()
    return module


def quantized() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(functional(), {nn.Linear})


def scripted(make: Callable[..., Any] = torch.jit.script, *given: Any) -> nn.Module:
    module: nn.Module = make(functional(), *given)
    return module


def exported() -> nn.Module:
    return torch.export.export(functional(), (torch.randn(2, 3, 24, 24),)).module()


EXAMPLE = torch.zeros(1, 3, 24, 24)
REFUSED: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "script": (lambda: scripted(), "compiled by torch.jit.*: give the module that it was made of"),
    "trace": (lambda: scripted(torch.jit.trace, EXAMPLE), "compiled by torch.jit"),
    "frozen": (lambda: torch.jit.freeze(scripted()), "compiled by torch.jit"),
    "script inside": (lambda: nn.Sequential(scripted()), "layer '0' .* compiled by torch.jit"),
    "quantized": (quantized, "layer 'fc' .* quantized"),
    "exported": (exported, "does not run on an input of 3 x 24 x 24: Guard failed.*: export it with a dynamic batch"),
    "meta": (lambda: functional().to("meta"), "trunk.0.weight is on the meta device, without values"),
    "partly meta": (partly_on_meta, "fc.weight is on the meta device"),
    "inference": (inside_inference_mode, "trunk.0.weight was made inside torch.inference_mode.*deepcopy"),
    "lazy": (lazy, "0.weight has no size yet: run the module once"),
    "partly half": (partly_half, "does not run on an input of 3 x 24 x 24: .*dtype"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_refused_in_words(kind: str, batch: Tensor) -> None:
    make, words = REFUSED[kind]
    module = make()
    for verb in (fovea.explain, fovea.localize):
        raises(fovea.BadNetwork, words, verb, module, batch)
    raises(fovea.BadNetwork, words, lambda: fovea.explain(fovea.wrap(module, labels=5), batch, layer="trunk"))


def test_what_cannot_be_cut_still_answers(batch: Tensor) -> None:
    with torch.no_grad():
        wanted = functional()(batch)
        assert torch.allclose(fovea.wrap(scripted())(batch), wanted, atol=1e-6)
        assert fovea.wrap(torch.jit.freeze(scripted()))(batch).shape == wanted.shape
        assert fovea.wrap(quantized())(batch).shape == wanted.shape


def test_a_program_is_asked_for_its_module(batch: Tensor) -> None:
    raises(fovea.BadChoice, r"takes program.module\(\)", fovea.wrap, torch.export.export(functional(), (batch,)))


def test_exported_for_any_batch_works(batch: Tensor) -> None:
    free = {"x": {0: torch.export.Dim("n")}}
    module = torch.export.export(functional(), (batch,), dynamic_shapes=free).module()
    wanted = fovea.explain(fovea.wrap(functional(), labels=5), batch, method="gradcam")
    found = fovea.explain(fovea.wrap(module, labels=5), batch, method="gradcam")
    assert torch.allclose(found.values, wanted.values, atol=1e-6)


AROUND: dict[str, Callable[[nn.Module], Any]] = {
    "parallel": nn.DataParallel,
    "compiled": torch.compile,
    "both": lambda module: nn.DataParallel(torch.compile(module)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("kind", AROUND)
def test_the_cut_is_that_of_the_module_inside(kind: str, batch: Tensor) -> None:
    wanted = fovea.explain(functional(), batch)
    found = fovea.explain(AROUND[kind](functional()), batch)
    assert (found.layer, found.solver) == (wanted.layer, wanted.solver) == ("relu after trunk", "exact")
    assert torch.equal(found.values, wanted.values)
    assert fovea.wrap(AROUND[kind](functional())).geometry("trunk").grid == (56, 56)


def test_a_compiled_layer_runs_as_it_was_written(batch: Tensor) -> None:
    inside = nn.Sequential(torch.compile(functional()))  # type: ignore[arg-type]
    compiled = functional()
    compiled.compile()
    wanted = fovea.explain(functional(), batch, method="gradcam", layer="trunk")
    for module, layer in ((inside, "0._orig_mod.trunk"), (compiled, "trunk")):
        assert torch.equal(fovea.explain(module, batch, method="gradcam", layer=layer).values, wanted.values)


def test_a_compiled_layer_is_followed(batch: Tensor) -> None:
    wanted, module, other = fovea.explain(functional(), batch), functional(), functional()
    module.trunk = torch.compile(module.trunk)
    other.trunk.compile()
    for network, layer in ((module, "relu after trunk._orig_mod"), (other, "relu after trunk")):
        found = fovea.explain(network, batch)
        assert (found.layer, torch.equal(found.values, wanted.values)) == (layer, True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.half, torch.double])
def test_any_precision(dtype: torch.dtype, batch: Tensor) -> None:
    net = fovea.wrap(functional().to(dtype), labels=5)
    wanted = fovea.explain(fovea.wrap(functional(), labels=5), batch)
    assert torch.allclose(fovea.explain(net, batch).values.float(), wanted.values, atol=0.05)
    assert net(batch).dtype == dtype


def patched(module: nn.Module, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer becomes twice as large, and the trunk is looked at after another layer."""

    def forward(self: Functional, x: Tensor) -> Tensor:
        return 2 * self.fc(torch.sigmoid(self.trunk(x)).mean((2, 3)))

    if change == "forward":
        module.forward = lambda x: forward(module, x)  # type: ignore[arg-type, method-assign]
    elif change == "class":
        monkeypatch.setattr(Functional, "forward", forward)
    elif change == "layer":
        module.trunk = nn.Sequential(nn.Conv2d(3, 6, 5, 4, 2), nn.Sigmoid())
    elif change == "hook":
        module.get_submodule("trunk").register_forward_hook(lambda _, __, out: out.roll(1, 2))
    else:
        module.register_forward_hook(lambda _, __, out: -out)


@pytest.mark.parametrize("change", ["forward", "class", "layer", "hook", "last hook"])
@pytest.mark.parametrize("make", [functional, lambda: seeded(Through, lambda x, inner: inner(x), functional())])
def test_a_changed_network_is_noticed(
    change: str, make: Callable[[], nn.Module], monkeypatch: pytest.MonkeyPatch, batch: Tensor
) -> None:
    module = make()
    net = fovea.wrap(module, labels=5)
    before = fovea.explain(net, batch, method="gradcam", target=1)
    patched(module.layers[0] if isinstance(module, Through) else module, change, monkeypatch)
    after = fovea.explain(net, batch, method="gradcam", target=1)
    anew = fovea.explain(fovea.wrap(module, labels=5), batch, method="gradcam", target=1)
    assert not torch.equal(after.values, before.values)
    assert torch.equal(after.values, anew.values)
    assert after.layer == anew.layer


def test_an_attribute_that_the_forward_reads_is_noticed(batch: Tensor) -> None:
    module = seeded(Pooled)
    through = Through(lambda x, inner: inner(x) * through.sign, module)
    through.sign = 1.0  # type: ignore[assignment]
    net = fovea.wrap(through.eval(), labels=5)
    before = fovea.explain(net, batch, method="cam", target=1).values
    through.sign = -1.0  # type: ignore[assignment]
    assert not torch.equal(fovea.explain(net, batch, method="cam", target=1).values, before)


def test_what_a_network_leaves_on_itself_makes_no_new_cut(batch: Tensor) -> None:
    class Leaving(Pooled):
        def forward(self, x: Tensor) -> Tensor:
            self.last = x
            self.calls = getattr(self, "calls", 0) + 1
            return super().forward(x)

    net = fovea.wrap(seeded(Leaving), labels=5)
    fovea.explain(net, batch)
    made = dict(net._cuts)
    net(batch)
    fovea.explain(net, batch)
    assert net._cuts == made


def test_what_the_module_says_is_kept(pooled: nn.Module, batch: Tensor) -> None:
    with pytest.raises(DoesNotRun, match=r"does not run on an input of 2 x 24 x 24: .*channels") as raised:
        fovea.explain(fovea.wrap(pooled, labels=5), batch[:, :2])
    assert isinstance(raised.value.__cause__, RuntimeError)
