"""The one form in which figures are written: what was measured, with which settings, flat rows, and how it was made."""

import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fovea.heatmap import write_json


@dataclass(frozen=True)
class Figures:
    """What a measurement gives. `skipped` names the pictures left out, with the reasons."""

    what: str
    settings: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    skipped: Sequence[tuple[str, str]] = ()
    details: Mapping[str, Any] = field(default_factory=dict)  # what does not fit flat rows

    def write(self, path: Path, seed: int | None = None, recipe: str | None = None, command: str | None = None) -> None:
        content = {"what": self.what, "settings": dict(self.settings), "rows": [dict(row) for row in self.rows]}
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(
            path,
            content | dict(self.details) | {"command": command} | provenance(seed, recipe, self.settings.get("device")),
        )

    def show(self, title: str, console: Console) -> None:
        table = Table(title=title, title_justify="left")
        names = list(dict.fromkeys(name for row in self.rows for name in row))
        for name in names:
            number = any(isinstance(row.get(name), (int, float)) for row in self.rows)
            table.add_column(name, justify="right" if number else "left")
        for row in self.rows:
            table.add_row(*(text_of(row.get(name)) for name in names))
        if not console.is_terminal:
            console.width = max(console.width, 200)  # a file or a pipe has room for every column
        console.print(table)


def text_of(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 100 else f"{value:,.0f}"
    return str(value)


def provenance(seed: int | None = None, recipe: str | None = None, device: str | None = None) -> dict[str, Any]:
    """Recipe, commit, seed, kind of processor and date: enough to measure again, nothing about whose machine it was."""
    today = datetime.now(UTC).date().isoformat()
    return {"recipe": recipe, "commit": commit(), "seed": seed, "processor": processor(device), "date": today}


def commit() -> str | None:
    """What FOVEA_COMMIT says, for a copy without its history; else fovea's own commit, with + when files differ."""
    if "FOVEA_COMMIT" in os.environ:
        return os.environ["FOVEA_COMMIT"]
    here = Path(__file__).parents[1]

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(["git", "-C", str(here), *words], capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    if git("ls-files", "--error-unmatch", __file__) is None:
        return None
    known = git("rev-parse", "--short=12", "HEAD")
    return f"{known}+" if git("status", "--porcelain", "--untracked-files=no", "--", ".") else known


def processor(device: str | None = None) -> str:
    """The kind of processor: the GPU's model, or how many CPU threads of which model.

    `device` (cpu, cuda) is where it was measured; where nobody says, a GPU that is there was used.
    """
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{torch.get_num_threads()} CPU threads, {models[0] if models else platform.machine()}"
