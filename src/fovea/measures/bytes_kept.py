"""What one picture takes: its file, its place in memory among a set's, and all that is written about it."""

import tempfile
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from fovea.basics import BadChoice
from fovea.data import open_data
from fovea.data.samples import Member
from fovea.heatmaps import HeatMap, explain_batches
from fovea.heatmaps.methods import chosen
from fovea.measures import Figures, Run, measure
from fovea.networks import as_found, hash_of
from fovea.pictures import expand
from fovea.results import FILE, Writer
from fovea.retrieval import index

T = TypeVar("T")


@measure(
    "bench bytes",
    title="Bytes per picture",
    about="Bytes that a picture takes: its file, in memory, its row and map, its part of the page, its embedding in "
    "an index. The network's weights and gradients are measured, too.",
    example="--pack imagenet-val-3k --count 200",
    data="none",
    any_size=True,
    usual={"device": "cpu"},
)
def bench_bytes(
    run: Run, *, pack: str = "imagenet-val-3k", count: int = 200, method: Sequence[str] = ("l2caf",), batch: int = 16
) -> Figures:
    """One row per thing, means over `count` pictures, spread over a pack; in memory, over all of it."""
    opened, memory = _traced(lambda: open_data(pack))
    if not any(isinstance(sample.source, Member) for sample in opened.samples):
        raise BadChoice(f"--pack is pictures in tar files beside a manifest.csv, and {opened.name} is none")
    network, methods, cells, some = run.network.fitted(), chosen(list(method)), list[int](), opened.first(count)
    with tempfile.TemporaryDirectory() as place, as_found(network):
        photos, out = Path(place, "photos"), Path(place, "out")
        _copied([sample.source for sample in some.samples], photos)
        with Writer(out, "explain", network.settings()) as writer:
            for step in explain_batches(network, str(photos), methods, batch=batch):
                writer.add(step.results, step.skipped)
                cells += [cast(HeatMap, part).values.numel() for result in step.results for part in result.parts]
                run.progress(step.done, step.total)
        index(network, str(photos), Path(place, "photos.fovea"))
        row = (out / FILE).stat().st_size
        sizes = {"its file": _size(photos), "row in results.json": row, "part of the page": _size(out) - row}
        sizes |= {"row of an index": Path(place, "photos.fovea").stat().st_size}
        sizes |= {"path in memory": _traced(lambda: expand(photos))[1]}
        rows = [{"what": what, "bytes": round(size / len(some))} for what, size in sizes.items()]
    rows += [{"what": f"map in fp{bits}", "bytes": round(np.mean(cells) * bits / 8)} for bits in (32, 16)]
    rows.append({"what": "sample in memory", "bytes": round(memory / len(opened))})
    weights = sum(weight.numel() for weight in network.module.parameters())
    rows.append({"what": "gradients of a step, fp32", "bytes": weights * 4})
    told: dict[str, Any] = {"net": network.name, "method": ", ".join(method), "pictures": len(some)}
    settings = {"data": opened.name, "set": len(opened), "weights": hash_of(network.module.state_dict())[:12]}
    return Figures("bench bytes", settings, [told | row for row in rows])


def _copied(sources: Sequence[Any], folder: Path) -> None:
    """The pictures as files, byte by byte."""
    folder.mkdir()
    for number, source in enumerate(sources):
        if isinstance(source, Member):
            with open(source.shard, "rb") as file:
                file.seek(source.offset)
                (folder / f"{number:06}.jpg").write_bytes(file.read(source.size))


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _traced(make: Callable[[], T]) -> tuple[T, int]:
    """What is made, and the bytes that it takes in memory."""
    tracemalloc.start()
    made = make()
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return made, taken
