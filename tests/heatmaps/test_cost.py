"""What methods cost, announced and shown to whoever listens; all methods, and those that do not apply."""

import re

import pytest
import torch
from torch import Tensor, nn

import fovea
from checks import refused
from fovea.basics import DoesNotApply, Listener, listening
from fovea.heatmaps import Aim, Look, cost, method, methods, names, usual
from fovea.heatmaps.methods import find


class Slow:
    """Every cell of the input turned down once."""

    def passes(self, look: Look) -> int:
        return look.opened.layout.cells

    def __call__(self, look: Look, aim: Aim) -> Tensor:
        versions = [look.input * (1 - i / 72) for i in range(self.passes(look))]  # P of N,C,H,W
        parts = (torch.stack(versions[i : i + 10]) for i in range(0, len(versions), 10))
        return look.scores(parts, aim, total=len(versions)).T  # N,P


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "_given", dict(method._given))
    monkeypatch.setattr(method, "_made", dict(method._made))
    monkeypatch.setattr(cost, "SHORT", 0)
    method("slow", about="every cell once", costly=True, instead="gradcam")(Slow)


@pytest.mark.usefixtures("slow")
def test_a_costly_method_says_what_it_takes_once_and_how_far_it_is(pooled: nn.Module, batch: Tensor) -> None:
    lines, passing = list[str](), list[str]()
    with listening(Listener(lines.append, passing.append)):
        seen = fovea.explain(fovea.wrap(pooled, labels=5), batch, method="slow", target=[1, 2], batch=2)
    words = (
        r"slow: 2 targets, 36 passes through the whole network per picture, about \d+ s per picture; gradcam takes one"
    )
    assert len(lines) == 1
    assert re.fullmatch(words, lines[0])
    assert passing[:4] == ["slow 10 of 36", "slow 20 of 36", "slow 30 of 36", ""]
    with torch.no_grad():
        wanted = torch.stack([pooled(batch * (1 - i / 72))[:, 2] for i in range(36)], dim=1)
    assert torch.allclose(seen.values[:, 1].flatten(1), wanted, atol=1e-5)


@pytest.mark.usefixtures("slow")
def test_it_runs_where_it_is_named_or_all_are_asked_for() -> None:
    assert "slow" not in usual()
    assert names()[-1] == "slow"
    assert find("slow").costly


def test_all_methods_but_those_that_do_not_apply(
    stacked: nn.Module, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "names", lambda: ["gradcam", "cam", "layercam"])
    net, lines = fovea.wrap(stacked, labels=5), list[str]()
    with listening(Listener(lines.append, lambda words: None)):
        maps = fovea.explain(net, batch, method="all", batch=1)
    assert list(maps) == ["gradcam", "layercam"]
    assert maps.refused.keys() == {"cam"}
    assert lines == [f"cam is left out: {maps.refused['cam']}"]
    assert torch.equal(maps["gradcam"].values, fovea.explain(net, batch, method="gradcam", batch=1).values)
    monkeypatch.setattr(methods, "names", lambda: ["cam"])
    with pytest.raises(DoesNotApply, match="cam: cam needs a head"):
        fovea.explain(net, batch, method="all")


def test_one_that_was_named_is_refused(stacked: nn.Module, batch: Tensor) -> None:
    with pytest.raises(DoesNotApply, match="cam needs a head"):
        fovea.explain(fovea.wrap(stacked, labels=5), batch, method=["gradcam", "cam"])


def test_a_trait_that_is_none_is_told_its_author(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "_given", dict(method._given))
    method("dear", cosly=True)(Slow)
    refused("method 'dear' declares 'cosly'; did you mean 'costly'", find, "dear")
