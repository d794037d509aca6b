"""What is decoded once lies in memory once per machine: its processes divide the work, and read each other's part."""

import os
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from fovea.basics import FoveaError, of_environment

T = TypeVar("T")
Skipped = list[tuple[str, str]]  # names, and why
Told = list[tuple[int, T]]  # rows that could be filled, and what is to be known of them
Fill = Callable[[Tensor, range], tuple[Told[T], Skipped]]
MEMORY = Path("/dev/shm")  # memory that processes share; a file there has no name as soon as all of them have it


def beside() -> int:
    """Processes of this run on this machine, this one included."""
    return of_environment("LOCAL_WORLD_SIZE", 1, 1) if dist.is_initialized() else 1


def everyones(mine: T) -> list[T]:
    """What each process has, in their order."""
    if not dist.is_initialized():
        return [mine]
    everyone: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, mine)
    return everyone


def filled(
    shape: Sequence[int], dtype: torch.dtype, device: torch.device, fill: Fill[T], together: int = 1
) -> tuple[Tensor, list[T], Skipped]:
    """A tensor of which each process of this machine fills the rows that are its own, a multiple of `together`, with
    what is known of the rows, and what is missing. On a CPU it is one for all of them; every GPU has its own."""
    count, world = shape[0], beside()
    shared = _shared(torch.Size(shape), dtype, device) if world > 1 and count else None
    if shared is None:
        rows, turn, world = torch.empty(*shape, dtype=dtype, device=device), 0, 1
    else:
        rows, turn = shared, of_environment("LOCAL_RANK", 0, 0)
    groups = -(-count // together)
    first, stop = (min(groups * rank // world * together, count) for rank in (turn, turn + 1))
    known, missing = fill(rows, range(first, stop))
    machine = os.environ.get("GROUP_RANK", "")
    parts = [(machine, known, missing)] if shared is None else everyones((machine, known, missing))
    known = [row for where, told, _ in parts if where == machine for row in told]
    missing = [name for where, _, names in parts if where == machine for name in names]
    if turn == 0:  # rows that could not be filled are closed up
        for place, (number, _) in enumerate(known):
            if place != number:
                rows[place] = rows[number]
    if shared is not None:
        everyones(None)  # all wait for the rows to be as they stay
    return rows[: len(known)].to(device), [told for _, told in known], missing


def _shared(shape: torch.Size, dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """Memory that the processes of this machine share, by a file that only they hold; none where there is no room."""
    machine, first = os.environ.get("GROUP_RANK", ""), of_environment("LOCAL_RANK", 0, 0) == 0
    size = shape.numel() * dtype.itemsize
    paths = everyones((machine, _file(size)) if first else None)
    path = next(path for where, path in filter(None, paths) if where == machine)
    rows = None if path is None else torch.from_file(path, shared=True, size=shape.numel(), dtype=dtype).view(shape)
    everyones(None)
    if first and path is not None:
        os.unlink(path)
    if rows is None and device.type == "cpu":
        places = f"{size / 1e6:,.0f} MB in {MEMORY} or {tempfile.gettempdir()}"
        raise FoveaError(f"the processes hold the pictures together and find no {places}: --set data.hold=false")
    return rows


def _file(size: int) -> str | None:
    """A new file whose room is taken, so that no write into it can fail."""
    for folder in (MEMORY, Path(tempfile.gettempdir())):
        with suppress(OSError):
            handle, path = tempfile.mkstemp(prefix="fovea-", dir=folder)
            try:
                os.posix_fallocate(handle, 0, size)
                return path
            except OSError:
                os.unlink(path)
            finally:
                os.close(handle)
    return None
