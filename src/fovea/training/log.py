"""What happened, a line of JSON at a time, and the curves to look at."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from torch import Tensor

from fovea.basics import Count, Damaged, Record, whole, write_text

NAME = "log.jsonl"
LONGEST = 2**16  # bytes of a row
VALIDATION = "validation_"  # begins what the scores of validation data are called
# the score of a row that is drawn, and its title
TESTED = {"top1": "top-1 accuracy", "recall_at_1": "recall at 1"}
TESTED = {f"{VALIDATION}{key}": title for key, title in TESTED.items()} | TESTED


class Log:
    """Rows are appended as they come. A run that goes on from step `since` drops the rows after it: they come again."""

    def __init__(self, folder: Path, since: int) -> None:
        self.path = folder / NAME
        kept = [row for row in read(folder) if row["step"] <= since]
        write_text(self.path, "".join(json.dumps(row) + "\n" for row in kept))

    def add(self, **row: Any) -> None:
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


@dataclass
class Tally:
    """The parts of the steps since the last row; what is on the device stays there until it is needed."""

    parts: list[tuple[Tensor, Tensor, int, Tensor]] = field(default_factory=list)  # loss, hits, step, index
    pictures: int = 0
    since: float = field(default_factory=time.monotonic)

    def speed(self) -> float:
        return round(self.pictures / max(time.monotonic() - self.since, 1e-9), 1)


class Row(Record, extra="allow"):
    """Figures after a step, or those of a test, whose scores have names of their own."""

    __pydantic_extra__: dict[str, Annotated[float, Field(strict=True)] | None]
    step: Annotated[Count, Field(strict=True)]
    epoch: Annotated[float, Field(strict=True)] = 0.0


def read(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run; a last line cut short by a kill, and whatever else is no row, is left out."""
    path, rows = folder / NAME, list[dict[str, Any]]()
    if path.is_file():
        with open(path, "rb") as file:
            for line in iter(partial(file.readline, LONGEST), b""):
                with suppress(Damaged):
                    Row.read(line, path, "")
                    rows.append(json.loads(line))
    return rows


def plot(folder: Path, title: str) -> Path:
    """Loss, accuracy and learning rate against epochs, as curves.png."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = read(folder)
    steps = [row for row in rows if None not in map(row.get, ("epoch", "loss", "lr"))]
    tests = [row for row in rows if "epoch" in row and any(key in row for key in TESTED)]
    figure, (left, middle, right) = pyplot.subplots(1, 3, figsize=(13, 3.6), layout="constrained")
    blue, orange = "#0072b2", "#d55e00"
    left.plot([row["epoch"] for row in steps], [row["loss"] for row in steps], color=blue)
    left.set(title="training loss", xlabel="epoch")
    known = [row for row in steps if row.get("accuracy") is not None]
    middle.plot([row["epoch"] for row in known], [row["accuracy"] for row in known], color=blue, label="training")
    of = next((key for key in TESTED if any(key in row for row in tests)), "top1")
    tests = [row for row in tests if row.get(of) is not None]
    label = "validation" if of.startswith(VALIDATION) else "test"
    middle.plot([row["epoch"] for row in tests], [row[of] for row in tests], color=orange, label=label, marker=".")
    middle.set(title=TESTED[of], xlabel="epoch", ylim=(0, 1))
    if known or tests:
        middle.legend(loc="lower right")
    right.plot([row["epoch"] for row in steps], [row["lr"] for row in steps], color=blue)
    right.set(title="learning rate", xlabel="epoch")
    figure.suptitle(title)
    path = folder / "curves.png"
    with whole(path) as part:
        figure.savefig(part, dpi=110)
    pyplot.close(figure)
    return path
