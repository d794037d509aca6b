"""Can a map be believed: does it hang on the weights, do other methods agree, does it stay where the picture is the
same but for a shift, a flip, or JPEG?"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from io import BytesIO
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice
from fovea.evidence.where import Seen, again
from fovea.heatmaps import randomized_copy, rank_correlation
from fovea.networks import Network, classes, normalization_of
from fovea.pictures import Shown
from fovea.results import spaced

SHIFT = 8  # pixels of the input, down and to the right; a seventh of a small one
QUALITY = 50  # of JPEG
CHANGES = ("shift", "flip", "jpeg")
HANGS, AGREES, HOLDS = 0.8, 0.5, 0.5  # rank correlations: above the first a map hardly depends on the last layer
PHRASES = {"shift": "shifted by a few pixels", "flip": "mirrored", "jpeg": f"saved as JPEG of quality {QUALITY}"}


@dataclass(frozen=True)
class ChangedMap:
    """A picture that was changed a little: how alike its map is, and whether it has the same answer."""

    correlation: float
    label: str
    same: bool


@dataclass(frozen=True)
class Trust:
    """Rank correlations with the answer's map: with a random last layer, by other methods, of changed pictures."""

    random: float
    methods: Mapping[str, float]
    changes: Mapping[str, ChangedMap]

    @property
    def doubts(self) -> list[str]:
        """In words, what speaks against the map; nothing where all is well."""
        found = []
        if self.random > HANGS:
            found.append(f"a random last layer gives nearly the same map (rank correlation {self.random:.2f})")
        for name, alike in self.methods.items():
            if alike < AGREES:
                found.append(f"{name} shows another map (rank correlation {alike:.2f})")
        for change, held in self.changes.items():
            if not held.same:
                found.append(f"{PHRASES[change]}, it is taken for {spaced(held.label)}")
            elif held.correlation < HOLDS:
                found.append(f"{PHRASES[change]}, it has another map (rank correlation {held.correlation:.2f})")
        return found

    def to_dict(self) -> dict[str, Any]:
        changes = {change: asdict(held) for change, held in self.changes.items()}
        return {"random": self.random, "methods": dict(self.methods), "changes": changes, "doubts": self.doubts}


class Copy:
    """A copy of the network with random last layers, made once."""

    def __init__(self, network: Network) -> None:
        self.network, self.made = network, list[Network]()

    def of(self, batch: Tensor) -> Network:
        if not self.made:
            with torch.inference_mode(False):  # in which gradients could not pass the copy
                self.made.append(randomized_copy(self.network, "logits", 0, self._last(batch)))
        return self.made[0]

    def _last(self, batch: Tensor) -> Sequence[str]:
        """The layers that give one number per class, of which a network with branches has several; the last that runs
        where none does."""
        width = len(self.network.labels or ())
        sized = [
            name
            for name, layer in self.network.module.named_modules()
            if any(weights.ndim > 1 and len(weights) == width for weights in layer.parameters(recurse=False))
        ]
        last = None if sized else classes.last_to_run(self.network, batch[:1], partial(classes.has_weights, axes=2))[0]
        return sized or [last or ""]


def trusted(copy: Copy, tensors: Tensor, shown: Sequence[Shown], seen: Seen) -> list[Trust]:
    """Of every picture of a batch, from one pass for the copy and one for each change."""
    network, answers = copy.network, seen.classes[:, 0]
    true = _maps(seen.shares)
    other, _ = again(copy.of(tensors), tensors, shown, answers)
    random = [rank_correlation(a, b) for a, b in zip(true, _maps(other), strict=True)]
    methods = {name: _maps(maps) for name, maps in seen.others.items()}
    changed = {change: version for change in CHANGES if (version := _changed(change, network, tensors)) is not None}
    count = len(tensors)
    maps, output = again(network, torch.cat([*changed.values()]), [*shown] * len(changed), answers.repeat(len(changed)))
    cells, labels = _maps(maps), output.argmax(1).tolist()
    found = []
    for i, own in enumerate(true):
        held = dict[str, ChangedMap]()
        for k, change in enumerate(changed):
            place = k * count + i
            alike = rank_correlation(*_aligned(change, own, cells[place], tensors.shape[2:]))
            held[change] = ChangedMap(alike, network.label(labels[place]), labels[place] == int(answers[i]))
        agree = {name: rank_correlation(own, each[i]) for name, each in methods.items()}
        found.append(Trust(random[i], agree, held))
    return found


def _maps(maps: Any) -> list[NDArray[np.float32]]:
    """The first map of every picture, its part that speaks for the target."""
    return [heatmap.map().clip(0) for heatmap in maps]


def _changed(change: str, network: Network, tensors: Tensor) -> Tensor | None:
    """None where the network's pixels are not known, or none that JPEG has."""
    if change == "flip":
        return tensors.flip(3)
    if change == "shift":
        by = _shift(tensors.shape[2:])
        return F.pad(tensors, (by, 0, by, 0), mode="replicate")[..., : tensors.shape[2], : tensors.shape[3]]
    if tensors.shape[1] not in (1, 3):
        return None
    try:
        line = normalization_of(network)
    except BadChoice:
        return None
    pixels = line.to_pixels(tensors.float()).round().clamp(0, 255).byte().permute(0, 2, 3, 1).cpu().numpy()
    rows = [torch.from_numpy(_saved(picture)).permute(2, 0, 1) for picture in pixels]
    return line.to_tensors(torch.stack(rows).to(tensors.device, torch.float32)).to(tensors.dtype)


def _shift(size: Sequence[int]) -> int:
    return max(min(SHIFT, min(size) // 7), 1)


def _saved(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    buffer = BytesIO()
    Image.fromarray(pixels.squeeze()).save(buffer, "jpeg", quality=QUALITY)
    return np.array(Image.open(buffer)).reshape(pixels.shape)


def _aligned(
    change: str, own: NDArray[np.float32], other: NDArray[np.float32], size: Sequence[int]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """The two maps where the same parts of the picture lie at the same place."""
    if change == "flip":
        return own, other[:, ::-1]
    if change != "shift":
        return own, other
    fine = [max(side // _shift(size), 2) for side in size]  # cells of as many pixels as it was shifted by
    first, second = (
        F.interpolate(torch.from_numpy(np.ascontiguousarray(m))[None, None], fine, mode="bilinear")[0, 0].numpy()
        for m in (own, other)
    )
    return first[:-1, :-1], second[1:, 1:]
