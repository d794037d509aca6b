"""Hand-worked numbers: a core takes 10 ms to decode and 30 ms to look, a row has 1,000 bytes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from checks import refused
from fovea.basics import FoveaError
from fovea.measures.scale import Assumed, Scale
from fovea.measures.tables import Tables

BYTES = {"row in results.json": 1000, "path in memory": 200, "sample in memory": 1000, "part of the page": 20_000}
BYTES |= {"map in fp32": 196, "map in fp16": 98, "row of an index": 5000, "gradients of a step, fp32": 10_000_000}
SECONDS = {"decoding": 1.0, "looking": 3.0, "drawing": 0.5, "writing": 0.5}  # of a hundred pictures
FIGURES: dict[str, list[dict[str, Any]]] = {
    "bench-folder": [{"stage": stage, "processor_s": time, "pictures": 100} for stage, time in SECONDS.items()],
    "bench-bytes": [{"what": what, "bytes": size} for what, size in BYTES.items()],
    "bench-explain-h200": [
        {
            "library": "fovea",
            "method": "l2caf",
            "net": "efficientnet_lite0",
            "precision": "fp32",
            "batch": batch,
            "ms_per_picture": pace,
        }
        for batch, pace in ((16, 1.0), (256, 0.1))
    ],
    "bench-train": [{"net": "efficientnet_lite0", "device": "cuda", "batch": 16, "images_per_second": 500.0}],
    "bench-serve": [{"pictures_per_s": rate} for rate in (30.0, 40.0, 50.0)],
    "bench-serve-h200": [{"pictures_per_s": rate} for rate in (100.0, 200.0)],
}
ASSUMED = Assumed(picture=100e3, link=1e9, cores=40, gpu_cores=20, memory=1e10, part=100)


def made(**more: list[dict[str, Any]]) -> Scale:
    figures = FIGURES | {name.replace("_", "-"): rows for name, rows in more.items()}

    def read(name: str) -> Sequence[dict[str, Any]]:
        if name not in figures:
            raise FoveaError(f"no {name}")
        return figures[name]

    return Scale(read, ASSUMED)


def by(rows: list[dict[str, Any]], key: str) -> dict[str, dict[str, Any]]:
    return {row[key]: row for row in rows}


def test_the_slowest_stage_sets_the_pace() -> None:
    """40 cores of 40 ms: 1,000 per second. A GPU of 10,000 per second is fed by 20 cores of 10 ms: 2,000. Gradients go
    out and come in, 2 x 10 MB at 1 GB/s: 20 ms for 16 pictures, 800 per second, more than the 500 of the GPU."""
    rates = by(made().rates(), "work")
    paces = {work: (row["per_second"], row["bottleneck"]) for work, row in rates.items()}
    assert paces["explain, cores"] == (pytest.approx(1000), "processor")
    assert paces["explain with a page, cores"] == (pytest.approx(800), "processor")
    assert paces["explain, one H200"] == (pytest.approx(2000), "decoding")
    assert paces["train an epoch, one H200"] == (pytest.approx(500), "GPU")
    assert by(made().hours(), "work")["explain, cores"]["hundred_million"] == pytest.approx(1e8 / 1000 / 3600)


def test_measured_engines_take_the_place_of_their_parts() -> None:
    rows = [
        {"engine": engine, "workers": workers, "per_second": rate}
        for engine, workers, rate in (("local", 2, 60.0), ("ray", 1, 20.0), ("ray", 2, 45.0))
    ]
    assert made().engines() == []
    scale = made(bench_bulk=rows)
    assert [(row["engine"], row["per_core"]) for row in scale.engines()] == [("local", 30.0), ("ray", 22.5)]
    assert by(scale.rates(), "work")["explain, cores"]["per_second"] == 40 * 30


def test_what_a_driver_cannot_do_is_the_bottleneck() -> None:
    """10 GB hold the rows of ten million pictures and the names of fifty million."""
    loads = by(made().load(), "stage")
    assert loads["one results.json, read into memory"]["hundred_million"] == pytest.approx(10)
    assert loads["processor"]["ten_billion"] == pytest.approx(1e10 / 1000 / 86_400)
    assert loads["listing loose files"]["ten_billion"] == pytest.approx(1e6 / 86_400)
    million, hundred, billions = made().bottlenecks()
    assert [million[way].split(" (")[0] for way in ("page", "loose", "tars")] == ["processor"] * 3
    assert hundred["page"] == "one results.json, read into memory (10 x)"
    assert hundred["loose"] == "names of loose files in the driver (2 x)"
    assert hundred["tars"] == "processor (1.16 x)"
    assert (hundred["machines"], billions["machines"]) == (2, 116)
    assert billions["tars"].startswith("processor")


def test_storage_training_and_service() -> None:
    storage = by(made().storage(), "what")
    assert storage["pictures"]["ten_billion"] == "1 PB"
    assert storage["maps, fp16"]["hundred_million"] == "9.8 GB"
    assert storage["Parquet files of 100"]["ten_billion"] == "100,000,000"
    epoch = made().trained()[1]
    assert epoch["gpu_hours"] == pytest.approx(1e8 / 500 / 3600)
    assert epoch["samples"] == "100 GB"
    assert epoch["least_batch"] == pytest.approx(500 * 0.02)
    day = made().served()[1]
    assert (day["cores"], day["gpus"]) == (pytest.approx(1e8 / 86_400 / 20), pytest.approx(1e8 / 86_400 / 200))


def test_of_what_there_is() -> None:
    """The results that are in the project, by the name that a table gives."""
    folder = Path(__file__).parents[2] / "results"
    assert len(Tables(folder).rows("scale bottlenecks")) == 3
    refused("no table 'rate' of scale; did you mean 'rates'", Tables(folder).rows, "scale rate")
