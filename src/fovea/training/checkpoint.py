"""Checkpoints that are whole or not there: written beside the good one, which they replace when complete."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import Annotated, Any
from zipfile import ZIP_STORED, ZipFile

import torch
from pydantic import AliasChoices, Field, Json, PlainValidator
from torch import Tensor, nn

from fovea.basics import BadChoice, Count, Damaged, FoveaError, Record, Text, whole
from fovea.training.folder import CHECKPOINT
from fovea.training.losses import Loss
from fovea.training.parts import Part
from fovea.training.recipe import Recipe
from fovea.training.shards import like

NAME = CHECKPOINT
REMEDY = "start anew with --fresh, or name another --out"
# keys that may change
FREE = {"about", "command", "name", "expected", "took", "save_every", "log_every", "test_every", "strategy"}


def _tensors(value: Any) -> Any:
    """A module's state as it is, which knows more than a copy would."""
    if not isinstance(value, dict) or not all(isinstance(tensor, Tensor) for tensor in value.values()):
        raise ValueError("Input should be tensors by their names")
    wrong = [key for key, tensor in value.items() if tensor.is_floating_point() and not bool(tensor.isfinite().all())]
    if wrong:
        raise ValueError(f"{wrong[0]} holds values that are not numbers")
    return value


class Data(Record):
    labels: list[Text]
    pictures: Count


class Moments(Record):
    """An optimizer's state; its groups are the recipe's."""

    state: dict[Count, dict[str, Any]]
    param_groups: list[Any]


class Best(Record):
    """The weights of the epoch that did best so far."""

    step: Count
    score: float
    state: Annotated[dict[str, Any], PlainValidator(_tensors)]


class Checkpoint(Record):
    """A run at a step."""

    step: Count
    seconds: Annotated[float, Field(ge=0)]
    recipe: Json[dict[str, Any]]
    data: Data
    stepper: Annotated[dict[str, Any], PlainValidator(_tensors)]
    optimizer: Annotated[Moments, Field(validation_alias=AliasChoices("optimizer", "optimiser"))]
    averaged: Annotated[dict[str, Any], PlainValidator(_tensors)] | None
    precision: dict[str, int | float]
    best: Best | None = None


def save(folder: Path, state: Mapping[str, Any]) -> Path:
    """A full disk leaves the last good checkpoint as it was, and says so."""
    path = folder / NAME
    try:
        with whole(path, sync=True) as part, open(part, "wb") as file:
            torch.save(dict(state), file)
    except (OSError, RuntimeError) as error:  # torch's own writer turns a full disk into a RuntimeError
        good = f"the last good one, {path}, is whole" if path.is_file() else "there is none yet"
        raise FoveaError(f"the checkpoint could not be written to {folder} ({_reason(error)}); {good}") from error
    return path


def load(folder: Path, most: int) -> Checkpoint | None:
    """The checkpoint, if there is one; of more than `most` bytes it is none of this run's."""
    path = folder / NAME
    if not path.is_file():
        return None
    with sound(path):
        with ZipFile(path) as parts:
            if path.stat().st_size > most or any(part.compress_type != ZIP_STORED for part in parts.infolist()):
                raise ValueError("larger than this run's")
            if parts.testzip() is not None:
                raise ValueError("a wrong checksum")
        return Checkpoint.read(torch.load(path, map_location="cpu", weights_only=True), path, REMEDY)
    return None


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """What torch says of a checkpoint that does not fit, in our words: it has no error of its own."""
    try:
        yield
    except FoveaError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise FoveaError(f"{path} cannot be read now: {error.strerror}") from None
        raise Damaged(f"{path} cannot be read, or is another run's ({_reason(error)}): {REMEDY}") from None


def same_run(known: Checkpoint, recipe: Recipe, data: Data, folder: Path) -> None:
    """A run goes on with the recipe and the data that it began with. Nothing that a checkpoint names is imported."""
    with sound(folder / NAME):
        before, now = known.recipe, json.loads(recipe.model_dump_json())
        _fill(before, recipe)
        for content in (before, now):
            content["data"].pop("workers", None)
    differ = [key for key in now if key not in FREE and before.get(key) != now[key]]
    if differ:
        why = "--resume goes on with the same one, its --set included; name another --out, or --fresh"
        raise BadChoice(f"{folder} was trained by another recipe ({', '.join(differ)} differ): {why}")
    if known.data != data:
        raise BadChoice(
            f"the data has changed since {folder} was begun ({known.data.pictures} pictures of "
            f"{len(known.data.labels)} classes then, {data.pictures} of {len(data.labels)} "
            "now, or other names): name another --out, or --fresh"
        )


def put_back(optimizer: torch.optim.Optimizer, known: Moments) -> None:
    """An optimizer's state, if it is what this one would have after a step; its weights change, and are to be put back
    after it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad()
    wanted = optimizer.state_dict()
    moments: dict[int, dict[str, Any]] = {}
    for number, state in known.state.items():
        fresh = wanted["state"].get(number, {})
        if _shapes(state) != _shapes(fresh):
            raise ValueError(f"the optimizer's state of parameter {number} does not fit")
        moments[number] = {key: like(value, fresh[key]) for key, value in state.items()}
    optimizer.load_state_dict({"state": moments, "param_groups": wanted["param_groups"]})


def _shapes(state: Mapping[str, Any]) -> dict[str, tuple[int, ...] | None]:
    return {key: None if value is None else tuple(torch.as_tensor(value).shape) for key, value in state.items()}


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
        with TemporaryFile(dir=folder):  # several processes may try at once
            pass
    except OSError as error:
        raise FoveaError(f"{folder} cannot be written to ({error.strerror}); name another folder with --out") from None
    free = shutil.disk_usage(folder).free
    if free < needed:
        why = f"the run's checkpoints need {needed / 1e6:,.0f} MB; make room, or name another folder with --out"
        raise FoveaError(f"{folder} has {free / 1e6:,.0f} MB left and {why}")


def size_of(module: nn.Module, copies: int) -> int:
    """An upper bound of a run's files: weights, moments, copies (averages, the best), the new beside the old, more."""
    weights: int = sum(one.numel() * one.element_size() for one in module.state_dict().values())
    return 3 * weights * (3 + copies) + 20_000_000


def _reason(error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return str(error).splitlines()[0] if str(error) else type(error).__name__
