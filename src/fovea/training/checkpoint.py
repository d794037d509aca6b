"""Checkpoints that are whole or not there: written beside the good one, which they replace when complete."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fovea.basics.errors import FoveaError

NAME = "checkpoint.pt"


def save(folder: Path, state: Mapping[str, Any]) -> Path:
    """A full disk leaves the last good checkpoint as it was, and says so."""
    path = folder / NAME
    part = path.with_suffix(".part")
    try:
        with open(part, "wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except (OSError, RuntimeError) as error:  # torch's own writer turns a full disk into a RuntimeError
        part.unlink(missing_ok=True)
        good = f"the last good one, {path}, is whole" if path.is_file() else "there is none yet"
        raise FoveaError(f"the checkpoint could not be written to {folder} ({_reason(error)}); {good}") from error
    return path


def load(folder: Path) -> dict[str, Any] | None:
    path = folder / NAME
    if not path.is_file():
        return None
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has no error of its own for a damaged file
        raise FoveaError(f"{path} cannot be read ({_reason(error)}); start anew with --fresh") from None
    return state


def room_for(folder: Path, needed: int) -> None:
    """Whether a run's files can be written there, found out before it starts."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / ".writable"
        probe.write_bytes(b"?")
        probe.unlink(missing_ok=True)  # several processes may try at once
    except OSError as error:
        raise FoveaError(f"{folder} cannot be written to ({error.strerror}); name another folder with --out") from None
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise FoveaError(
            f"{folder} has {free / 1e6:,.0f} MB left and the run's checkpoints need {needed / 1e6:,.0f} MB; "
            "make room, or name another folder with --out"
        )


def size_of(module: nn.Module, averaged: bool) -> int:
    """An upper bound of a run's files: weights, two moments and averages, the new beside the old, the results."""
    weights: int = sum(one.numel() * one.element_size() for one in module.state_dict().values())
    return 3 * weights * (3 + averaged) + 20_000_000


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error).splitlines()[0] if str(error) else type(error).__name__
