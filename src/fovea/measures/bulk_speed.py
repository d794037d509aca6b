"""What an engine makes of a machine: pictures per second of bulk work, beside bare processes that share nothing."""

import multiprocessing
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fovea.basics import BadPicture, processors
from fovea.heatmaps import DEFAULT, chosen
from fovea.jobs import ENGINES, bulk
from fovea.measures import Figures, Run, measure
from fovea.measures.folder_speed import Pass, linked, made
from fovea.networks import Network, input_of
from fovea.pictures import expand, read

Skipped = Sequence[tuple[str, str]]
PAGE, BATCH = "local, with a page", 16  # as `fovea explain` does without --parquet
PATIENCE = 600  # seconds that bare processes wait for each other
AT_ONCE = (16, 4)  # pictures per forward of a bare process: the quicker counts, by its median


@measure(
    "bench bulk",
    title="Time of bulk work",
    about="Time of explaining many pictures into Parquet by each engine. For comparison, one bare process per "
    "processor decodes its share of the pictures and runs the network on it, with one thread each.",
    example="--count 200",
    data="none",
    any_size=True,
    usual={"device": "cpu"},
    columns=("engine", "workers", "pictures", "per_second", "x_bare", "x_local", "start_s"),
)
def bench_bulk(run: Run, *, data: str | None = None, count: int = 1000, rounds: int = 3) -> Figures:
    """One row per engine that is there, medians over rounds in which all take turns. Of pictures below a folder, over
    and over where more are asked for; or made ones. Starting, which is told beside it, does not count."""
    engines = ENGINES if find_spec("ray") else ENGINES[:1]
    network, workers, total = run.network.fitted(), processors(), rounds * (len(engines) + 2)
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ("bare", *engines, PAGE)}
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as place:
        source = data or run.given.data
        files = expand(source) if source else list(made(Path(place)))
        folder = linked(files, Path(place, "all"), count)
        for turn in range(rounds):
            for name, paces in found.items():
                run.tell(f"{name}, {count:,} pictures")
                if name == "bare":
                    paces.append(_bare(network, folder, workers))
                elif name == PAGE:
                    spent = Pass(network, folder, chosen([DEFAULT]), BATCH)
                    paces.append({"per_second": count / spent.spent(spent.everything).wall, "start_s": 0.0})
                else:
                    pace, lost = _by(name, network, folder, Path(place, f"{name}-{turn}"), workers)
                    paces.append(pace)
                    skipped |= {str(files[int(Path(link).stem) % len(files)]): reason for link, reason in lost}
                run.progress(sum(map(len, found.values())), total)
    sizes = {key: median(each[key] for each in found["bare"]) for key in found["bare"][0] if key.endswith("at once")}
    quickest = max(sizes, key=lambda key: sizes[key])
    found["bare"] = [{"per_second": each[quickest], **each} for each in found["bare"]]
    best = {name: median(each["per_second"] for each in paces) for name, paces in found.items()}
    rows = [
        {
            "engine": name,
            "net": network.name,
            "workers": workers,
            "pictures": count,
            "per_second": round(best[name], 2),
            "x_bare": round(_ratio(found, name, "bare"), 3),
            "x_local": round(_ratio(found, name, "local"), 3),
            "start_s": round(median(each["start_s"] for each in found[name]), 1),
        }
        for name in found
    ]
    settings = {
        "net": network.name,
        "input": input_of(network),
        "verb": "explain, l2caf",
        "rounds": rounds,
        "bare": f"{quickest}, which is the quicker of {' and '.join(sizes)} in the median",
        "x_bare": "pictures per second in those of the bare processes of the same round, median over the rounds",
        "per_second": "from the first chunk's beginning to the last one's end; start_s: what came before and after",
        "torch": torch.__version__,
    }
    return Figures("bench bulk", settings, rows, list(skipped.items()))


def _ratio(found: dict[str, list[dict[str, float]]], name: str, other: str) -> float:
    pairs = zip(found[name], found[other], strict=True)
    return median(mine["per_second"] / theirs["per_second"] for mine, theirs in pairs)


def _by(name: Any, network: Network, folder: Path, out: Path, workers: int) -> tuple[dict[str, float], Skipped]:
    start = time.perf_counter()
    options: dict[str, Any] = {"workers": workers} if name == "ray" else {}
    done = bulk(network, folder, out, engine=name, device="cpu", **options)
    pace = {"per_second": done.pictures / done.seconds, "start_s": time.perf_counter() - start - done.seconds}
    return pace, done.skipped


def _bare(network: Network, folder: Path, workers: int) -> dict[str, float]:
    """All begin together; the last one's end counts."""
    context, start = multiprocessing.get_context("spawn"), time.perf_counter()
    files = sorted(folder.iterdir())
    with ProcessPoolExecutor(workers, context, _wait_with, (context.Barrier(workers, timeout=PATIENCE),)) as pool:
        spent = list(pool.map(_alone, [network] * workers, [files[number::workers] for number in range(workers)]))
    done = sum(count for count, _ in spent)
    last = [max(times) for times in zip(*(times for _, times in spent), strict=True)]
    paces = {f"{size} at once": done / seconds for size, seconds in zip(AT_ONCE, last, strict=True)}
    return {**paces, "start_s": time.perf_counter() - start - sum(last)}


_ready: list[Any] = []  # of a bare process: where it waits for the others


def _wait_with(barrier: Any) -> None:
    _ready.append(barrier)


def _alone(network: Network, files: Sequence[Path]) -> tuple[int, list[float]]:
    """How many pictures could be read, and the seconds for them, so many at once."""
    torch.set_num_threads(1)
    module, times, done = network.module.eval(), list[float](), 0
    with torch.no_grad():
        for size in (AT_ONCE[0], *AT_ONCE):  # the first for warming up; what was idle may be quicker for a while
            _ready[0].wait()
            start, done = time.perf_counter(), 0
            for tensors in _batches(network, files[: 4 * size] if not times else files, size):
                module(tensors)
                done += len(tensors)
            times.append(time.perf_counter() - start)
    return done, times[1:]


def _batches(network: Network, files: Sequence[Path], size: int) -> Iterator[torch.Tensor]:
    """Those of one shape together; what cannot be read is left out."""
    waiting: dict[torch.Size, list[torch.Tensor]] = {}
    for path in files:
        try:
            tensor, _ = network.prepare(read(path))
        except BadPicture:
            continue
        batch = waiting.setdefault(tensor.shape, [])
        batch.append(tensor)
        if len(batch) == size:
            yield torch.stack(waiting.pop(tensor.shape))
    yield from (torch.stack(batch) for batch in waiting.values())
