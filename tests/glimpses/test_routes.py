"""Walks that end early: when sure, when a budget is spent, and how they are counted."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from checks import left_as_found, refused
from fovea.glimpses import Route, routes, work
from fovea.networks import Network, macs

TINY = {"in_chans": 1, "channels": [8, 8, 16, 16], "stem_width": 8, "base": 32}
SIDE = 96  # of DRAM and Saccader


def tnet(**options: object) -> Network:
    torch.manual_seed(0)
    return fovea.load("tnet/resnet10t", pretrained=False, classes=4, options=TINY | options)


def bag() -> Network:
    torch.manual_seed(0)
    return fovea.load("tnet-bagnet77", classes=4, options={"width": 0.0625})


def dram() -> Network:
    torch.manual_seed(0)
    return fovea.load("dram", classes=4, options={"width": 0.125, "locations": 3, "glimpse": 33, "side": SIDE})


def saccader() -> Network:
    torch.manual_seed(0)
    return fovea.load("saccader", classes=4, options={"width": 0.125, "locations": 4, "side": SIDE})


def pictures(count: int = 3, channels: int = 1, side: int = 128) -> torch.Tensor:
    return torch.randn(count, channels, side, side, generator=torch.Generator().manual_seed(1))


def test_it_ends_where_it_is_certain_enough_and_not_before() -> None:
    network = tnet()
    whole = fovea.zoom(network, pictures(), order="best", glimpses=6)
    for place, answer in enumerate(whole[:2]):
        assert (answer.stopped, len(answer.glimpses)) == ("glimpses", 6)
        sure = [after.certainty for after in answer.after]
        assert sure == pytest.approx([after.probability for after in answer.after])  # nothing is calibrated
        for until in (sorted(sure)[3], max(sure)):
            (early,) = fovea.zoom(network, pictures()[place : place + 1], until=until - 1e-6, glimpses=6)
            first = next(i for i, value in enumerate(sure) if value >= until)
            assert (early.stopped, len(early.glimpses)) == ("sure", first)
            assert early.certainty == pytest.approx(sure[first], abs=1e-5)
            assert "not calibrated" in early.note
    assert not whole[0].note


@pytest.mark.parametrize("order", ["best", "levels"])
def test_a_batch_is_answered_as_each_picture_is(order: str) -> None:
    """Pictures that end at different times, at different levels, go on together."""
    network = tnet()
    overviews = sorted(answer.certainty for answer in fovea.zoom(network, pictures(5), glimpses=0))
    how = {"order": order, "until": (overviews[2] + overviews[3]) / 2}
    together = fovea.zoom(network, pictures(5), batch=5, **how)
    assert len({len(answer.glimpses) for answer in together}) > 1
    for picture, answer in zip(pictures(5), together, strict=True):
        (alone,) = fovea.zoom(network, picture[None], **how)
        assert [glimpse.box for glimpse in alone.glimpses] == [glimpse.box for glimpse in answer.glimpses]
        assert (alone.label, alone.stopped, alone.cost) == (answer.label, answer.stopped, answer.cost)
        assert alone.certainty == pytest.approx(answer.certainty, abs=1e-5)


@pytest.mark.parametrize("make", [tnet, lambda: tnet(average="learned"), bag])
def test_the_papers_plan_glimpse_by_glimpse_is_the_papers_walk(make: Callable[[], Network]) -> None:
    network = make()
    channels = len(network.transform.mean)
    if getattr(network.module, "weigh", None) is not None:
        torch.nn.init.normal_(network.module.weigh.weight)
    x = pictures(1, channels)
    (fixed,), (stepwise,) = (
        fovea.zoom(network, x, glimpses=4),
        fovea.zoom(network, x, order="levels", until=1, glimpses=4),
    )
    assert [glimpse.box for glimpse in fixed.glimpses] == [glimpse.box for glimpse in stepwise.glimpses]
    for one, other in zip(fixed.after, stepwise.after, strict=True):
        assert one.answer == pytest.approx(other.answer, abs=1e-5)
    assert [glimpse.parent for glimpse in fixed.glimpses] == [glimpse.parent for glimpse in stepwise.glimpses]


@pytest.mark.parametrize("make", [tnet, lambda: tnet(average="learned"), lambda: tnet(levels=4), bag, dram, saccader])
def test_parts_add_up_to_the_multiplications_of_a_walk(make: Callable[[], Network]) -> None:
    network = make()
    side, channels = network.transform.size[0], len(network.transform.mean)
    blank, module = torch.zeros(1, channels, side, side), network.module.eval()
    for glimpses in (module.least, 1, 2, 3):
        with torch.no_grad():
            walk = module(blank, glimpses)
        depth = getattr(module, "levels", 2)
        assert work(network, channels, walk.levels, depth, together=True) == macs(network, blank, glimpses)


def test_a_budget_of_multiplications_is_never_exceeded() -> None:
    network = tnet()
    full = fovea.zoom(network, pictures(1), order="best", glimpses=8)[0].cost.macs
    for share in (0.2, 0.5, 0.9):
        (answer,) = fovea.zoom(network, pictures(1), budget_macs=full * share)
        assert answer.cost.macs <= full * share
        (more,) = fovea.zoom(network, pictures(1), order="best", glimpses=len(answer.glimpses) + 1)
        assert (answer.stopped, more.cost.macs > full * share) == ("budget", True)
    (least,) = fovea.zoom(network, pictures(1), budget_macs=1)
    assert (least.stopped, least.glimpses) == ("budget", ())  # the overview is always read
    assert least.cost.macs == work(network, 1, [1], 3)


def test_a_glimpse_that_would_end_late_is_not_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock on which reading anything takes 62.5 ms, and nothing else any time."""
    network, clock = tnet(), [0.0]
    advance = type(network.module).advance

    def slow(module: object, descents: object) -> None:
        clock[0] += 0.0625
        advance(module, descents)

    monkeypatch.setattr(type(network.module), "advance", slow)
    monkeypatch.setattr(routes, "perf_counter", lambda: clock[0])
    monkeypatch.setattr("fovea.glimpses.zoom.perf_counter", lambda: clock[0])
    for budget, things in ((375, 6), (374, 5), (130, 2), (0, 1)):
        answers = fovea.zoom(network, pictures(2), budget_ms=budget)
        assert [1 + len(answer.glimpses) for answer in answers] == [things, things]  # the clock is each picture's own
        assert {(answer.stopped, answer.ms) for answer in answers} == {("budget", 62.5 * things)}
    (short,) = fovea.zoom(network, pictures(1), budget_ms=1e6, levels=2)
    assert (short.stopped, len(short.glimpses)) == ("nothing left", 9)


def test_deeper_than_it_was_trained() -> None:
    network = tnet(levels=2, glimpses=2)
    image = Image.fromarray(np.random.default_rng(0).integers(0, 256, (512, 512), dtype=np.uint8))
    (answer,) = fovea.zoom(network, image, levels=5, glimpses=12)
    assert max(glimpse.level for glimpse in answer.glimpses) > 2
    assert answer.cost.macs == work(network, 1, [1, *(glimpse.level for glimpse in answer.glimpses)], 5)
    for glimpse in answer.glimpses:
        outer = answer.overview if glimpse.parent == 0 else answer.glimpses[glimpse.parent - 1]
        assert outer.box[0] <= glimpse.box[0] < glimpse.box[2] <= outer.box[2]
        assert glimpse.level == outer.level + 1
    (flat,) = fovea.zoom(network, image, levels=1)
    assert (flat.stopped, flat.glimpses) == ("glimpses", ())


@pytest.mark.parametrize("make", [dram, saccader])
def test_networks_that_read_in_turn_stop_when_they_are_sure(make: Callable[[], Network]) -> None:
    network, x = make(), pictures(2, 3, SIDE)
    whole = fovea.zoom(network, x)
    for answer, picture in zip(whole, x, strict=True):
        sure = [after.certainty for after in answer.after if after.number > 0]
        (early,) = fovea.zoom(network, picture[None], until=min(sure) - 1e-6)
        first = next(i for i, value in enumerate(sure) if value >= min(sure) - 1e-6)
        assert (early.stopped, len(early.glimpses)) == ("sure", first + 1)
        assert [glimpse.box for glimpse in early.glimpses] == [glimpse.box for glimpse in answer.glimpses][: first + 1]
    for order in ("best", "levels"):
        refused("order of its own", fovea.zoom, network, x, order=order)
    if make is saccader:
        refused("would save nothing", fovea.zoom, network, x, budget_ms=5)
    else:
        (few,) = fovea.zoom(network, x[:1], budget_macs=1)
        assert (few.stopped, len(few.glimpses)) == ("budget", 1)


def test_what_cannot_be_followed_is_refused() -> None:
    network = tnet()
    refused("no order 'bset'; did you mean 'best'", fovea.zoom, network, pictures(), order="bset")
    refused("until is 0 to 1", fovea.zoom, network, pictures(), until=1.5)
    refused("reads 0 to 9 glimpses; got 10", fovea.zoom, network, pictures(), levels=2, glimpses=10)
    assert Route(3).usual
    assert Route(3, order="levels").usual
    assert not Route(3, until=0.5).usual


def test_the_network_is_left_as_found() -> None:
    network = tnet()
    with left_as_found(network.module.train()):
        fovea.zoom(network, pictures(2), until=0.5)
