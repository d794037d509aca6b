"""How a figure or a weights file was made: commit, seed, kind of processor, date."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


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

    `device` (cpu, cuda) is where it was measured; where nobody says, a GPU that is there was used."""
    import torch

    if device != "cpu" and torch.cuda.is_available():
        return torch.cuda.get_device_name()
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{torch.get_num_threads()} CPU threads, {models[0] if models else platform.machine()}"
