"""Sounds made in code: one short event somewhere in colored noise with hum, a whistle and pips. Nothing is stored.

A sound follows from the settings, the seed, the split and its index alone, and is made when it is read. What is drawn
first is the event, so that its class and its span are known without making the sound."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
from numpy.typing import NDArray

from fovea.basics import SEED, Bound, bounded, within
from fovea.data.layouts import layout, opened
from fovea.data.options import splits_asked

if TYPE_CHECKING:
    from torch import Tensor

Wave = NDArray[np.float64]
Random = np.random.Generator
SHORTEST, LONGEST = 0.15, 0.5  # seconds of an event
LOWEST, HIGHEST = 300.0, 3400.0  # Hz: pitches of events
LOUDER = 15.0  # dB between the quietest and the loudest event
PIP = (0.02, 0.05)  # seconds of a pip, the shortest and the longest
RAMP = 0.01  # seconds in which an event comes and goes
RATE = 8000  # samples a second; HIGHEST is below half of the lowest rate allowed
MOST = 10_000_000  # samples


def open_sounds(given: str | Path = "sounds") -> "Sounds":
    """'sounds:count=2000,split=train,seed=0'; the other options are those of `make_sounds`."""
    return opened(given, "sounds")


@layout("sounds", holds="sounds", about="sounds, made: events in noise")
@bounded
def make_sounds(
    *,
    split: str | None = None,
    count: Annotated[int, Bound(1, 200_000)] = 1000,
    seed: Annotated[int, SEED] = 0,
    rate: Annotated[int, Bound(RATE, 768_000)] = RATE,
    length: Annotated[int, Bound(round(2000 * LONGEST), 600_000)] = 2000,
    snr: Annotated[int, Bound(-20, 100)] = -3,
) -> "Sounds":
    """`count` sounds of `length` milliseconds, split=train (the default) or test, no sound being in both. The event is
    from `snr` to `snr` + 15 dB louder than the rest while it lasts."""
    part = splits_asked("sounds", split or "train", ("train", "test"))[0]
    within("sounds: samples, rate= times length= / 1000,", rate * length // 1000, RATE, MOST)
    scene = Scene(part, seed, rate, rate * length // 1000, snr)
    return Sounds("sounds", tuple(Sound(scene, i) for i in range(count)), tuple(EVENTS), rate)


@dataclass(frozen=True)
class Scene:
    """What all sounds of a set have in common."""

    split: str
    seed: int
    rate: int
    samples: int
    snr: int


@dataclass(frozen=True)
class Sound:
    """One sound, made when it is read."""

    scene: Scene
    index: int
    label: int = field(init=False)
    span: tuple[float, float] = field(init=False)  # of the event, in seconds, half open

    def __post_init__(self) -> None:
        label, start, stop = self._placed(self._random())
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "span", (start / self.scene.rate, stop / self.scene.rate))

    @property
    def name(self) -> str:
        return f"{self.scene.split}/{self.index:06}"

    @property
    def rate(self) -> int:
        return self.scene.rate

    def read(self) -> "Tensor":
        """Values within ±1, one per sample."""
        import torch  # what a set holds is asked for before it is needed

        scene, random = self.scene, self._random()
        label, start, stop = self._placed(random)
        make = tuple(EVENTS.values())[label]
        event = _faded(make(np.arange(stop - start) / scene.rate, random), round(RAMP * scene.rate))
        rest = _noise(scene.samples, random) + _hum(scene, random) + _whistle(scene, random) + _pips(scene, random)
        loudness = 10 ** ((scene.snr + LOUDER * random.random()) / 20)
        rest[start:stop] += event * loudness * _level(rest[start:stop]) / _level(event)
        peak = random.uniform(0.1, 0.9)
        return torch.from_numpy((rest * peak / np.abs(rest).max()).astype(np.float32))

    def _random(self) -> Random:
        return np.random.default_rng([self.scene.seed, self.scene.split == "test", self.index])

    def _placed(self, random: Random) -> tuple[int, int, int]:
        """The event's class, and its first sample and the one after its last."""
        label = int(random.integers(len(EVENTS)))
        length = round(random.uniform(SHORTEST, LONGEST) * self.scene.rate)
        start = int(random.integers(self.scene.samples - length + 1))
        return label, start, start + length


@dataclass(frozen=True)
class Sounds:
    """A named set of labeled sounds of one length."""

    name: str
    samples: tuple[Sound, ...] = field(repr=False)
    labels: tuple[str, ...]
    rate: int

    def __len__(self) -> int:
        return len(self.samples)


def _two_tones(time: Wave, random: Random) -> Wave:
    ratio = random.uniform(1.4, 2.5)
    low = _pitch(random, LOWEST, HIGHEST / ratio)
    return _sine(low * time, random) + _sine(low * ratio * time, random)


def _chirp_up(time: Wave, random: Random) -> Wave:
    """From f to r f, as f r^(t/T): the phase is its integral."""
    ratio = random.uniform(1.3, 3)
    low, growth = _pitch(random, LOWEST, HIGHEST / ratio), np.log(ratio) / time[-1]
    return _sine(low * (np.exp(growth * time) - 1) / growth, random)


def _noise_burst(time: Wave, random: Random) -> Wave:
    """Noise of an octave to two."""
    ratio = random.uniform(2, 4)
    low = _pitch(random, LOWEST, HIGHEST / ratio)
    spectrum = np.fft.rfft(random.standard_normal(len(time)))
    pitch = np.fft.rfftfreq(len(time), time[1])
    return np.fft.irfft(np.where((pitch >= low) & (pitch <= low * ratio), spectrum, 0), len(time))


def _click_train(time: Wave, random: Random) -> Wave:
    """Short rings, 15 to 35 a second."""
    since = time % (1 / random.uniform(15, 35))
    return np.sin(2 * np.pi * _pitch(random, 2 * LOWEST, HIGHEST) * since) * np.exp(-since / 0.002)


EVENTS: dict[str, Callable[[Wave, Random], Wave]] = {
    "tone": lambda time, random: _sine(_pitch(random, LOWEST, HIGHEST) * time, random),
    "two tones": _two_tones,
    "chirp up": _chirp_up,
    "chirp down": lambda time, random: _chirp_up(time, random)[::-1],
    "noise burst": _noise_burst,
    "click train": _click_train,
}


def _sine(cycles: Wave, random: Random) -> Wave:
    return np.sin(2 * np.pi * (cycles + random.random()))


def _pitch(random: Random, low: float, high: float) -> float:
    """Every octave as likely as the next."""
    return float(np.exp(random.uniform(np.log(low), np.log(high))))


def _faded(event: Wave, ramp: int) -> Wave:
    rise = 0.5 - 0.5 * np.cos(np.pi * (np.arange(ramp) + 0.5) / ramp)
    return event * np.concatenate((rise, np.ones(len(event) - 2 * ramp), rise[::-1]))


def _noise(samples: int, random: Random) -> Wave:
    """Power falls as 1 / f^a, a from 0 (white) to 1.5; its level is 1."""
    spectrum = np.fft.rfft(random.standard_normal(samples))
    place = np.arange(len(spectrum)).clip(1)  # what is slower than one period a sound is as loud as that
    wave = np.fft.irfft(spectrum * place ** (-random.uniform(0, 1.5) / 2), samples)
    return wave / _level(wave)


def _hum(scene: Scene, random: Random) -> Wave:
    """A low pitch with weaker and weaker overtones, throughout."""
    time, pitch, level = np.arange(scene.samples) / scene.rate, random.uniform(50, 120), random.uniform(0, 0.5)
    wave = np.zeros(scene.samples)
    for i in range(1, int(random.integers(2, 6))):
        wave += level / i * _sine(i * pitch * time, random)
    return wave


def _whistle(scene: Scene, random: Random) -> Wave:
    """A faint steady pitch, throughout: a tone, but no event."""
    time, level = np.arange(scene.samples) / scene.rate, random.uniform(0, 0.4)
    return level * _sine(_pitch(random, LOWEST, HIGHEST) * time, random)


def _pips(scene: Scene, random: Random) -> Wave:
    """Up to three, each far shorter than any event: what is sudden is not yet what is asked for."""
    wave = np.zeros(scene.samples)
    for _ in range(int(random.integers(4))):
        time = np.arange(round(random.uniform(*PIP) * scene.rate)) / scene.rate
        pip = _sine(_pitch(random, LOWEST, HIGHEST) * time, random) * np.sin(np.pi * time / time[-1])
        start = int(random.integers(scene.samples - len(pip) + 1))
        wave[start : start + len(pip)] += random.uniform(0.5, 2) * pip
    return wave


def _level(wave: Wave) -> float:
    return float(np.sqrt(np.mean(wave**2)))
