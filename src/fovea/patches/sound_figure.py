"""A sound as a picture: its spectrogram, where its event was found and, where that is known, where it is."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from PIL import Image
from torch import Tensor

from fovea.data.sounds import Sound
from fovea.models.anchornet_sound import Heard, parts
from fovea.networks.network import Network
from fovea.results.drawing import COLOURS

FOUND, TRUE = "white", "#ff7f0e"  # each with a dark rim, so that they show on any background
PITCHES = (200, 500, 1000, 2000, 3000)  # Hz that are written beside the bands


def picture(sound: Sound | Tensor, network: Network, found: Heard) -> Image.Image:
    """Of a sound made in code, the true event is marked too."""
    spectrogram, _ = parts(network)
    waveform = sound.read() if isinstance(sound, Sound) else sound
    values = spectrogram(waveform).numpy()  # bands,T
    sheet = Figure(figsize=(9, 3.6), layout="constrained")
    panel = sheet.subplots()
    # a frame is drawn around the middle of the samples that it sees
    first, last = (sum(spectrogram.seconds(i, 1)) / 2 for i in (0, values.shape[1] - 1))
    half = spectrogram.hop / spectrogram.rate / 2
    shown = panel.imshow(
        values,
        origin="lower",
        aspect="auto",
        cmap=COLOURS,
        interpolation="nearest",
        extent=(first - half, last + half, -0.5, len(values) - 0.5),
    )
    sheet.colorbar(shown, ax=panel, label="dB", pad=0.01)
    for place, one in enumerate(found.spans):
        _mark(panel, (one.start, one.stop), FOUND, "-", str(place + 1) if place else "found", 0.05, True)
    title = f"{network.label(found.label)} {found.probability:.3f}"
    if isinstance(sound, Sound):
        _mark(panel, sound.span, TRUE, "--", "true", 0.01, False)
        title += f" (true: {network.label(sound.label)})"
    panel.set(title=title, xlabel="seconds", ylabel="Hz, in mel bands", xlim=(0, len(waveform) / spectrogram.rate))
    middles = spectrogram.pitches()
    ticks = [pitch for pitch in PITCHES if middles[0] <= pitch <= middles[-1]]
    panel.set_yticks(np.interp(ticks, middles, np.arange(len(middles))), [f"{pitch:,}" for pitch in ticks])
    canvas = FigureCanvasAgg(sheet)
    canvas.draw()
    return Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")


def _mark(panel: Axes, span: tuple[float, float], ink: str, style: str, name: str, inset: float, above: bool) -> None:
    """A box over the whole height, but for `inset` of it at either end, with its name inside."""
    start, stop = span
    place = panel.get_xaxis_transform()  # seconds across, shares of the panel's height up
    for colour, width, line in (("black", 4.0, "-"), (ink, 2.0, style)):
        panel.add_patch(
            Rectangle(
                (start, inset), stop - start, 1 - 2 * inset, transform=place, fill=False, edgecolor=colour,
                linewidth=width, linestyle=line,
            )
        )  # fmt: skip
    panel.text(
        (start + stop) / 2, 0.97 - inset if above else 0.03 + inset, name, color=ink, transform=place, ha="center",
        va="top" if above else "bottom", fontweight="bold",
        bbox={"facecolor": "black", "alpha": 0.6, "pad": 1.5, "linewidth": 0},
    )  # fmt: skip
