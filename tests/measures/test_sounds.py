import numpy as np
import pytest
import torch

import fovea
from checks import refused
from fovea.data import make_sounds
from fovea.measures import sounds
from fovea.models.anchornet_sound import SoundOptions, Spectrogram, build, spans
from fovea.networks import Network
from fovea.patches import draw_sound


def untrained(**options: int) -> Network:
    torch.manual_seed(0)
    network = build(6, SoundOptions(width=4, **options))
    network.labels = make_sounds(count=1).labels
    network.module.eval()
    return network


def test_spans_against_the_true_one() -> None:
    """The true one is from 1 to 2: one inside it, one that shares half a second, one beside, one whose center is 2."""
    hit, iou = sounds.against(np.array([[1.25, 1.75], [0.5, 1.5], [2.5, 3], [1.5, 2.5]]), (1.0, 2.0))
    assert hit.tolist() == [True, True, False, False]
    assert iou == pytest.approx([0.5, 0.5 / 1.5, 0, 0.5 / 1.5])


def test_all_spans_of_a_branch() -> None:
    assert sounds.all_spans(Spectrogram(), 5, 3) == pytest.approx(np.array([[0, 768], [128, 896], [256, 1024]]) / 8000)


def test_one_row_that_agrees_with_the_spans() -> None:
    network, data = untrained(), make_sounds(count=24, length=1000, snr=10)
    found = fovea.measure("sounds", network, data, batch=10)
    (row,) = found.rows
    own = spans(network, [sound.read() for sound in data.samples])
    assert row["sounds"] == 24
    assert row["top1"] == np.mean([one.label == sound.label for one, sound in zip(own, data.samples, strict=True)])
    centered = [s.span[0] <= one.spans[0].center < s.span[1] for one, s in zip(own, data.samples, strict=True)]
    assert row["hit"] == np.mean(centered)
    assert {"top1_5", "top1_11", "top1_21"} <= set(row)
    assert row["low"] <= row["top1"] <= row["high"]
    # events of 0.15 to 0.5 s in a second: about a third of all spans would hit one
    assert 0.2 < row["chance_hit"] < 0.5
    assert 0 < row["chance_iou"] < row["chance_hit"]
    assert sum(part["sounds"] for part in found.details["localised_by"]) == 24


def test_what_the_decision_gains_over_each_branch() -> None:
    found = fovea.measure("sounds", untrained(), make_sounds(count=24, length=1000, snr=10))
    (row,), parts = found.rows, found.details["localised_by"]
    for part in parts:
        gain = f"gain_{part['frames']}"
        assert row[gain] == pytest.approx(row["top1"] - row[f"top1_{part['frames']}"])
        assert row[gain] == pytest.approx((part["won"] - part["lost"]) / 24)
        assert row[f"{gain}_low"] <= row[gain] <= row[f"{gain}_high"]
    assert any(part["won"] + part["lost"] for part in parts)


def test_other_classes_and_rates_are_refused() -> None:
    network = untrained()
    refused("open it with rate=8000", fovea.measure, "sounds", network, make_sounds(count=1, rate=16000))
    network.labels = tuple("abcdef")
    refused("other classes than the data: a, b", fovea.measure, "sounds", network, make_sounds(count=1))


def test_a_picture_has_the_spans_where_they_are() -> None:
    """The mark of the true event has its sides at its two ends: the columns of the picture follow from its own axis."""
    network, sound = untrained(), make_sounds(count=1).samples[0]
    (found,) = spans(network, [sound.read()])
    drawn = np.asarray(draw_sound(sound, network, found))
    plain = np.asarray(draw_sound(sound.read(), network, found))
    assert drawn.shape == plain.shape
    changed = np.abs(drawn.astype(int) - plain).sum(2) > 60  # the mark of the true event, and words above
    columns = np.flatnonzero(changed[80:].sum(0) > 100)
    wide, second = columns[-1] - columns[0], sound.span[1] - sound.span[0]
    panel = np.flatnonzero((drawn.min(2) < 250).sum(0) > 150)  # the panel's columns are dark
    gap = panel[:-1][np.diff(panel) > 3][0] if (np.diff(panel) > 3).any() else panel[-1]  # the color bar stands apart
    assert wide / (gap - panel[0]) == pytest.approx(second / 2, abs=0.02)
