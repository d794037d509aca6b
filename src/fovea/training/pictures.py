"""Pictures for training and testing: from bytes held in memory (decoded once), or decoded by workers as they come."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fovea.basics import BadPicture
from fovea.data import DataSet, Sample
from fovea.networks import Network
from fovea.pictures import Prepare, batched, decoded
from fovea.training.augment import crops, cut_out, kernels, recolor
from fovea.training.feed import Batch, Device, Feed, Inputs, Progress, Size, Wanted, preparing, room
from fovea.training.recipe import AugmentPart, DataPart
from fovea.training.sharing import Skipped, Told, beside, filled

T = TypeVar("T")
MOST_WORKERS = 8  # processes that decode unless a recipe says how many: each holds some hundred megabytes
Gathered = tuple[Tensor, list[tuple[Sample, Size]]]  # bytes N,C,H,W, whose they are
Stack = tuple[Tensor, Tensor, list[tuple[Sample, Size]]]  # bytes N,C,H,W, labels N, whose they are


def feed(
    network: Network, data: DataSet, part: DataPart, augment: AugmentPart, device: torch.device, progress: Progress
) -> Feed:
    """Held where it fits, or where the recipe says so; streamed otherwise."""
    prepare = preparing(network)
    if part.hold is True or (part.hold == "auto" and held_bytes(prepare, data, part.side) <= room(device)):
        return Held(prepare, data, part.side, augment, device, progress)
    workers = min(max(_cores(), 2), MOST_WORKERS) if part.workers is None else part.workers
    return Streamed(prepare, data, workers, augment, device)


def _cores() -> int:
    """Of this machine, for each of its processes."""
    return max((os.cpu_count() or 1) // beside(), 1)


def side_of(prepare: Prepare, side: int | None) -> int:
    """Of the square that a held picture is kept in."""
    return side or round(max(prepare.size) * 8 / 7)


def held_bytes(prepare: Prepare, data: DataSet, side: int | None) -> int:
    return len(data) * len(prepare.mean) * side_of(prepare, side) ** 2


class Held(Feed):
    """Every picture decoded once, squashed to a square of bytes; windows are cut out of it on the device."""

    samples: Sequence[Sample]

    def __init__(
        self, prepare: Prepare, data: DataSet, side: int | None, part: AugmentPart, device: Device, progress: Progress
    ) -> None:
        self.prepare, self.augment, side = prepare, part, side_of(prepare, side)
        shown = Prepare((side, side), prepare.mean, prepare.std, None, prepare.interpolation)
        skipped: list[tuple[str, str]] = []
        self.pixels, rows = _gathered(data, shown, device, skipped, progress)
        super().__init__([sample for sample, _ in rows], [sample.label for sample, _ in rows], device)
        self.skipped = skipped
        self.sizes = torch.tensor([size for _, size in rows], dtype=torch.float32).to(device)

    def inputs(self, wanted: Wanted) -> Inputs:
        part, pixels = self.augment, self.pixels[wanted.index]
        cropped = part.area != [1, 1] or part.aspect is not None or pixels.shape[2:] != self.prepare.size
        if part.flip or part.kernels or cropped:
            windows = crops(wanted.draws, self.sizes[wanted.index], part)
            pixels = cut_out(pixels, windows, self.flips(wanted), self.prepare.size, kernels(wanted.draws, part))
        return self.prepare.normalize(recolor(pixels, wanted.draws, self.augment))

    def one_of(self, counts: Tensor, wanted: Wanted) -> Tensor:
        """Of so many patches of each picture, the number of the one whose turn it is."""
        return (wanted.more[:, 1] * counts).long().clamp(max=counts - 1)

    def flips(self, wanted: Wanted) -> Tensor:
        return (wanted.draws[:, 4] < 0.5) & self.augment.flip


class Streamed(Feed):
    """Pictures decoded by worker processes when their turn comes."""

    def __init__(self, prepare: Prepare, data: DataSet, workers: int, augment: AugmentPart, device: Device) -> None:
        super().__init__(data.samples, [sample.label for sample in data.samples], device)
        self.windows, self.workers = _Windows(data.samples, prepare, augment), workers

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        loader = DataLoader(
            self.windows,
            batch_sampler=wanted,  # type: ignore[arg-type]
            num_workers=self.workers,
            collate_fn=_together,
            generator=torch.Generator(),  # its own, so that the common one is where the step put it
            pin_memory=self.device.type == "cuda",
            multiprocessing_context="spawn" if self.workers else None,  # a fork of a process with threads can hang
        )
        known: set[str] = set()
        for pixels, labels, step, bad in loader:
            self.skipped += [reason for reason in bad if reason[0] not in known]
            known |= {name for name, _ in bad}
            pixels = pixels.to(self.device, non_blocking=True).float()
            pixels = recolor(pixels, step.draws.to(self.device), self.windows.augment)
            inputs = self.windows.prepare.normalize(pixels)
            yield Batch(inputs, labels.to(self.device, non_blocking=True), step.index)


Cut = tuple[Tensor, Tensor, Wanted, list[tuple[str, str]]]  # bytes N,C,H,W, labels N, for which step, what is broken


def _together(cut: Any) -> Any:
    """What a worker gives is a batch already."""
    return cut


@dataclass(frozen=True)
class _Windows(Dataset[Cut]):
    samples: tuple[Sample, ...]
    prepare: Prepare
    augment: AugmentPart

    def __getitems__(self, wanted: Wanted) -> Cut:
        bad: list[tuple[str, str]] = []
        turns = zip(wanted.index.tolist(), wanted.draws, strict=True)
        pixels, labels = zip(*(self._window(index, draws, bad) for index, draws in turns), strict=True)
        return torch.stack(pixels), torch.tensor(labels), wanted, bad

    def _window(self, index: int, draws: Tensor, bad: list[tuple[str, str]]) -> tuple[Tensor, int]:
        """A picture that cannot be read is stood in for by the next that can, so that batches keep their size."""
        for i in range(len(self.samples)):
            sample = self.samples[(index + i) % len(self.samples)]
            try:
                return self._cut(sample.read(), draws), sample.label
            except BadPicture as reason:
                bad.append((sample.name, str(reason)))
        raise BadPicture(f"none of {len(self.samples)} pictures could be read: {bad[0][1]}")

    def _cut(self, image: Image.Image, draws: Tensor) -> Tensor:
        size = torch.tensor([image.size], dtype=torch.float32)
        window, (height, width) = crops(draws[None], size, self.augment), self.prepare.size
        if self.augment.kernels:
            whole = torch.from_numpy(np.array(image.convert("L" if len(self.prepare.mean) == 1 else "RGB")))
            pixels = whole.reshape(1, image.height, image.width, -1).permute(0, 3, 1, 2)
            flip = (draws[None, 4] < 0.5) & self.augment.flip
            drawn = kernels(draws[None], self.augment)
            return cut_out(pixels, window, flip, (height, width), drawn)[0].round().to(torch.uint8)
        x0, y0, x1, y1 = (window[0] * size.repeat(1, 2)[0]).tolist()
        method = Image.Resampling[self.prepare.interpolation.upper()]
        small = image.resize((width, height), method, box=(x0, y0, min(x1, image.width), min(y1, image.height)))
        if self.augment.flip and draws[4] < 0.5:
            small = small.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if len(self.prepare.mean) == 1:
            small = small.convert("L")
        return torch.from_numpy(np.array(small)).reshape(height, width, -1).permute(2, 0, 1)


def _read(data: DataSet, made: Callable[[Image.Image], T], skipped: Skipped) -> Iterator[tuple[Sample, T]]:
    """Samples with what was made of their pictures; those that cannot be read are noted, unless none can."""
    count = 0
    for place, result in decoded(data.samples, made, skipped, threads=_cores()):
        count += 1
        yield data.samples[place], result
    if skipped and not count:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")


def _gathered(data: DataSet, prepare: Prepare, device: Device, skipped: Skipped, progress: Progress) -> Gathered:
    """The bytes of every picture that can be read, on the device that they are held on."""

    def fill(pixels: Tensor, mine: range) -> tuple[Told[tuple[int, Size]], Skipped]:
        told, missing = Told[tuple[int, Size]](), Skipped()
        samples = data.samples[mine.start : mine.stop]
        made = decoded(samples, lambda image: (prepare.pixels(image), image.size), missing, threads=_cores())
        for place, (small, size) in made:
            pixels[mine[place]] = small
            told.append((mine[place], (mine[place], size)))
            progress(place + 1, len(mine))
        return told, missing

    pixels, known, missing = filled((len(data), len(prepare.mean), *prepare.size), torch.uint8, device, fill)
    skipped += missing
    if missing and not known:
        raise BadPicture(f"no picture of {data.name} could be read: {missing[0][1]}")
    return pixels, [(data.samples[number], size) for number, size in known]


class HeldOut:
    """A test set as the network takes it: held as bytes where it fits, decoded anew at every test otherwise."""

    def __init__(self, network: Network, data: DataSet, device: torch.device, progress: Progress) -> None:
        self.prepare, self.data, self.device = preparing(network), data, device
        self.skipped: list[tuple[str, str]] = []
        self.held: Stack | None = None
        height, width = self.prepare.size
        if len(data) * len(self.prepare.mean) * height * width <= room(device):
            pixels, rows = _gathered(data, self.prepare, device, self.skipped, progress)
            self.held = pixels, torch.tensor([sample.label for sample, _ in rows], device=device), rows

    def __len__(self) -> int:
        """Pictures that can be read, as far as that is known."""
        return len(self.data if self.held is None else self.held[0])

    def in_order(self, size: int, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """This process's share of the set."""
        if self.held is not None:
            pixels, labels, shown = self.held[0][rank::world], self.held[1][rank::world], self.held[2][rank::world]
            for start in range(0, len(pixels), size):
                part = slice(start, start + size)
                yield self._batch(pixels[part], labels[part], shown[part], start)
            return
        mine, start = replace(self.data, samples=self.data.samples[rank::world]), 0
        self.skipped.clear()
        read = _read(mine, lambda image: (self.prepare.pixels(image), image.size), self.skipped)
        for rows in batched(read, size):
            yield self._batch(*self._stacked(rows), start)
            start += len(rows)

    def _batch(self, pixels: Tensor, labels: Tensor, shown: list[tuple[Sample, Size]], start: int) -> Batch:
        return Batch(self.prepare.normalize(pixels), labels, torch.arange(start, start + len(labels)), shown)

    def _stacked(self, rows: list[tuple[Sample, tuple[Tensor, Size]]]) -> Stack:
        pixels = torch.stack([small for _, (small, _) in rows]).to(self.device)
        labels = torch.tensor([sample.label for sample, _ in rows], device=self.device)
        return pixels, labels, [(sample, size) for sample, (_, size) in rows]
