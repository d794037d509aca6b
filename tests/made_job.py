"""Many small pictures in every form that bulk work takes, and a verb whose worker dies once."""

import io
import os
import signal
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import fovea
from fovea.jobs import Taking, Task, task
from fovea.networks import Network
from fovea.pictures import Picture
from fovea.results import Step


def network() -> Network:
    """Small, and the same every time."""
    import torch

    torch.manual_seed(0)
    return fovea.wrap(fovea.load("smallnet", classes=3).module, fovea.load("smallnet", classes=3).transform, labels=3)


def pictures(folder: Path, count: int, bad: int | None = None) -> Path:
    """So many PNGs; one of them is none."""
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for number in range(count):
        pixels = generator.integers(0, 255, (20 + number % 3, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number:04}.png")
    if bad is not None:
        (folder / f"{bad:04}.png").write_bytes(b"no picture")
    return folder


def tarred(folder: Path, path: Path, mode: str = "w") -> Path:
    """The same as a shard, each with its label, as WebDataset has them."""
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for file in sorted(folder.iterdir()):
            tar.add(file, file.name)
            label = tarfile.TarInfo(f"{file.stem}.cls")
            label.size = 1
            tar.addfile(label, io.BytesIO(b"1"))
    return path


@task("dying", about="predict, where the first worker that comes to a certain picture is killed there")
def dying(network: Network, taking: Taking, marker: str, at: str) -> Task:
    inner = task.get("predict")(network, taking)

    def steps(pictures: Sequence[Picture]) -> Iterator[Step[Any]]:
        if any(picture.name.endswith(at) for picture in pictures) and not os.path.exists(marker):
            Path(marker).write_text(str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)
        yield from inner.steps(pictures)

    return Task("dying", inner.settings, steps)
