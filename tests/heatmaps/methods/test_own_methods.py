"""Methods of the user's own: by reference, a function, a class, an instance; and what is wrong with one, in words."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fovea
from checks import refused
from fovea.basics import iou
from fovea.heatmaps import Aim, Finding, Look, method, names, score_of, usual
from fovea.heatmaps.methods import find
from fovea.pictures import Prepare
from fovea.results import read

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


def brightness(look: Look, aim: Aim) -> Finding:
    """A map on the input's pixels, beside maps on the cells of the cut."""
    values = look.input.mean(1).flatten(1)
    return Finding(values, values, grid=tuple(look.input.shape[2:]))


def test_a_map_on_a_grid_of_its_own(pooled: nn.Module, tmp_path: Path) -> None:
    picture = np.zeros((90, 180, 3), np.uint8)
    picture[30:60, 100:150] = 255  # all of the evidence
    net = fovea.wrap(pooled, Prepare((72, 144), mean=(0, 0, 0), std=(1, 1, 1)), labels=5)
    seen = fovea.explain(net, [picture] * 2, method=[brightness, "gradcam"], target=[1, 2])
    pixels = seen["brightness"]
    assert (pixels.grid, pixels.layer, seen["gradcam"].grid) == ((72, 144), "input", (18, 36))
    assert pixels.values.shape == (2, 2, 72, 144)
    assert pixels.pixels(1, 1)[35:55, 105:145].min() > 0.9
    assert iou(pixels.boxes_at(0.5)[0, 0], [(100, 30, 150, 60)])[0, 0] > 0.8
    assert pixels.diagnosis == ((None, None),) * 2
    pixels.save(tmp_path)
    files = read(tmp_path).results[0]["files"]["maps"][0]
    assert np.allclose(np.load(tmp_path / files["values"]), pixels.map())
    dark = fovea.explain(net, np.zeros((90, 180, 3), np.uint8), method=brightness)
    assert "does not change when the cells change" in dark.diagnosis[0][0]


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
