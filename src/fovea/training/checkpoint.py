"""Checkpoints that are whole or not there: written beside the good one, which they replace when complete."""

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fovea.basics import BadChoice, FoveaError
from fovea.training.losses import Loss
from fovea.training.parts import Part
from fovea.training.recipe import Recipe, spelled

NAME = "checkpoint.pt"
FREE = {"about", "command", "expected", "took", "save_every", "log_every", "test_every"}  # keys that may change


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


def same_run(known: Mapping[str, Any], recipe: Recipe, data: Mapping[str, Any], folder: Path) -> None:
    """A run goes on with the recipe and the data that it began with. Nothing that a checkpoint names is imported."""
    if not {"recipe", "data", "stepper"} <= set(known):
        raise FoveaError(f"{folder / NAME} is not a checkpoint of fovea train; name another --out")
    before, now = spelled(json.loads(known["recipe"])), json.loads(recipe.model_dump_json())
    _fill(before, recipe)
    for content in (before, now):
        content["data"].pop("workers", None)
    differ = [key for key in now if key not in FREE and before.get(key) != now[key]]
    if differ:
        raise BadChoice(
            f"{folder} was trained by another recipe ({', '.join(differ)} differ): --resume goes on with the "
            "same one, its --set included; name another --out, or --fresh"
        )
    if known["data"] != data:
        raise BadChoice(
            f"the data has changed since {folder} was begun ({known['data']['pictures']} pictures of "
            f"{len(known['data']['labels'])} classes then, {data['pictures']} of {len(data['labels'])} "
            "now, or other names): name another --out, or --fresh"
        )


def _fill(before: dict[str, Any], part: Part) -> None:
    """A recipe of an earlier version has the defaults of what has come since; it had the settings of all losses."""
    fields = type(part).model_fields
    if isinstance(part, Loss):
        for name in [name for name, value in before.items() if name not in fields or value is None]:
            del before[name]
    for name, about in fields.items():
        value = getattr(part, name)
        if name not in before:
            before[name] = about.get_default(call_default_factory=True)  # type: ignore[call-arg]
        elif isinstance(value, Part) and isinstance(before[name], dict):
            _fill(before[name], value)


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
