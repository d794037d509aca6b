from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fovea
from checks import refused
from fovea.data import open_sounds
from fovea.models.anchoring import AnchorNetOutput, BranchOutput, Decision
from fovea.models.anchornet_sound import SoundOptions, Spectrogram, build, located, spans
from fovea.networks import Network


def seeded(classes: int = 4) -> Network:
    """In double precision, with batch norms that have seen something."""
    torch.manual_seed(0)
    network = build(classes, SoundOptions(bands=12, width=6))
    network.module.double()
    network.module(torch.randn(8, 12, 60, dtype=torch.float64))
    network.module.eval()
    return network


def tone(pitch: float, samples: int = 1024) -> Tensor:
    return torch.sin(2 * torch.pi * pitch * torch.arange(samples, dtype=torch.float64) / 8000)


@pytest.mark.parametrize(("pitch", "band"), [(400, 5), (1000, 13), (1500, 18)])
def test_a_tone_is_loudest_in_its_band(pitch: float, band: int) -> None:
    """100 to 4,000 Hz are 150.5 to 2,146.1 mel: the middles of 32 bands are 60.5 mel apart, the first is at 211.0.

    400, 1,000 and 1,500 Hz are 509.4, 1,000.0 and 1,290.6 mel: 4.9, 13.05 and 17.85 bands further.
    """
    seen = Spectrogram()(tone(pitch))
    assert seen.shape == (32, 7)  # (1024 - 256) / 128 + 1
    assert (seen.argmax(0) == band).all()


def test_power_is_in_decibels_of_the_wave() -> None:
    """A sine of amplitude 1 in the middle of a bin: |X| = N/4 at its peak, over a window whose squares sum to 3N/8."""
    spectrogram = Spectrogram()
    peak = (256 / 4) ** 2 / (3 * 256 / 8)  # 42.67
    beside = peak / 4  # the window leaves half the amplitude in each neighbor
    bins = torch.zeros(129, dtype=torch.float64)
    bins[31:34] = torch.tensor([beside, peak, beside])
    wanted = 10 * (torch.tensor(spectrogram.filters()) @ bins + 1e-8).log10()
    found = spectrogram(tone(1000))[:, 0]  # 1,000 Hz is bin 32
    assert found[13] == pytest.approx(float(wanted[13]), abs=1e-6)
    assert spectrogram(torch.zeros(256)).max() == pytest.approx(-80)


def test_frames_and_samples() -> None:
    spectrogram = Spectrogram()
    assert spectrogram.samples(0, 1) == (0, 256)
    assert spectrogram.samples(3, 5) == (384, 384 + 4 * 128 + 256)
    assert spectrogram.seconds(0, 21) == (0, 0.352)
    middles = spectrogram.pitches()
    assert middles[13] == pytest.approx(996, abs=1)
    assert (np.diff(middles) > 0).all()


def test_three_branches_of_5_11_and_21_frames() -> None:
    network = build(4, SoundOptions())
    assert network.module.windows == (5, 11, 21)
    out = network.module.eval()(torch.randn(2, 32, 40))
    assert [one.evidence.shape for one in out.branches] == [(2, 4, 36), (2, 4, 30), (2, 4, 20)]
    for one in out.branches:
        assert torch.allclose(one.activation.mean(2), one.logits, atol=1e-4)
        assert one.auxiliary is None
    assert all(one.auxiliary is not None for one in network.module.train()(torch.randn(2, 32, 40)).branches)


@pytest.mark.parametrize("branch", [0, 1, 2])
def test_evidence_comes_from_the_cells_own_frames(branch: int) -> None:
    network, cell = seeded(), 9
    window = network.module.windows[branch]
    frames = torch.randn(1, 12, 50, dtype=torch.float64)
    before = network.module(frames).branches[branch].evidence[..., cell]
    edited = torch.randn_like(frames)
    edited[..., cell : cell + window] = frames[..., cell : cell + window]
    assert (network.module(edited).branches[branch].evidence[..., cell] - before).abs().max() < 1e-12
    for inside in (cell, cell + window - 1):  # to the very ends of the window
        edited = frames.clone()
        edited[..., inside] += 1
        assert (network.module(edited).branches[branch].evidence[..., cell] - before).abs().max() > 1e-6


@pytest.mark.parametrize("branch", [0, 1, 2])
def test_evidence_comes_from_the_cells_own_samples(branch: int) -> None:
    network, cell = seeded(), 9
    spectrogram = network.transform
    start, stop = spectrogram.samples(cell, network.module.windows[branch])
    wave = torch.rand(1, 6000, dtype=torch.float64) - 0.5

    def evidence(wave: Tensor) -> Tensor:
        return network.module(spectrogram(wave)).branches[branch].evidence[..., cell]

    edited = 3 * torch.rand_like(wave)
    edited[:, start:stop] = wave[:, start:stop]
    assert (evidence(edited) - evidence(wave)).abs().max() < 1e-12
    # a Hann window is 0 at its first sample, and next to nothing at the others of its ends
    for inside in (start + 1, stop - 1):
        edited = wave.clone()
        edited[:, inside] += 1e5
        assert (evidence(edited) - evidence(wave)).abs().max() > 1e-6
    alone = network.module(spectrogram(wave[:, start:])).branches[branch].evidence[..., 0]
    assert (alone - evidence(wave)).abs().max() < 1e-12


def test_spans_are_those_of_the_decided_class_in_the_branch_that_localizes() -> None:
    """Worked out by hand: branch 1 of class 1; its cells 2, then 14 (11 frames apart or more), then none."""
    network = build(2, SoundOptions())
    evidence = torch.zeros(1, 2, 20)
    evidence[0, 1, [2, 3, 14]] = torch.tensor([3.0, 2.0, 1.0])
    seen = BranchOutput(evidence, torch.full((1, 20), 1 / 20), torch.zeros(1, 2), None, 20.0)
    empty = BranchOutput(torch.zeros(1, 2, 9), None, torch.zeros(1, 2), None)
    decision = Decision(torch.tensor([1]), torch.tensor([1]), torch.tensor([0.75]))
    out = AnchorNetOutput(torch.zeros(1, 2), (empty, seen, empty), decision)
    (found,) = located(out, network.transform, network.module.windows, most=2)
    assert (found.label, found.probability, found.branch) == (1, 0.75, 1)
    assert [(one.start, one.stop) for one in found.spans] == [(0.032, 0.224), (0.224, 0.416)]
    assert [one.evidence for one in found.spans] == [3, 1]
    assert found.spans[0].activation == pytest.approx(3)
    assert found.spans[0].center == pytest.approx(0.128)


def test_spans_of_sounds_of_several_lengths() -> None:
    network = seeded()
    sounds = [torch.rand(4000), torch.rand(9000), torch.rand(4000)]
    state = network.module.train().training
    found = spans(network, sounds)
    assert network.module.training == state
    for one, alone in zip(found, sounds, strict=True):
        (again,) = spans(network, [alone])
        assert (one.label, one.branch) == (again.label, again.branch)
        assert one.spans[0].evidence == pytest.approx(again.spans[0].evidence)
        assert one.spans[0].stop <= len(alone) / 8000


def test_too_short_a_sound_is_told_what_is_needed() -> None:
    network = seeded()
    with pytest.raises(fovea.BadChoice, match=r"at least 2,816 samples, 0\.352 s at 8,000 Hz, .* 21 frames; got 2,815"):
        spans(network, [torch.zeros(2815)])
    spans(network, [torch.zeros(2816)])
    refused("at least 256 samples", Spectrogram(), torch.zeros(255))
    refused(r"at least 21 frames, .* got 20", network.module, torch.zeros(1, 12, 20, dtype=torch.float64))


def test_what_is_no_sound_is_refused() -> None:
    refused("one channel of floats", Spectrogram(), torch.zeros(4000, dtype=torch.int16))
    refused("not numbers", Spectrogram(), torch.full((4000,), torch.nan))
    refused("take fewer bands", build, 2, SoundOptions(bands=200))
    refused("not one for sounds", spans, fovea.load("smallnet"), [torch.zeros(4000)])
    refused("most=0", spans, seeded(), [torch.zeros(4000)], most=0)


def test_saved_and_loaded_with_its_spectrogram(tmp_path: Path) -> None:
    network = fovea.load("anchornet_sound", classes=3, options={"bands": 16, "width": 8, "hop": 64})
    network.labels = ("a", "b", "c")
    network.save(tmp_path / "mine.safetensors")
    back = fovea.load(tmp_path / "mine.safetensors")
    assert (back.transform, back.labels) == (Spectrogram(hop=64, bands=16), ("a", "b", "c"))
    sounds = [sound.read() for sound in open_sounds("sounds:count=2").samples]
    assert spans(back, sounds) == spans(network, sounds)
