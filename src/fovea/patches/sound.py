"""The stretches of time that speak for what a sound is taken for."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice, finite, shown
from fovea.data import BadSound, Sound, read_sound
from fovea.models.anchornet_sound import Heard, TimeSpan, parts, spans
from fovea.networks import Network
from fovea.patches.localized import collected
from fovea.results import COLORS, Panel, Results, Shows, Step, View, marks, spaced

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Sounds = str | os.PathLike[str] | Tensor | Iterable[str | os.PathLike[str] | Tensor]
PITCHES = (200, 500, 1000, 2000, 3000)  # Hz that are written beside the bands


@dataclass(frozen=True, repr=False)
class LocalizedSound(Shows):
    """One sound: what it was taken for, and the spans that speak for it, best first."""

    name: str
    label: str
    probability: float
    frames: int  # that a cell of the branch that localizes sees
    spans: tuple[TimeSpan, ...]
    sound: Tensor  # L: samples at the network's rate
    network: Network
    heard: Heard

    saved_as = ("picture", "spans.png")

    @property
    def boxes(self) -> list[tuple[float, float]]:
        """The spans, in seconds."""
        return [(span.start, span.stop) for span in self.spans]

    def draw(self) -> Image.Image:
        """The spectrogram with the spans on it."""
        return draw_sound(self.sound, self.network, self.heard)

    def view(self) -> View:
        times = ", ".join(f"{start:.3f} to {stop:.3f} s" for start, stop in self.boxes)
        return View((Panel(self.draw),), words=times)

    def to_dict(self) -> dict[str, Any]:
        return {
            "sound": self.name,
            "label": self.label,
            "probability": finite(self.probability),
            "frames": self.frames,
            "spans": list(map(_row, self.spans)),
        }


def _row(span: TimeSpan) -> dict[str, Any]:
    seconds = [round(span.start, 4), round(span.stop, 4)]
    return {"seconds": seconds, "evidence": finite(span.evidence), "activation": finite(span.activation)}


def localize_sounds(network: Network, sounds: Sounds, count: int = 1) -> Results[LocalizedSound]:
    """One result per sound; one that cannot be read is warned about, and refused where there is no other."""
    return collected(sound_steps(network, sounds, count), "sound", BadSound, {"net": network.name, "count": count})


def sound_steps(network: Network, sounds: Sounds, count: int = 1) -> Iterator[Step[LocalizedSound]]:
    """At most so many spans of each sound, none overlapping, by the branch that localizes."""
    spectrogram, module = parts(network)
    given = [sounds] if isinstance(sounds, (str, os.PathLike, Tensor)) else list(sounds)
    strange = [source for source in given if not isinstance(source, (str, os.PathLike, Tensor))]
    if strange:
        raise BadChoice(f"{network.name or 'this network'} hears .wav files or samples; got {shown(strange[0])}")
    needed = spectrogram.samples(0, max(module.windows))[1]
    for place, source in enumerate(given):
        name = f"sound-{place}" if isinstance(source, Tensor) else str(source)
        try:
            sound = source if isinstance(source, Tensor) else read_sound(Path(source), spectrogram.rate)
            if sound.shape[-1] < needed:
                raise BadSound(f"{name}: {spectrogram.too_short(sound.shape[-1], max(module.windows))}")
        except BadSound as reason:
            yield Step([], [(name, str(reason))], place + 1, len(given))
            continue
        (heard,) = spans(network, [sound], count)
        label, frames = network.label(heard.label), module.windows[heard.branch]
        result = LocalizedSound(name, label, heard.probability, frames, heard.spans, sound, network, heard)
        yield Step([result], [], place + 1, len(given))


def draw_sound(sound: Sound | Tensor, network: Network, heard: Heard) -> Image.Image:
    """The spectrogram with what was heard; of a sound made in code, the true event is marked too."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    spectrogram, _ = parts(network)
    waveform = sound.read() if isinstance(sound, Sound) else sound
    values = spectrogram(waveform).numpy()  # bands,T
    sheet = Figure(figsize=(9, 3.6), layout="constrained")
    panel = sheet.subplots()
    # a frame is drawn around the middle of the samples that it sees
    first, last = (sum(spectrogram.seconds(i, 1)) / 2 for i in (0, values.shape[1] - 1))
    half = spectrogram.hop / spectrogram.rate / 2
    extent = (first - half, last + half, -0.5, len(values) - 0.5)
    shown = panel.imshow(values, origin="lower", aspect="auto", cmap=COLORS, interpolation="nearest", extent=extent)
    sheet.colorbar(shown, ax=panel, label="dB", pad=0.01)
    for place, (span, ink) in enumerate(zip(heard.spans, cycle(marks.INKS), strict=False), 1):
        name = str(place) if len(heard.spans) > 1 else ""
        _mark(panel, (span.start, span.stop), ink, name, max(1.0, 4.0 - 0.7 * place))
    title = f"{spaced(network.label(heard.label))} {heard.probability:.2f}"
    if isinstance(sound, Sound):
        _mark(panel, sound.span, "white", "", 2.0, "--")
        title += f" (dashed: the true {spaced(network.label(sound.label))})"
    panel.set_title(title, loc="left", pad=24 if len(heard.spans) > 1 else 6)  # above the numbers
    panel.set(xlabel="seconds", ylabel="Hz, in mel bands", xlim=(0, len(waveform) / spectrogram.rate))
    middles = spectrogram.pitches()
    ticks = [pitch for pitch in PITCHES if middles[0] <= pitch <= middles[-1]]
    panel.set_yticks(np.interp(ticks, middles, np.arange(len(middles))), [f"{pitch:,}" for pitch in ticks])
    canvas = FigureCanvasAgg(sheet)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _mark(panel: "Axes", span: tuple[float, float], ink: str, name: str, thick: float, style: str = "-") -> None:
    """A box over the whole height, its name above the panel, where no line strikes it through."""
    from matplotlib.patches import Rectangle

    start, stop = span
    place = panel.get_xaxis_transform()  # seconds across, shares of the panel's height up
    for color, width, line in (("black", thick + 2, "-"), (ink, thick, style)):
        box = Rectangle((start, 0.01), stop - start, 0.98, transform=place, fill=False, edgecolor=color)
        box.set(linewidth=width, linestyle=line)
        panel.add_patch(box)
    if name:
        frame = {"facecolor": ink, "pad": 2.5, "linewidth": 0.8}
        panel.text((start + stop) / 2, 1.04, name, transform=place, ha="center", va="bottom", bbox=frame)
