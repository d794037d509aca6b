"""What a million, a hundred million and ten billion pictures take, worked out from what was measured on one machine.

Rates and bytes are those of results/*.json; what is assumed of a cluster stands in `Assumed`. A stage's load is its
share of a day on one machine, or of one driver. Over 1, a stage that machines share needs more of them; one of the
driver is the bottleneck, however many there are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from fovea.basics import BadChoice, FoveaError, nearest
from fovea.jobs import ENGINES

Row = Mapping[str, Any]
Read = Callable[[str], Sequence[Row]]  # the rows of a result by its name
SIZES = {"million": 10**6, "hundred_million": 10**8, "ten_billion": 10**10}
DAY, HOUR = 86_400.0, 3_600.0
SHARED = ("processor", "network in")  # stages that more machines make shorter
WAYS = {  # of the driver: the stages of each way to work
    "page": ("listing loose files", "one results.json, read into memory"),
    "loose": (
        "listing loose files",
        "names of loose files in the driver",
        "listing what is done, by every worker",
    ),
    "tars": ("listing tar files", "names of tar files in the driver", "listing what is done, by every worker"),
}
NET = "efficientnet_lite0"


@dataclass(frozen=True)
class Assumed:
    """Of a cluster; nothing here was measured."""

    picture: float = 100e3  # bytes of a file
    link: float = 1.25e9  # bytes per second of a machine: 10 Gbit
    cores: int = 64  # of a machine without a GPU
    gpu_cores: int = 16  # beside each GPU, as where it was measured
    memory: float = 64e9  # bytes of the driver
    listed: int = 1000  # names that an object store gives at once
    listing: float = 0.1  # seconds for them
    shard: int = 10_000  # pictures in a tar file, 1 GB
    part: int = 64  # pictures in a Parquet file of loose pictures


class Scale:
    """All tables of docs/scale.md, by their names."""

    def __init__(self, read: Read, assumed: Assumed | None = None) -> None:
        self.read, self.assumed = read, assumed or Assumed()
        stages = {row["stage"]: row["processor_s"] / row["pictures"] for row in read("bench-folder")}
        self.decoding, self.looking = stages["decoding"], stages["looking"]  # seconds of a core per picture
        self.page = stages["drawing"] + stages["writing"]
        self.bytes = {row["what"]: row["bytes"] for row in read("bench-bytes")}
        fast = {"library": "fovea", "method": "l2caf", "net": NET, "precision": "fp32", "batch": 256}
        self.gpu = 1e3 / _one(read("bench-explain-h200"), fast)["ms_per_picture"]
        self.training = _one(read("bench-train"), {"net": NET, "device": "cuda"})
        self.serving = median(row["pictures_per_s"] for row in read("bench-serve")) / 2  # of a core
        self.serving_gpu = max(row["pictures_per_s"] for row in read("bench-serve-h200"))

    def rows(self, kind: str) -> list[dict[str, Any]]:
        kinds: dict[str, Callable[[], list[dict[str, Any]]]] = {
            "assumed": lambda: [asdict(self.assumed)],
            "rates": self.rates,
            "hours": self.hours,
            "load": self.load,
            "bottlenecks": self.bottlenecks,
            "storage": self.storage,
            "training": self.trained,
            "service": self.served,
            "engines": self.engines,
        }
        if kind not in kinds:
            raise BadChoice(f"no table {kind!r} of scale{nearest(kind, kinds)}")
        return kinds[kind]()

    def engines(self) -> list[dict[str, Any]]:
        """What each engine of bulk work did, its best; nothing where that was not measured yet."""
        best: dict[str, Row] = {}
        try:
            rows = self.read("bench-bulk")
        except FoveaError:
            rows = []
        for row in rows:
            if row["per_second"] > best.get(row["engine"], {"per_second": 0.0})["per_second"]:
                best[row["engine"]] = row
        return [{**row, "per_core": row["per_second"] / (row.get("workers") or 1)} for row in best.values()]

    @property
    def core(self) -> float:
        """Pictures per second of a core: the best engine's where that was measured, else decoding and looking."""
        measured = [row["per_core"] for row in self.engines() if row["engine"] in ENGINES]
        return max(measured, default=1 / (self.decoding + self.looking))

    def limits(self) -> dict[str, dict[str, float]]:
        """Pictures per second of one machine, stage by stage, for each kind of work."""
        given, decode, net = (
            self.assumed,
            self.assumed.gpu_cores / self.decoding,
            self.assumed.link / self.assumed.picture,
        )
        step = (
            2 * self.bytes["gradients of a step, fp32"] / given.link
        )  # seconds: sent and received, any number of them
        return {
            "explain, cores": {"processor": given.cores * self.core, "network": net},
            "explain with a page, cores": {
                "processor": given.cores / (self.decoding + self.looking + self.page),
                "network": net,
            },
            "explain, one H200": {"GPU": self.gpu, "decoding": decode, "network": net},
            "train an epoch, one H200": {
                "GPU": self.training["images_per_second"],
                "decoding": decode,
                "network": net,
                "gradients": self.training["batch"] / step,
            },
        }

    def rates(self) -> list[dict[str, Any]]:
        found = []
        for work, stages in self.limits().items():
            slowest = min(stages, key=lambda stage: stages[stage])
            told = ", ".join(f"{stage} {rate:,.0f}" for stage, rate in stages.items())
            found.append({"work": work, "stages": told, "per_second": stages[slowest], "bottleneck": slowest})
        return found

    def hours(self) -> list[dict[str, Any]]:
        """Of one machine."""
        return [row | {name: size / row["per_second"] / HOUR for name, size in SIZES.items()} for row in self.rates()]

    def stages(self, size: int) -> dict[str, float]:
        """Of a day on one machine or of one driver, for bulk work on cores."""
        given, path = self.assumed, self.bytes["path in memory"]
        listing, shards = given.listing / given.listed, size / given.shard
        return {
            "processor": size / (given.cores * self.core * DAY),
            "network in": size * given.picture / (given.link * DAY),
            "listing loose files": size * listing / DAY,
            "names of loose files in the driver": size * path / given.memory,
            "one results.json, read into memory": size * self.bytes["row in results.json"] / given.memory,
            "listing tar files": shards * listing / DAY,
            "names of tar files in the driver": shards * path / given.memory,
            "listing what is done, by every worker": size / given.part * listing / DAY,
        }

    def load(self) -> list[dict[str, Any]]:
        loads = {name: self.stages(size) for name, size in SIZES.items()}
        return [{"stage": stage, **{name: loads[name][stage] for name in SIZES}} for stage in loads["million"]]

    def bottlenecks(self) -> list[dict[str, Any]]:
        """Of a page, of Parquet from loose files, and of Parquet from tar files: what the driver cannot do, else what
        takes the machines longest."""
        found = []
        for name, size in SIZES.items():
            stages, told = self.stages(size), dict[str, str]()
            for way, driver in WAYS.items():
                among = [stage for stage in driver if stages[stage] > 1] or SHARED
                worst = max(among, key=lambda stage: stages[stage])
                told[way] = f"{worst} ({stages[worst]:,.3g} x)"
            machines, rate = -(-stages["processor"] // 1), size * self.assumed.picture / DAY / 1e9
            found.append({"name": name, "pictures": size, "machines": machines, "in_gb_s": rate, **told})
        return found

    def storage(self) -> list[dict[str, Any]]:
        given, each = self.assumed, self.bytes
        kinds = {
            "pictures": given.picture,
            "rows, as JSON": each["row in results.json"],
            "maps, fp32": each["map in fp32"],
            "maps, fp16": each["map in fp16"],
            "pages": each["part of the page"],
            "an index": each["row of an index"],
        }
        rows = [
            {"what": what, "bytes": size, **{name: _told(size * count) for name, count in SIZES.items()}}
            for what, size in kinds.items()
        ]
        files = {
            f"Parquet files of {given.part}": given.part,
            f"Parquet files of {given.shard:,}": given.shard,
            "files of pages": 0.5,
        }
        return rows + [
            {"what": what, **{name: f"{count / by:,.0f}" for name, count in SIZES.items()}}
            for what, by in files.items()
        ]

    def trained(self) -> list[dict[str, Any]]:
        """An epoch: GPU-hours, what every process keeps in memory of its data's list, and its order."""
        given, rate, gradients = (
            self.assumed,
            self.training["images_per_second"],
            self.bytes["gradients of a step, fp32"],
        )
        common = {
            "rate": rate,
            "batch": self.training["batch"],
            "gradient_mb": gradients / 1e6,
            "least_batch": rate * 2 * gradients / given.link,
            "read_mb_s": rate * given.picture / 1e6,
            "cores": rate * self.decoding,
        }
        return [
            {
                "pictures": size,
                "gpu_hours": size / rate / HOUR,
                "samples": _told(size * self.bytes["sample in memory"]),
                "order": _told(size * 8),
                **common,
            }
            for size in SIZES.values()
        ]

    def served(self) -> list[dict[str, Any]]:
        """Pictures per day, evenly over the day."""
        return [
            {
                "pictures": size,
                "per_second": size / DAY,
                "cores": size / DAY / self.serving,
                "gpus": size / DAY / self.serving_gpu,
                "gbit_s": size / DAY * self.assumed.picture * 8 / 1e9,
            }
            for size in SIZES.values()
        ]


def _one(rows: Sequence[Row], wanted: Row) -> Row:
    found = next((row for row in rows if all(row.get(key) == value for key, value in wanted.items())), None)
    if found is None:
        raise BadChoice(f"no row has {dict(wanted)}")
    return found


def _told(size: float) -> str:
    for unit, by in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9)):
        if size >= by:
            return f"{size / by:,.3g} {unit}"
    return f"{size / 1e6:,.3g} MB"
