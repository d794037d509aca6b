"""What it costs to zoom into files too large to load: pixels, tiles, bytes, seconds and memory, as the file grows."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from statistics import median
from typing import Any

import torch

from fovea.basics import BadChoice, FoveaError
from fovea.glimpses import Route, zoom_steps
from fovea.measures import Figures, Run, measure
from fovea.measures.big_files import KINDS, Canvas, made
from fovea.measures.timing import timed
from fovea.networks import load

# a process that has done nothing else: what it holds once the network is loaded is what memory is counted from
ALONE = "import sys; from fovea.measures.big_speed import zoomed; zoomed(*sys.argv[1:])"


@measure(
    "bench big",
    title="Time and memory of zooming into files too large to load",
    about="Time and memory of zooming into files too large to load, in four file formats. The pictures are made, of "
    "32,768 and 65,536 pixels a side; measured are the share of the pixels that is decoded, bytes, seconds, and the "
    "memory of a process that does nothing else.",
    example="--net tnet-digits --sides 32768",
    nets="names",
    data="none",
    usual={"net": ("tnet-digits",), "device": "cpu"},
    columns=(
        "net", "kind", "side", "label", "percent", "tiles", "counted_bytes", "process_bytes", "file_bytes", "seconds",
        "*_mb", "x_*",
    ),
)  # fmt: skip
def bench_big(
    run: Run,
    *,
    sides: Sequence[int] = (32768, 65536),
    glimpses: Sequence[int] = (4,),
    levels: int | None = None,
    rounds: int = 3,
    into: Path | None = None,
) -> Figures:
    """One row per network, number of glimpses, kind of file and side; medians of processes that each zoom once.

    Files are made where they are not there yet: `into` a folder that is kept, or a temporary one.
    """
    for side in sides or [0]:
        if side < 1024 or side & (side - 1):
            raise BadChoice(f"sides are powers of two, from 1,024 pixels on; got {side or 'none'}")
    label = Canvas(sides[0]).label
    with nullcontext(into) if into else tempfile.TemporaryDirectory() as folder:
        files = {(kind, side): made(kind, side, Path(folder), run.tell) for kind in KINDS for side in sides}
        cases = [(net, count, *file) for net in run.names for count in glimpses for file in files]
        each: dict[tuple[str, int, str, int], list[dict[str, Any]]] = {case: [] for case in cases}
        for done, case in enumerate(cases * rounds):  # in turns, so that a machine that is busy is so for all
            net, count, kind, side = case
            run.tell(f"zooming into {kind}, {side:,} x {side:,}")
            run.progress(done, len(cases) * rounds)
            each[case].append(_alone(net, count, levels, files[kind, side]))
    names = "net", "glimpses", "kind", "side"
    rows = [{**dict(zip(names, case, strict=True)), **_figures(figures, label)} for case, figures in each.items()]
    for row in rows:
        first = next(other for other in rows if all(other[key] == row[key] for key in ("net", "glimpses", "kind")))
        row |= {f"x_{key}": round(row[key] / first[key], 3) for key in ("pixels", "counted_bytes", "seconds")}
    settings = {
        "picture": f"made: the digit {label}, 1/32 of a side, among fragments, on ground that repeats",
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "share": "pixels decoded, at the stored level that they were decoded at, of those of the picture",
        "bytes": "counted by the reader, and those that the process asked the system for when it zooms again",
        "seconds": "of the first zoom of a process that has loaded the network, the file's opening included",
        "memory_mb": "the most that the process held meanwhile above what it held then; drawn_mb: and while it drew",
        "x": "in what the smallest file of its kind took",
    }
    return Figures("bench big", settings, rows)


def _figures(each: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    """Of processes that did the same."""
    last, timed = each[-1], ("seconds", "again_s", "memory_mb", "drawn_mb")
    return {
        "levels": last["levels"],
        "label": last["label"],
        "right": last["label"] == label,
        "share": last["pixels_read"] / last["pixels"],
        "percent": round(100 * last["pixels_read"] / last["pixels"], 4),
        "pixels": last["pixels_read"],
        "tiles": last["tiles"],
        "counted_bytes": last["bytes_read"],
        "process_bytes": last["process_bytes"],
        "file_bytes": last["bytes"],
        **{key: round(median(figures[key] for figures in each), 3) for key in timed},
    }


def _alone(net: str, glimpses: int, levels: int | None, path: Path) -> dict[str, Any]:
    """The figures of a process of its own."""
    command = [sys.executable, "-c", ALONE, net, str(glimpses), str(levels or 0), str(path)]
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | paths)
    if ended.returncode:
        raise FoveaError(f"zooming into {path.name} failed: {(ended.stderr.strip().splitlines() or ['no reason'])[-1]}")
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def zoomed(net: str, glimpses: str, levels: str, path: str) -> None:
    """Zooms once, draws, and zooms again; prints what that took."""
    network, route = load(net), Route(int(glimpses), levels=int(levels) or None)

    def zoom() -> Any:
        (step,) = zoom_steps(network, [path], route)
        if step.skipped:
            raise FoveaError(step.skipped[0][1])
        return step.results[0]

    Path("/proc/self/clear_refs").write_text("5")
    before = _held("VmRSS")
    seconds, answer = timed(zoom)
    peak = _held("VmHWM")
    answer.draw()
    answer.view().pictures()
    drawn, asked = _held("VmHWM"), _asked()
    again, _ = timed(zoom)
    figures = {
        "seconds": seconds,
        "again_s": again,
        "memory_mb": peak - before,
        "drawn_mb": drawn - before,
        "process_bytes": _asked() - asked,
        "label": answer.label,
        "levels": max((glimpse.level for glimpse in answer.glimpses), default=1),
    }
    print(json.dumps(figures | asdict(answer.cost)))


def _held(what: str) -> float:
    """MB of memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def _asked() -> int:
    """Bytes that this process has asked the system to read."""
    return int(Path("/proc/self/io").read_text().split()[1])
