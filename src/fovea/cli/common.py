"""What every command shares: where it prints, its progress bar, the options that mean the same everywhere."""

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
    if json:
        found.write(json, seed)
    found.show(title, say)
    for name, reason in found.skipped[:10]:
        warn.print(f"skipped {name}: {reason}", markup=False)
    if len(found.skipped) > 10:
        warn.print(f"… and {len(found.skipped) - 10} more")
