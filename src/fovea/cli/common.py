"""What every command shares: where it prints, its progress bar, the options that mean the same everywhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from fovea.measure.figures import Figures
    from fovea.network import Network

say, warn = Console(soft_wrap=True, highlight=False), Console(stderr=True, soft_wrap=True, highlight=False)

Net = Annotated[str, typer.Option("--net", help="A name from 'fovea models', or a .safetensors file.")]
Weights = Annotated[Path | None, typer.Option("--weights", help="Your own weights for --net.")]
Untrained = Annotated[bool, typer.Option("--untrained", help="Random weights instead of the hub's.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        help="A path, or a name below $FOVEA_DATA; options after a colon, as in cub100:split=test,labels=50-99.",
    ),
]
Split = Annotated[str | None, typer.Option("--split", help="One split of the data only.")]
Limit = Annotated[int | None, typer.Option("--limit", help="So many pictures, spread evenly.")]
Batch = Annotated[int, typer.Option("--batch", min=1, help="Pictures at a time.")]


@contextmanager
def bar(what: str) -> Iterator[Any]:
    """A progress bar on stderr, so that what is printed stays clean."""
    columns = SpinnerColumn(), TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=warn, transient=True, disable=not warn.is_terminal) as progress:
        task = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def load(net: str, weights: Path | None, untrained: bool) -> "Network":
    from fovea.zoo import load

    return load(net, weights, pretrained=not untrained)


def report(found: "Figures", title: str, json: Path | None, seed: int | None = None) -> None:
    """Figures to the screen, and to the file where one was named; skipped pictures to stderr."""
    write(found, json, seed)
    found.show(title, say)
    for name, reason in found.skipped[:10]:
        warn.print(f"skipped {name}: {reason}", markup=False)
    if len(found.skipped) > 10:
        warn.print(f"… and {len(found.skipped) - 10} more")


def write(found: "Figures", json: Path | None, seed: int | None = None) -> None:
    """To the file where one was named, with the command that did it; whose folders it names is no matter."""
    if json:
        words = (Path(word).name if Path(word).is_absolute() else word for word in sys.argv[1:])
        found.write(json, seed, _recipe(found), " ".join(["fovea", *words]))


def _recipe(found: "Figures") -> str | None:
    """The recipe of what was measured, where it is a network of our own."""
    from fovea.zoo import ours

    recipes = {ours()[row["net"]]["recipe"] for row in found.rows if row.get("net") in ours()}
    return recipes.pop() if len(recipes) == 1 else None
