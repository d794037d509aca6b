"""Methods of the user's own: by reference, a function, a class, an instance; and what is wrong with one, in words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fovea
from checks import refused
from fovea.heatmaps import Aim, Finding, Look, method, names, score_of, usual
from fovea.heatmaps.methods import find

OWN = """
from fovea.heatmaps.methods import method

@method("layercam", about="gradients weigh each cell on its own", passes=1)
class LayerCAM:
    def __call__(self, look, aim):
        from fovea.heatmaps.look import score_of
        return (look.gradient(*score_of(aim)).relu() * look.cells).sum(1)

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
    assert done.stdout.split() == names() == [
        "l2caf", "cam", "gradcam", "gradcam-abs", "l2caf-sum", "l2caf-signed", "l2caf-oblivious"
    ]  # fmt: skip
    assert all(find(name).name == find(name).run.name == name for name in names())
    assert [name for name in names() if find(name).oblivious] == ["l2caf-oblivious"]


@pytest.mark.usefixtures("own")
def test_by_reference_and_by_name_once_its_file_has_run(pooled: nn.Module, batch: Tensor) -> None:
    net = fovea.wrap(pooled, labels=5)
    seen = fovea.explain(net, batch, method=["my_methods:layercam", "gradcam", "my_methods:plain"], target=[1, 2])
    assert list(seen) == ["layercam", "gradcam", "my_methods:plain"]
    features = pooled.relu(pooled.trunk(batch)).detach().requires_grad_()
    (gradient,) = torch.autograd.grad(pooled.fc(features.mean((2, 3)))[:, 1].sum(), features)
    assert torch.allclose(seen["layercam"].values[:, 0], (gradient.relu() * features).sum(1), atol=1e-6)
    assert torch.equal(fovea.explain(net, batch, method="layercam", target=[1, 2]).values, seen["layercam"].values)
    oblivious = fovea.explain(net, batch, method="my_methods:costly", target=[1, 2])
    assert oblivious.targets == (("output",),) * 3
    assert {*names()} - {*usual()} == {"costly", "my_methods:plain"}  # where none is named, none that costs is run


class ScoreCAM:
    """Score-CAM (Wang et al. 2020): every channel, as a mask on the input, weighs by the score that it leaves."""

    name = "scorecam"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        cells = look.cells  # B,k,P
        grid, size = look.opened.layout.grid, look.input.shape[2:]
        masks = F.interpolate(cells.unflatten(2, grid), size, mode="bilinear")  # N,k,H,W
        low, high = masks.amin((2, 3), True), masks.amax((2, 3), True)
        masks = ((masks - low) / (high - low).clamp(min=1e-9)).transpose(0, 1).unsqueeze(2)  # k,N,1,H,W
        weights = look.scores(masks * look.input, aim).softmax(0)  # k,N
        raw = (weights.T.unsqueeze(2) * cells).sum(1)
        return Finding(raw.relu(), raw)


@pytest.mark.parametrize("target", [2, "output"])
def test_a_method_that_changes_the_input(target: Any, pooled: nn.Module, batch: Tensor) -> None:
    seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method=ScoreCAM, target=target)
    wanted = []
    with torch.no_grad():
        for picture in batch:  # one mask after the other
            features = pooled.relu(pooled.trunk(picture[None]))[0]
            masks = F.interpolate(features[None], (24, 24), mode="bilinear")[0]
            masks = (masks - masks.amin((1, 2), True)) / (masks.amax((1, 2), True) - masks.amin((1, 2), True))
            outputs = torch.cat([pooled((mask * picture)[None]) for mask in masks.nan_to_num(0)])
            scores = outputs.sum(1) if target == "output" else outputs[:, target]
            wanted.append((scores.softmax(0)[:, None, None] * features).sum(0).relu())
    assert torch.allclose(seen.values[:, 0], torch.stack(wanted), atol=1e-5)


def test_acol_refuses_it() -> None:
    net = fovea.load("acol/timm/test_resnet", pretrained=False, classes=3)
    with pytest.raises(fovea.BadChoice, match=r"changes the network's input.*ACoL's second classifier"):
        fovea.explain(net, torch.randn(1, 3, 64, 64), method=ScoreCAM())


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
