"""Methods of the user's own: by reference, a function, a class, an instance; and what is wrong with one, in words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.heatmaps import Aim, Finding, Look, method, names, score_of, usual
from fovea.heatmaps.methods import find

OWN = """
from fovea.heatmaps.methods import method

@method("elementwise", about="features times gradients where that is positive", passes=1)
class Elementwise:
    def __call__(self, look, aim):
        from fovea.heatmaps.look import score_of
        return (look.gradient(*score_of(aim)) * look.cells).relu().sum(1)

def plain(look, aim):
    return look.cells.mean(1)

@method("costly", about="a thousand passes", passes=1000, oblivious=True)
def costly(look, aim):
    return look.cells.mean(1)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_methods.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(method, "_given", dict(method._given))
    monkeypatch.setattr(method, "_made", dict(method._made))
    monkeypatch.delitem(sys.modules, "my_methods", raising=False)


def test_fovea_s_own_are_known_before_torch_is() -> None:
    code = "import sys; from fovea.heatmaps.methods import names; print(*names()); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = [name for name in names() if method.entries()[name].module.startswith("fovea.")]
    assert done.stdout.split() == ours
    assert all(find(name).name == name for name in ours)
    assert ours[0] == "l2caf"
    costly = [name for name in ours if find(name).costly]
    assert ours[-len(costly) :] == costly
    assert {"ablationcam", "scorecam"} <= {*costly}
    assert {"eigencam", "l2caf-oblivious"} <= {name for name in ours if find(name).oblivious}


@pytest.mark.usefixtures("own")
def test_by_reference_and_by_name_once_its_file_has_run(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    seen = fovea.explain(net, batch, method=["my_methods:elementwise", "gradcam", "my_methods:plain"], target=[1, 2])
    assert list(seen) == ["elementwise", "gradcam", "my_methods:plain"]
    features = pooled.relu(pooled.trunk(batch)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(pooled.fc(features.mean((2, 3)))[:, 1].sum(), features)
    assert torch.allclose(seen["elementwise"].values[:, 0], (gradient * features).relu().sum(1), atol=1e-6)
    assert torch.equal(
        fovea.explain(net, batch, method="elementwise", target=[1, 2]).values, seen["elementwise"].values
    )
    oblivious = fovea.explain(net, batch, method="my_methods:costly", target=[1, 2])
    assert oblivious.targets == (("output",),) * 3
    costly = {name for name in names() if find(name).costly or find(name).on == "pixels"}
    assert {*names()} - {*usual()} == {"costly", "my_methods:plain", *costly}  # where none is named, none of these runs


class Unmade:
    name = "unmade"

    def __init__(self, size: int) -> None: ...

    def __call__(self, look: Look, aim: Aim) -> Tensor: ...


class Uncalled:
    name = "uncalled"


class Unnamed:
    def __call__(self, look: Look, aim: Aim) -> Tensor: ...


def spread(look: Look, aim: Aim) -> Tensor:
    return look.cells.mean(1).unflatten(1, look.opened.layout.grid)


def cut_off(look: Look, aim: Aim) -> Tensor:
    return look.cells.mean(1)[:2]


def listed(look: Look, aim: Aim) -> list[Tensor]:
    return [look.cells.mean(1)]


def counted(look: Look, aim: Aim) -> Tensor:
    return look.cells.mean(1).long()


def with_loss(look: Look, aim: Aim) -> Finding:
    values = look.slope(*score_of(aim))
    return Finding(values, values, loss=values)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (Unmade, "method 'Unmade': its class is made without arguments, and missing a required argument: 'size'"),
        (Uncalled, r"method 'Uncalled' cannot be called.*__call__\(self, look, aim\)"),
        (Uncalled(), "cannot be called"),
        (3, "method 'int' cannot be called"),
        (Unnamed(), "method 'Unnamed' has no name to call its results by: give it an attribute `name`"),
        (lambda look, aim: look, "has no name"),
        (lambda look: look, "is called with a Look and an Aim, and too many positional arguments"),
        (spread, r"B,P = \(3, 36\); its values are \(3, 6, 6\): flatten the cells, values.flatten\(1\)"),
        (cut_off, r"B,P = \(3, 36\); its values are \(2, 36\)"),
        (listed, "method 'listed' returned a list: it returns a tensor of B,P values, or a Finding"),
        (counted, "values are a tensor of floats; got torch.int64"),
        (with_loss, r"a loss is one number per picture, \(3,\); got \(3, 36\)"),
        ("my.mine:cam", "there is no module 'my.mine' to import"),
        ("gradcm", "no method 'gradcm'; did you mean 'gradcam'"),
    ],
)
def test_a_mistake_is_told_its_author(given: Any, words: str, pooled: nn.Module, batch: Tensor) -> None:
    refused(words, fovea.explain, fovea.wrap(pooled, labels=5), batch, method=given)
