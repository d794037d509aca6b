"""fovea train."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fovea.basics import FoveaError, of_environment, printable
from fovea.cli.commands import Asked, command
from fovea.cli.common import say, warn


@command(
    "train",
    arguments=("recipe",),
    options=("set", "out", "resume", "fresh", "device"),
    help={"out": "Folder for checkpoint, log, curves, weights and card; out/train/NAME if not given."},
    epilog="Examples:  fovea train recipes/digits.toml  |  fovea train recipes/digits.toml --set epochs=2 --set seed=1"
    "  |  torchrun --nproc-per-node 2 -m fovea train recipes/digits.toml",
)
def train(asked: Asked) -> None:
    """Train a network by a recipe; a run that was killed goes on with --resume and ends as if nothing had happened."""
    from fovea.training import recipe as recipes

    name, changes = asked.recipe.stem, asked.set or ()
    recipe = recipes.read(asked.recipe, changes)
    try:
        from fovea.training.loop import said, train
    except ImportError as error:
        raise FoveaError(f"training needs more packages ({error.name}): pip install 'fovea[train]'") from None
    out = asked.out or Path("out/train") / name
    with _shown(name) as show:
        restarted = _restarted(out)
        options = asked.resume or restarted, asked.fresh and not restarted
        done = train(recipe, out, name, *options, asked.device, show, changes)
    if os.environ.get("RANK", "0") == "0":  # among processes that torchrun started, one speaks for all
        say.print(f"score: {said(done.score)}{_against(recipe.expected, done.score)}")
        say.print(f"time: {done.minutes:.1f} minutes; weights: {done.weights} (sha256 {done.hash} of its tensors)")
        say.print(f"card: {done.card}; curves: {out / 'curves.png'}; log: {out / 'log.jsonl'}")


def _restarted(where: Path) -> bool:
    """torchrun starts all processes again when one of them died: then the run that it began goes on by itself."""
    from fovea.training.loop import STARTED
    from fovea.training.together import attempt

    begun = where / STARTED
    again = of_environment("TORCHELASTIC_RESTART_COUNT", 0, 0) > 0
    return again and begun.is_file() and begun.read_bytes() == attempt().encode()


def _against(expected: dict[str, float], score: dict[str, float]) -> str:
    stated = [
        f"{key} {value} {'reached' if score[key] >= value else 'NOT reached'}"
        for key, value in expected.items()
        if key in score
    ]
    return f" (stated: {', '.join(stated)})" if stated else ""


class _Bar:
    """Progress on stderr: a bar on a terminal, one line per test elsewhere."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress, self.name = progress, name
        self.decode: TaskID | None = None
        self.task: TaskID | None = None

    def decoding(self, done: int, total: int) -> None:
        if self.decode is None:
            self.decode = self.progress.add_task("decoding pictures", total=total, facts="")
        self.progress.update(self.decode, completed=done, total=total, visible=done < total)

    def step(self, done: int, total: int, facts: dict[str, Any]) -> None:
        if self.task is None:
            self.task = self.progress.add_task(f"training {printable(self.name)}", total=total, facts="")
        text = (
            f"loss {facts['loss']:.3f}  accuracy {facts['accuracy']:.3f}  {facts['images_per_second']:,.0f} images/s"
            f"  epoch {facts['epoch']:.1f}"
        )
        self.progress.update(self.task, completed=done, total=total, facts=text)

    def line(self, text: str) -> None:
        self.progress.console.print(text)


@contextmanager
def _shown(name: str) -> Iterator[_Bar]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=warn, transient=True, disable=not warn.is_terminal) as progress:
        yield _Bar(progress, name)
