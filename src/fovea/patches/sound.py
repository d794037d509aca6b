"""The stretches of time that speak for what a sound is taken for."""

import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from torch import Tensor

from fovea.basics.files import Names, finite, write_json
from fovea.data.wav import BadSound, read_sound
from fovea.models.anchornet_sound import Heard, TimeSpan, parts, spans
from fovea.networks.network import Network

Sounds = str | os.PathLike[str] | Tensor | Iterable[str | os.PathLike[str] | Tensor]


@dataclass(frozen=True)
class SoundFound:
    """One sound: what it was taken for, and the spans that speak for it, best first."""

    name: str
    label: str
    probability: float
    frames: int  # that a cell of the branch that localises sees
    spans: tuple[TimeSpan, ...]
    sound: Tensor = field(repr=False, compare=False)  # L: samples at the network's rate
    network: Network = field(repr=False, compare=False)
    heard: Heard = field(repr=False, compare=False)

    def picture(self) -> Image.Image:
        """The spectrogram with the spans on it."""
        from fovea.patches.sound_figure import picture

        return picture(self.sound, self.network, self.heard)

    def row(self) -> dict[str, Any]:
        return {
            "sound": self.name,
            "label": self.label,
            "probability": finite(self.probability),
            "frames": self.frames,
            "spans": [
                {
                    "seconds": [round(one.start, 4), round(one.stop, 4)],
                    "evidence": finite(one.evidence),
                    "activation": finite(one.activation),
                }
                for one in self.spans
            ],
        }

    def save(self, folder: Path, names: Names) -> dict[str, Any]:
        """The picture into a folder, and the row about the sound."""
        folder.mkdir(parents=True, exist_ok=True)
        stem = names.take(Path(self.name).stem or "sound", self.name)
        self.picture().save(folder / f"{stem}.spans.png")
        return {**self.row(), "files": {"picture": f"{stem}.spans.png"}}


@dataclass(frozen=True)
class SoundRegions:
    """What was found in every sound; `skipped` are those that could not be read, and why."""

    found: tuple[SoundFound, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: int) -> SoundFound:
        return self.found[index]

    def __iter__(self) -> Iterator[SoundFound]:
        return iter(self.found)

    def save(self, folder: str | Path) -> list[dict[str, Any]]:
        """Pictures and regions.json into a folder; the JSON's rows come back."""
        folder, names = Path(folder), Names()
        rows = [one.save(folder, names) for one in self.found]
        skipped = [{"sound": name, "reason": reason} for name, reason in self.skipped]
        write_json(folder / "regions.json", {"sounds": rows, "skipped": skipped})
        return rows


def localize_sounds(network: Network, sounds: Sounds, count: int = 1) -> SoundRegions:
    """What `in_sounds` gives; a sound that cannot be read is warned about, and refused where there is no other."""
    found = in_sounds(network, sounds, count)
    if not found.found:
        raise BadSound(found.skipped[0][1] if found.skipped else "no sound was given")
    if found.skipped:
        warnings.warn(f"{len(found.skipped)} sound(s) skipped: {found.skipped[0][1]}", stacklevel=3)
    return found


def in_sounds(network: Network, sounds: Sounds, count: int = 1) -> SoundRegions:
    """At most so many spans of each sound, none overlapping, by the branch that localises."""
    spectrogram, module = parts(network)
    given = [sounds] if isinstance(sounds, (str, os.PathLike, Tensor)) else list(sounds)
    found: list[SoundFound] = []
    skipped: list[tuple[str, str]] = []
    for place, one in enumerate(given):
        name = f"sound-{place}" if isinstance(one, Tensor) else str(one)
        try:
            sound = one if isinstance(one, Tensor) else read_sound(Path(one), spectrogram.rate)
            needed = spectrogram.samples(0, max(module.windows))[1]
            if sound.shape[-1] < needed:
                raise BadSound(f"{name}: {spectrogram.too_short(sound.shape[-1], max(module.windows))}")
        except BadSound as reason:
            skipped.append((name, str(reason)))
            continue
        (heard,) = spans(network, [sound], count)
        label, frames = network.label(heard.label), module.windows[heard.branch]
        found.append(SoundFound(name, label, heard.probability, frames, heard.spans, sound, network, heard))
    return SoundRegions(tuple(found), tuple(skipped))
