"""Batches for training and testing: from bytes held in memory (decoded once), or decoded by workers as they come."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fovea.basics.errors import BadChoice, BadPicture
from fovea.data import DataSet, Sample
from fovea.models.twostream import Views
from fovea.networks.network import Network
from fovea.pictures.placement import inwards
from fovea.pictures.transforms import Prepare
from fovea.training.augment import crops, cut_out, recolor
from fovea.training.recipe import AugmentPart, DataPart

Progress = Callable[[int, int], None]
T = TypeVar("T")
AHEAD = 256  # pictures decoded before they are asked for
MOST_HELD = 8 * 2**30  # bytes that `hold = "auto"` keeps


@dataclass(frozen=True)
class Batch:
    inputs: Tensor | Views  # N,C,H,W
    target: Tensor  # N
    index: Tensor  # N: which samples of the set


@dataclass(frozen=True)
class Wanted:
    """One step's pictures: which, and the random numbers that each is cut and coloured by."""

    index: Tensor  # N
    draws: Tensor  # N,8
    more: Tensor = field(default_factory=lambda: torch.empty(0))  # N,2: for feeds that choose among several patches


class Named(Protocol):
    @property
    def name(self) -> str: ...


class Feed(Protocol):
    """Training batches of a set."""

    @property
    def samples(self) -> Sequence[Named]: ...  # that can be read

    skipped: list[tuple[str, str]]

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]: ...


def labels_of(feed: Feed) -> list[int]:
    """The class of every sample, for feeds whose samples have one."""
    labels = [getattr(sample, "label", None) for sample in feed.samples]
    if any(label is None for label in labels):
        raise BadChoice("per_class needs samples with a class each; these have none")
    return [int(label) for label in labels if label is not None]


def preparing(network: Network) -> Prepare:
    if not isinstance(network.transform, Prepare):
        raise BadChoice(
            f"{network.name or 'the network'} has no transform that training can take apart: give a Prepare"
        )
    return network.transform


def feed(
    network: Network, data: DataSet, part: DataPart, augment: AugmentPart, device: torch.device, progress: Progress
) -> Feed:
    """Held where it fits, or where the recipe says so; streamed otherwise."""
    prepare = preparing(network)
    side = part.side or round(max(prepare.size) * 8 / 7)
    size = len(data) * len(prepare.mean) * side * side
    held = part.hold is True or (part.hold == "auto" and size <= room(device))
    return (
        Held(prepare, data, side, augment, device, progress)
        if held
        else Streamed(prepare, data, part.workers, augment, device)
    )


def room(device: torch.device) -> int:
    """Bytes to hold at most; processes of one machine share its memory."""
    main = MOST_HELD // int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    return min(main, torch.cuda.mem_get_info(device)[0] // 2) if device.type == "cuda" else main


class Held:
    """Every picture decoded once, squashed to a square of bytes; windows are cut out of it on the device."""

    def __init__(
        self,
        prepare: Prepare,
        data: DataSet,
        side: int,
        augment: AugmentPart,
        device: torch.device,
        progress: Progress,
    ) -> None:
        self.prepare, self.augment, self.device = prepare, augment, device
        self.skipped: list[tuple[str, str]] = []
        shown = Prepare((side, side), prepare.mean, prepare.std, None, prepare.interpolation)
        pixels = torch.empty(len(data), len(prepare.mean), side, side, dtype=torch.uint8)
        kept: list[tuple[Sample, tuple[int, int]]] = []
        stream = _decoded(data, lambda image: (shown.pixels(image), image.size), self.skipped, progress)
        for i, (sample, (shrunk, size)) in enumerate(stream):
            pixels[i] = shrunk
            kept.append((sample, size))
        self.samples = tuple(sample for sample, _ in kept)
        self.pixels = pixels[: len(kept)].to(device)
        self.sizes = torch.tensor([size for _, size in kept], dtype=torch.float32).to(device)
        self.labels = torch.tensor([sample.label for sample in self.samples]).to(device)

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        for one in wanted:
            index, draws = one.index.to(self.device), one.draws.to(self.device)
            windows = crops(draws, self.sizes[index], self.augment)
            flips = (draws[:, 4] < 0.5) & self.augment.flip
            pixels = cut_out(self.pixels[index], windows, flips, self.prepare.size)
            pixels = recolor(pixels, draws, self.augment)
            yield Batch(self.prepare.normalise(pixels), self.labels[index], one.index)


class Streamed:
    """Pictures decoded by worker processes when their turn comes."""

    def __init__(
        self, prepare: Prepare, data: DataSet, workers: int, augment: AugmentPart, device: torch.device
    ) -> None:
        self.prepare, self.augment, self.device, self.workers = prepare, augment, device, workers
        self.samples, self.skipped = data.samples, list[tuple[str, str]]()

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        loader = DataLoader(
            _Windows(self.samples, self.prepare, self.augment),
            batch_sampler=_Turns(wanted),  # type: ignore[arg-type]
            num_workers=self.workers,
            collate_fn=_collected,
            generator=torch.Generator(),  # its own, so that the common one is where the step put it
            pin_memory=self.device.type == "cuda",
            multiprocessing_context="spawn" if self.workers else None,  # a fork of a process with threads can hang
        )
        seen: set[str] = set()
        for pixels, labels, turns, bad in loader:
            self.skipped += [reason for reason in bad if reason[0] not in seen]
            seen |= {name for name, _ in bad}
            pixels = pixels.to(self.device, non_blocking=True).float()
            pixels = recolor(pixels, turns.draws.to(self.device), self.augment)
            yield Batch(self.prepare.normalise(pixels), labels.to(self.device, non_blocking=True), turns.index)


Turn = tuple[int, Tensor]
Cut = tuple[Tensor, int, Turn, list[tuple[str, str]]]  # bytes C,H,W, label, whose turn it was, what could not be read


@dataclass(frozen=True)
class _Turns:
    wanted: Iterable[Wanted]

    def __iter__(self) -> Iterator[list[Turn]]:
        for one in self.wanted:
            yield list(zip(one.index.tolist(), one.draws, strict=True))


@dataclass(frozen=True)
class _Windows(Dataset[Cut]):
    samples: tuple[Sample, ...]
    prepare: Prepare
    augment: AugmentPart

    def __getitem__(self, turn: Turn) -> Cut:
        """A picture that cannot be read is stood in for by the next that can, so that batches keep their size."""
        index, draws = turn
        bad: list[tuple[str, str]] = []
        for i in range(len(self.samples)):
            sample = self.samples[(index + i) % len(self.samples)]
            try:
                return self._cut(sample.source.read(), draws), sample.label, turn, bad
            except BadPicture as reason:
                bad.append((sample.name, str(reason)))
        raise BadPicture(f"none of {len(self.samples)} pictures could be read: {bad[0][1]}")

    def _cut(self, image: Image.Image, draws: Tensor) -> Tensor:
        size = torch.tensor([image.size], dtype=torch.float32)
        x0, y0, x1, y1 = (crops(draws[None], size, self.augment)[0] * size.repeat(1, 2)[0]).tolist()
        height, width = self.prepare.size
        method = Image.Resampling[self.prepare.interpolation.upper()]
        small = image.resize((width, height), method, box=(x0, y0, min(x1, image.width), min(y1, image.height)))
        if self.augment.flip and draws[4] < 0.5:
            small = small.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        if len(self.prepare.mean) == 1:
            small = small.convert("L")
        return torch.from_numpy(np.array(small)).reshape(height, width, -1).permute(2, 0, 1)


def _collected(cuts: list[Cut]) -> tuple[Tensor, Tensor, Wanted, list[tuple[str, str]]]:
    pixels, labels, turns, bad = zip(*cuts, strict=True)
    index, draws = zip(*turns, strict=True)
    asked = Wanted(torch.tensor(index), torch.stack(draws))
    return torch.stack(pixels), torch.tensor(labels), asked, [reason for reasons in bad for reason in reasons]


def _decoded(
    data: DataSet, made: Callable[[Image.Image], T], skipped: list[tuple[str, str]], progress: Progress
) -> Iterator[tuple[Sample, T]]:
    """Samples with what was made of their pictures, decoded in threads; those that cannot be read are noted."""

    def one(sample: Sample) -> T | BadPicture:
        try:
            return made(sample.source.read())
        except BadPicture as reason:
            return reason

    count = 0
    with ThreadPoolExecutor() as pool:
        for start in range(0, len(data), AHEAD):
            chunk = data.samples[start : start + AHEAD]
            for done, (sample, result) in enumerate(zip(chunk, pool.map(one, chunk), strict=True), start + 1):
                progress(done, len(data))
                if isinstance(result, BadPicture):
                    skipped.append((sample.name, str(result)))
                else:
                    count += 1
                    yield sample, result
    if skipped and not count:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1]}")


class HeldOut:
    """A test set as the network takes it: held as bytes where it fits, decoded anew at every test otherwise."""

    def __init__(self, network: Network, data: DataSet, device: torch.device, progress: Progress) -> None:
        self.prepare, self.data, self.device = preparing(network), data, device
        self.skipped: list[tuple[str, str]] = []
        self.held: tuple[Tensor, Tensor] | None = None
        self.shown: list[tuple[Sample, tuple[int, int]]] = []  # whose pictures are held, and their width and height
        height, width = self.prepare.size
        self.count = len(data)
        if len(data) * len(self.prepare.mean) * height * width <= room(device):
            rows = list(_decoded(data, self._sized, self.skipped, progress))
            self.held = self._stacked([(sample, pixels) for sample, (pixels, _) in rows])
            self.shown = [(sample, size) for sample, (_, size) in rows]
            self.count = len(rows)

    def __len__(self) -> int:
        """Pictures that can be read, as far as that is known."""
        return self.count

    def batches(self, size: int, rank: int = 0, world: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of this process's share of the set."""
        for pixels, labels, _ in self.pixels(size, rank, world):
            yield self.prepare.normalise(pixels), labels

    def with_boxes(self, size: int, rank: int = 0, world: int = 1) -> Iterator[tuple[Tensor, Tensor, list[Tensor]]]:
        """The same, and the boxes of each picture, K,4 in the input's pixels."""
        for pixels, labels, shown in self.pixels(size, rank, world):
            boxes = [inwards(sample.boxes, self.prepare.placement(*own)) for sample, own in shown]
            yield self.prepare.normalise(pixels), labels, boxes

    def pixels(
        self, size: int, rank: int = 0, world: int = 1
    ) -> Iterator[tuple[Tensor, Tensor, list[tuple[Sample, tuple[int, int]]]]]:
        if self.held is not None:
            pixels, labels = (one[rank::world] for one in self.held)
            shown = self.shown[rank::world]
            for start in range(0, len(pixels), size):
                part = slice(start, start + size)
                yield pixels[part], labels[part], shown[part]
            return
        mine = replace(self.data, samples=self.data.samples[rank::world])
        self.skipped.clear()
        stream = _decoded(mine, self._sized, self.skipped, lambda done, total: None)
        while rows := list(islice(stream, size)):
            pixels, labels = self._stacked([(sample, pixels) for sample, (pixels, _) in rows])
            yield pixels, labels, [(sample, own) for sample, (_, own) in rows]

    def _sized(self, image: Image.Image) -> tuple[Tensor, tuple[int, int]]:
        return self.prepare.pixels(image), image.size

    def _stacked(self, rows: list[tuple[Sample, Tensor]]) -> tuple[Tensor, Tensor]:
        pixels = torch.stack([pixels for _, pixels in rows]).to(self.device)
        return pixels, torch.tensor([sample.label for sample, _ in rows], device=self.device)
