"""What explaining a folder of photographs costs, from the files to the page, in bare forwards of the same pictures."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fovea.basics import BadChoice
from fovea.heatmaps import explain_batches
from fovea.heatmaps.methods import Method, chosen
from fovea.measures import Figures, Run, measure
from fovea.measures.timing import now
from fovea.networks import Network, as_found, groups, input_of
from fovea.pictures import expand
from fovea.results import Writer

MADE, SIZE, QUALITY = 16, (500, 375), 90  # different ones, the rest are copies; pixels, and of JPEG
AT_ONCE = 256  # tensors that wait in memory while bare forwards are timed
FEW = 4  # pictures that pass at once in the other bare forwards: in a processor's cache they may be the faster ones
TOGETHER = "all at once"


class Spent(NamedTuple):
    wall: float
    processor: float  # of all threads


@measure(
    "bench folder",
    title="Time of explaining a folder",
    about="Time of explaining a folder of photographs, after start-up, beside the bare forward passes of the same "
    "pictures. Decoding, looking, drawing and writing are counted, and memory as the folder grows.",
    example="--counts 100",
    data="none",
    any_size=True,
    usual={"device": "cpu"},
)
def bench_folder(
    run: Run,
    *,
    data: str | None = None,
    counts: Sequence[int] = (500, 1000),
    method: Sequence[str] = ("l2caf",),
    batch: int = 16,
    rounds: int = 3,
) -> Figures:
    """Rows of each number of pictures: the bare forwards, and all of it; of the first number also the parts. A part's
    processor time is what it adds to the parts before it. Pictures are those below a folder, over and over where more
    are asked for; or made ones."""
    if not counts:
        raise BadChoice("name one or more numbers of pictures, as --counts 500; got none")
    source, network, methods = data or run.given.data, run.network.fitted(), chosen(list(method))
    rows, skipped = list[dict[str, Any]](), dict[str, str]()
    with tempfile.TemporaryDirectory() as place, as_found(network):
        files = expand(source) if source else list(made(Path(place)))
        sides = _sides(files)
        Pass(network, linked(files, Path(place, "first"), 2 * batch), methods, batch).everything()  # starts up
        for number, count in enumerate(counts):
            one = Pass(network, linked(files, Path(place, str(number)), count), methods, batch)
            run.tell(f"{count:,} pictures")
            rows += _rows(one, rounds if number == 0 else 1, number == 0)
            skipped |= {str(files[int(Path(link).stem) % len(files)]): reason for link, reason in one.skipped}
            run.progress(sum(counts[: number + 1]), sum(counts))
    told = {"net": network.name, "method": ", ".join(method), "batch": batch}
    settings = {
        "pictures": f"{len(files)} {'photographs, over and over' if source else 'made ones, copied'}, {sides}",
        "input": input_of(network),
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "device": network.device.type,
        "torch": torch.__version__,
        "x_forward": f"seconds of all of it in those of the bare forwards before and after, {batch} pictures at once, "
        f"median over the rounds; x_best_forward: in those of the faster ones, {batch} or {FEW} at once",
        "processor_s": "of all threads; of a part, what it adds to those before it",
        "peak_mb": "of the process, weights and libraries included",
    }
    return Figures("bench folder", settings, [told | row for row in rows], list(skipped.items()))


def made(folder: Path) -> Iterator[Path]:
    """Photographs that are none, of the size and detail of some."""
    generator = np.random.default_rng(0)
    for number in range(MADE):
        layers = [generator.integers(0, 256, (3 * fine, 4 * fine, 3), dtype=np.uint8) for fine in (2, 10, 60)]
        drawn = [np.asarray(Image.fromarray(layer).resize(SIZE, Image.Resampling.BICUBIC), float) for layer in layers]
        path = folder / f"made-{number}.jpg"
        Image.fromarray((drawn[0] * 0.6 + drawn[1] * 0.3 + drawn[2] * 0.1).astype(np.uint8)).save(path, quality=QUALITY)
        yield path


def _sides(files: Sequence[Path]) -> str:
    """The side lengths of the median picture of some."""
    sizes = []
    for path in files[:: max(len(files) // 100, 1)]:
        with suppress(OSError), Image.open(path) as picture:
            sizes.append(picture.size)
    width, height = map(median, zip(*sizes, strict=True))
    return f"{width:.0f} x {height:.0f} pixels in the median"


def linked(files: Sequence[Path], folder: Path, count: int) -> Path:
    """So many pictures in a folder, each by a name of its own."""
    folder.mkdir()
    for number in range(count):
        path = files[number % len(files)].absolute()
        os.symlink(path, folder / f"{number:06}{path.suffix}")
    return folder


@dataclass(frozen=True)
class Pass:
    """One way or another through a folder."""

    network: Network
    folder: Path
    methods: Sequence[Method]
    batch: int
    skipped: list[tuple[str, str]] = field(default_factory=list)

    def spent(self, work: Callable[[], None]) -> Spent:
        start, before = now(self.network.device), time.process_time()
        work()
        return Spent(now(self.network.device) - start, time.process_time() - before)

    def forwards(self, most: int) -> Spent:
        """The module alone on the tensors that the loop gives it, `most` at once, which wait in memory."""
        total, found = Spent(0.0, 0.0), self._tensors()
        while waiting := list(islice(found, max(AT_ONCE // self.batch, 1))):
            some = self.spent(partial(self._run, [part for tensors in waiting for part in torch.split(tensors, most)]))
            total = Spent(total.wall + some.wall, total.processor + some.processor)
        return total

    def _tensors(self) -> Iterator[Tensor]:
        found = groups(self.network, str(self.folder), self.batch)
        return (group.batch for group in found if group.batch is not None)

    def _run(self, batches: Sequence[Tensor]) -> None:
        with torch.no_grad():
            for tensors in batches:
                self.network.module(tensors)

    def decoding(self) -> None:
        for _ in self._tensors():
            pass

    def looking(self) -> None:
        for _ in self._steps():
            pass

    def drawing(self) -> None:
        for step in self._steps():
            for result in step.results:
                result.view().pictures()

    def everything(self) -> None:
        """As `fovea explain` does."""
        with tempfile.TemporaryDirectory() as out, Writer(Path(out), "explain", self.network.settings()) as writer:
            for step in self._steps():
                writer.add(step.results, step.skipped)
                self.skipped.extend(step.skipped)

    def _steps(self) -> Iterator[Any]:
        return explain_batches(self.network, str(self.folder), self.methods, batch=self.batch)


def _rows(one: Pass, rounds: int, parts: bool) -> Iterator[dict[str, Any]]:
    count = len(os.listdir(one.folder))
    bare, together, peaks = [one.forwards(one.batch)], list[Spent](), list[float | None]()
    for _ in range(rounds):
        if os.path.exists(peak := "/proc/self/clear_refs"):  # Linux counts the memory's peak anew from here on
            Path(peak).write_text("5")
        together.append(one.spent(one.everything))
        peaks.append(_peak_mb())
        bare.append(one.forwards(one.batch))
    ratios = {
        field: median(
            2 * getattr(all_of_it, field) / (getattr(before, field) + getattr(after, field))
            for before, all_of_it, after in zip(bare, together, bare[1:], strict=False)
        )
        for field in Spent._fields
    }

    def row(stage: str, wall: float | None, processor: float, **more: Any) -> dict[str, Any]:
        pace = None if wall is None else round(wall / count * 1e3, 2)
        times = {"wall_s": None if wall is None else round(wall, 3), "processor_s": round(processor, 3)}
        return {"pictures": count, "stage": stage, **times, "ms_per_picture": pace, **more}

    whole = median(spent.processor for spent in together)
    wall, few = median(spent.wall for spent in bare), one.forwards(FEW)
    yield row("bare forwards", wall, median(spent.processor for spent in bare), x_forward=1.0)
    yield row(f"bare forwards, {FEW} at once", *few, x_forward=round(few.wall / wall, 3))
    if parts:
        taken = [0.0, *(one.spent(work).processor for work in (one.decoding, one.looking, one.drawing)), whole]
        for place, stage in enumerate(("decoding", "looking", "drawing", "writing")):
            yield row(stage, None, max(taken[place + 1] - taken[place], 0.0))
    yield row(
        TOGETHER,
        median(spent.wall for spent in together),
        whole,
        x_forward=round(ratios["wall"], 3),
        x_best_forward=round(median(spent.wall for spent in together) / min(wall, few.wall), 3),
        x_processor=round(ratios["processor"], 3),
        peak_mb=max((peak for peak in peaks if peak is not None), default=None),
    )


def _peak_mb() -> float | None:
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return next((round(int(line.split()[1]) / 1024, 1) for line in lines if line.startswith("VmHWM")), None)
