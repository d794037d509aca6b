"""What a network costs as a graph with a heatmap: time beside the plain graph, and how far its maps are off."""

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fovea.basics import BadChoice, DoesNotApply
from fovea.data import DataSet
from fovea.graphs import PRECISIONS, Exported, Takes, export, plain, session, takes_of
from fovea.heatmaps.explain import explain
from fovea.measures import Figures, Run, measure
from fovea.measures.timing import Key, built, compare
from fovea.networks import Network, groups


@measure(
    "bench export",
    title="Graphs with heatmaps",
    about="Time of exported graphs with heatmaps (onnxruntime), beside the plain graph of the same network. Labels "
    "and maps are compared with fovea's own on pictures.",
    example="--net efficientnet_lite0 --data photos/ --precisions fp32,int8",
    nets="names",
    usual={"data": "imagenet-val-3k", "limit": 200, "device": "cpu"},
    columns=("net", "method", "precision", "solver", "pictures", "top1_agreement", "map_*", "x_plain", "ms", "mb"),
)
def bench_export(
    run: Run,
    *,
    method: Sequence[str] = ("l2caf",),
    precisions: Sequence[str] = ("fp32", "fp16", "int8"),
    batch: int = 1,
    rounds: int = 31,
) -> Figures:
    """One row per network, method and precision. Of the pictures every second is compared, the others are what int8
    takes its ranges from. Times are of one thread, in turns with the plain graph, medians of the rounds."""
    if wrong := [precision for precision in precisions if precision not in PRECISIONS]:
        raise BadChoice(f"no precision {wrong[0]!r} (there are: {', '.join(PRECISIONS)})")
    samples, rows = run.data.samples, list[dict[str, Any]]()
    compared, others = (replace(run.data, samples=samples[start::2]) for start in (0, 1))
    cases = [(name, how) for name in run.names for how in method]
    for done, (name, how) in enumerate(cases):
        network = built(name, run.device).fitted("squash")
        run.progress(done, len(cases))
        with tempfile.TemporaryDirectory() as folder:
            bare, made = plain(network, Path(folder) / "plain.onnx"), dict[str, Exported]()
            for precision in precisions:
                run.tell(f"{name}, {how}, {precision}")
                try:
                    made[precision] = export(
                        network, Path(folder) / f"{precision}.onnx", method=how, precision=precision, calibrate=others
                    )
                except DoesNotApply as reason:
                    run.refused[f"{how} of {name}"] = str(reason)
            rows += _rows(network, how, bare, made, compared, (batch, rounds))
    settings = {
        "data": run.data.name,
        "input": "squashed",
        "batch": batch,
        "rounds": rounds,
        "threads": 1,
        "x_plain": "median time of the graph with logits and map, in that of the plain graph, runs in turns",
        "map_max": "the greatest difference from fovea's own map of the same class, any picture and cell",
    }
    return Figures("bench export", settings, rows, warnings=[f"{what}: {why}" for what, why in run.refused.items()])


def _rows(
    network: Network, method: str, bare: Path, made: dict[str, Exported], data: DataSet, how: tuple[int, int]
) -> list[dict[str, Any]]:
    takes, (batch, rounds) = takes_of(network), how
    sessions = {precision: session(written.files[0], 1) for precision, written in made.items()}
    one, alone = {takes.name: takes.example(batch).numpy()}, session(bare, 1)
    both = {**one, "target": np.full(batch, -1)}
    calls: dict[Key, Any] = {
        ("graph", precision): lambda given=given: given.run(None, both) for precision, given in sessions.items()
    }
    times = compare(lambda: alone.run(None, one), calls, rounds)
    found = []
    for precision, given in sessions.items():
        ratio, seconds = times["graph", precision]
        found.append(
            {
                "net": network.name,
                "method": method,
                "precision": precision,
                "solver": made[precision].about["solver"],
                **_compared(network, method, takes, given, data),
                "x_plain": round(ratio, 3),
                "ms": round(1000 * seconds / batch, 2),
                "mb": round(made[precision].files[0].stat().st_size / 1e6, 1),
                "mb_plain": round(bare.stat().st_size / 1e6, 1),
            }
        )
    return found


def _compared(network: Network, method: str, takes: Takes, given: Any, data: DataSet) -> dict[str, Any]:
    """Labels and maps of a graph beside fovea's own, the maps of the class that the graph names."""
    agree, most, means, greatest = list[bool](), 0.0, list[float](), list[float]()
    for group in groups(network, data, 16):
        if group.batch is None:
            continue
        feed = {takes.name: takes.given(group.batch).numpy(), "target": np.full(len(group.batch), -1)}
        logits, heatmap, explained, *_ = given.run(None, feed)
        own = explain(network, group.batch, method=method, target=torch.from_numpy(explained)).numpy()[:, 0]
        with torch.no_grad():
            agree += (network(group.batch).argmax(1).numpy() == logits.argmax(1)).tolist()
        off = np.abs(heatmap - own)
        most = max(most, float(off.max()))
        means += off.mean((1, 2)).tolist()
        greatest += own.max((1, 2)).tolist()
    return {
        "pictures": len(agree),
        "top1_agreement": round(float(np.mean(agree)), 4),
        "map_max": float(f"{most:.3g}"),
        "map_mean": float(f"{np.mean(means):.3g}"),
        "map_peak": round(float(np.mean(greatest)), 3),
    }
