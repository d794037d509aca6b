import numpy as np
import pytest
import torch

from checks import refused
from fovea.data import EVENTS, Sound, make_sounds, open_sounds
from fovea.models.anchornet_sound import Spectrogram


def test_a_sound_follows_from_its_settings_alone() -> None:
    few, many = open_sounds("sounds:count=3,seed=1"), open_sounds("sounds:count=9,seed=1")
    assert few.samples == many.samples[:3]
    assert torch.equal(few.samples[2].read(), many.samples[2].read())
    sound = few.samples[0]
    for other in (open_sounds("sounds:count=1"), open_sounds("sounds:count=1,seed=1,split=test")):
        assert not torch.equal(sound.read(), other.samples[0].read())


def test_two_seconds_within_one_with_every_class() -> None:
    data = make_sounds(count=40)
    assert (data.labels, {sound.label for sound in data.samples}) == (tuple(EVENTS), set(range(6)))
    for sound in data.samples[:8]:
        wave, (start, stop) = sound.read(), sound.span
        assert wave.shape == (16000,)
        assert 0.09 < float(wave.abs().max()) <= 0.9
        assert 0 <= start < stop <= 2
        assert 0.15 <= stop - start <= 0.5


def of_class(name: str, snr: int = 30) -> Sound:
    data = make_sounds(count=60, snr=snr)
    return next(sound for sound in data.samples if data.labels[sound.label] == name)


@pytest.mark.parametrize("name", EVENTS)
def test_the_event_is_in_its_span(name: str) -> None:
    sound = of_class(name)
    wave = sound.read().numpy()
    start, stop = (round(second * sound.rate) for second in sound.span)
    outside = np.concatenate((wave[:start], wave[stop:]))
    assert np.mean(wave[start:stop] ** 2) > 100 * np.mean(outside**2)  # 30 dB are a thousandfold


def bands_over_time(sound: Sound) -> np.ndarray:
    """The loudest band of each frame that lies in the event whole."""
    values, (start, stop) = Spectrogram()(sound.read()), sound.span
    first, last = int(np.ceil(start * 8000 / 128)), int((stop * 8000 - 256) // 128)
    return values[:, first : last + 1].argmax(0).numpy()


def test_pitches_do_what_their_names_say() -> None:
    assert np.ptp(bands_over_time(of_class("tone"))) <= 1
    up, down = (np.diff(bands_over_time(of_class(f"chirp {way}"))) for way in ("up", "down"))
    assert up.min() >= 0
    assert up.sum() >= 2
    assert down.max() <= 0
    assert down.sum() <= -2


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("sounds:count=0", "count= is 1 to 200,000; got 0"),
        ("sounds:rate=4000", "rate= is 8,000 to 768,000"),
        ("sounds:length=300", "length= is 1,000 to 600,000"),
        ("sounds:split=val", "no split 'val'"),
        ("sounds:cuont=3", "did you mean 'count'"),
        ("sound", "did you mean 'sounds'"),
    ],
)
def test_bad_choices_are_refused(given: str, said: str) -> None:
    refused(said, open_sounds, given)
