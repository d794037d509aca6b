"""AnchorNet for sounds: the blocks of the picture and text networks with time as the one axis. Time spans come out.

A sound becomes frames of mel bands, the bands being channels; three branches see 5, 11 and 21 frames. Frames begin
where the sound does and end where it ends, each of them sees its own samples alone, and no convolution is padded: a
cell's evidence comes from the samples of its span, and from no others."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fovea.basics import BadChoice, within
from fovea.models.anchoring import PAPER, AnchorNetOutput, Branch, Branched, BranchOptions, output_of
from fovea.networks import Network, as_found, model

HEAD = (1, 3)  # kernels, as are those of the branches below
BRANCHES = ((3,), (5, 5), (7, 7, 7))
QUIET = 1e-8  # power that is as good as silence: -80 dB


@dataclass(frozen=True)
class Spectrogram:
    """A sound (values within ±1) as the power of mel bands in dB, a frame every `hop` samples. No frame is padded.
    Nothing is scaled by the sound's own mean or maximum, which would let every frame depend on every sample."""

    rate: int = 8000  # samples a second
    frame: int = 256  # samples that a frame sees
    hop: int = 128
    bands: int = 32
    lowest: float = 100.0  # Hz; the highest is half the rate

    def __post_init__(self) -> None:
        for name, value, most in (("rate", self.rate, 2**20), ("frame", self.frame, 2**16), ("hop", self.hop, 2**16)):
            within(f"a spectrogram's {name}", value, 1, most)
        within("a spectrogram's bands", self.bands, 1, 1024)
        if not 0 <= self.lowest < self.rate / 2:
            raise BadChoice(f"the lowest pitch lies between 0 and {self.rate / 2:g} Hz; got {self.lowest:g}")
        if not self.filters().any(1).all():
            mend = "take fewer bands, a longer frame or a higher lowest pitch"
            raise BadChoice(f"{self.bands} bands are too narrow for frames of {self.frame} samples: {mend}")

    def __call__(self, waveform: Tensor) -> Tensor:
        """L samples to bands,T frames; N,L to N,bands,T."""
        if waveform.ndim not in (1, 2) or not waveform.is_floating_point():
            raise BadChoice(f"a sound is one channel of floats in ±1; got {waveform.dtype}, {tuple(waveform.shape)}")
        if waveform.shape[-1] < self.frame:
            raise BadChoice(self.too_short(waveform.shape[-1], 1))
        if not bool(waveform.isfinite().all()):
            raise BadChoice("the sound holds values that are not numbers")
        window = torch.hann_window(self.frame, dtype=waveform.dtype, device=waveform.device)
        how: dict[str, Any] = {"window": window, "center": False, "return_complex": True}
        spectrum = torch.stft(waveform, self.frame, self.hop, **how)  # …,bins,T
        power = spectrum.abs().square() / window.square().sum()
        banded = torch.tensor(self.filters()).to(power) @ power  # …,bands,T
        return 10 * (banded + QUIET).log10()

    def filters(self) -> NDArray[np.float64]:
        """Triangles of height 1, their feet on the middles of their neighbors (bands, bins)."""
        return _triangles(self.rate, self.frame, self.bands, self.lowest)

    def pitches(self) -> NDArray[np.float64]:
        """The middle of each band, in Hz."""
        return _edges(self.rate, self.bands, self.lowest)[1:-1]

    def samples(self, first: int, frames: int) -> tuple[int, int]:
        """The samples that so many frames from `first` on see, half open."""
        return first * self.hop, (first + frames - 1) * self.hop + self.frame

    def seconds(self, first: int, frames: int) -> tuple[float, float]:
        start, stop = self.samples(first, frames)
        return start / self.rate, stop / self.rate

    def too_short(self, samples: int, frames: int) -> str:
        needed = self.samples(0, frames)[1]
        return (
            f"a sound has at least {needed:,} samples, {needed / self.rate:.3g} s at {self.rate:,} Hz, which make "
            f"{frames} {'frame' if frames == 1 else 'frames'}; got {samples:,}"
        )


def _edges(rate: int, bands: int, lowest: float) -> NDArray[np.float64]:
    """Feet and middles of the bands in Hz, evenly spaced in mel: m = 2595 log10(1 + f / 700)."""
    low, high = (2595 * np.log10(1 + pitch / 700) for pitch in (lowest, rate / 2))
    return 700 * (10 ** (np.linspace(low, high, bands + 2) / 2595) - 1)


@lru_cache(maxsize=8)
def _triangles(rate: int, frame: int, bands: int, lowest: float) -> NDArray[np.float64]:
    edges = _edges(rate, bands, lowest)[:, None]
    pitch = np.arange(frame // 2 + 1) * rate / frame  # of each bin
    rising = (pitch - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - pitch) / (edges[2:] - edges[1:-1])
    found: NDArray[np.float64] = np.minimum(rising, falling).clip(0)
    found.flags.writeable = False
    return found


class SoundNet(Branched):
    abilities = frozenset({"sounds"})

    def __init__(self, classes: int, bands: int, width: int, form: BranchOptions = PAPER) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.BatchNorm1d(bands), *_convolutions(bands, width, HEAD))

        def branch(kernels: Sequence[int]) -> Branch:
            features = nn.Sequential(*_convolutions(width, width, kernels))
            attended = nn.Sequential(*_convolutions(width, width, (1,))) if form.attention else None
            return Branch(features, (width, width, classes), attended, nn.Conv1d, form)

        self.branches = nn.ModuleList(map(branch, BRANCHES))

    @property
    def windows(self) -> tuple[int, ...]:
        """Frames that a cell of each branch sees."""
        return tuple(_window(self.head, branch.features) for branch in self.branches)  # type: ignore[arg-type]

    def forward(self, x: Tensor) -> AnchorNetOutput:
        if x.shape[2] < max(self.windows):
            got = f"the window of its widest branch; got {x.shape[2]}"
            raise BadChoice(f"the network needs sounds of at least {max(self.windows)} frames, {got}")
        features = self.head(x)
        return output_of([branch(features) for branch in self.branches])


def _convolutions(given: int, width: int, kernels: Sequence[int]) -> list[nn.Module]:
    layers: list[nn.Module] = []
    for kernel in kernels:
        layers += [nn.Conv1d(given, width, kernel, bias=False), nn.BatchNorm1d(width), nn.ReLU()]
        given = width
    return layers


def _window(*parts: nn.Module) -> int:
    """Cells in a row that these see, one after the other, none of which has a stride."""
    return 1 + sum(one.kernel_size[0] - 1 for part in parts for one in part.modules() if isinstance(one, nn.Conv1d))


@dataclass(frozen=True)
class SoundOptions(BranchOptions):
    """Of the spectrogram, which is the network's transform; `width`: channels."""

    rate: int = 8000
    frame: int = 256
    hop: int = 128
    bands: int = 32
    width: int = 48

    def __post_init__(self) -> None:
        if self.width < 1:
            raise BadChoice(f"width is at least 1; got {self.width}")


@model("anchornet_sound", about="AnchorNet over the frames of a sound: time spans come out", can=("sounds",))
def build(classes: int, options: SoundOptions) -> Network:
    transform = Spectrogram(options.rate, options.frame, options.hop, options.bands)
    module = SoundNet(classes, options.bands, options.width, options)
    return Network(module, transform, tuple(map(str, range(classes))), "head")  # type: ignore[arg-type]  # a sound's


@dataclass(frozen=True)
class TimeSpan:
    """A stretch of time, half open, in seconds, and what its cell says for the class."""

    start: float
    stop: float
    evidence: float  # from the samples of the span alone
    activation: float  # evidence times attention, by which spans are chosen

    @property
    def center(self) -> float:
        return (self.start + self.stop) / 2


@dataclass(frozen=True)
class Heard:
    """What was heard in a sound, and when: the best span first."""

    label: int
    probability: float
    branch: int  # the one that localizes
    spans: tuple[TimeSpan, ...]


def spans(network: Network, sounds: Tensor | Sequence[Tensor], most: int = 1) -> list[Heard]:
    """For each sound (samples at the network's rate) the decided class and at most so many spans, none overlapping.
    Spans are of the branch that localizes (Eq. 4), in the order of their activation for the decided class."""
    spectrogram, module = parts(network)
    if most < 1:
        raise BadChoice(f"at least one span is asked for; got most={most}")
    given = list(sounds)
    for one in given:
        if one.shape[-1] < spectrogram.samples(0, max(module.windows))[1]:
            raise BadChoice(spectrogram.too_short(one.shape[-1], max(module.windows)))
    places: dict[int, list[int]] = {}  # sounds of one length go together
    for place, one in enumerate(given):
        places.setdefault(one.shape[-1], []).append(place)
    found: dict[int, Heard] = {}
    for group in places.values():
        inputs = spectrogram(torch.stack([given[place].to(network.device, network.dtype) for place in group]))
        with as_found(network), torch.no_grad():
            found |= dict(zip(group, located(module(inputs), spectrogram, module.windows, most), strict=True))
    return [found[place] for place in range(len(given))]


def parts(network: Network) -> tuple[Spectrogram, SoundNet]:
    """The network's own, where it is one for sounds."""
    if not isinstance(network.transform, Spectrogram) or not isinstance(network.module, SoundNet):
        mend = "fovea.load('anchornet_sound'), or the weights that recipes/anchornet_sound-made.toml trains"
        raise BadChoice(f"{network.name or 'the network'} is not one for sounds: {mend}")
    return network.transform, network.module


def located(out: AnchorNetOutput, spectrogram: Spectrogram, windows: Sequence[int], most: int = 1) -> list[Heard]:
    """The spans of what the network gave for a batch."""
    decision, found = out.decision, []
    for i, (label, branch) in enumerate(zip(decision.label.tolist(), decision.branch.tolist(), strict=True)):
        seen, window = out.branches[branch], windows[branch]
        activation, evidence = seen.activation[i, label], seen.evidence[i, label]  # T each
        own = []
        for cell in _apart(activation, window, spectrogram, most):
            start, stop = spectrogram.seconds(cell, window)
            own.append(TimeSpan(start, stop, float(evidence[cell]), float(activation[cell])))
        found.append(Heard(label, float(decision.probability[i]), branch, tuple(own)))
    return found


def _apart(activation: Tensor, window: int, spectrogram: Spectrogram, most: int) -> list[int]:
    """The best cell, then the best of those that share no sample with the ones before."""
    if most == 1:
        return [int(activation.argmax())]
    kept: list[int] = []
    for cell in activation.argsort(descending=True).tolist():
        start, stop = spectrogram.samples(cell, window)
        others = [spectrogram.samples(one, window) for one in kept]
        if all(stop <= first or last <= start for first, last in others):
            kept.append(cell)
            if len(kept) == most:
                break
    return kept
