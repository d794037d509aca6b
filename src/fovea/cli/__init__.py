"""The command line. Imports of torch wait until a command needs it, so that --help answers at once."""

import atexit
import os
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer

from fovea.basics import BadChoice, keep_flat
from fovea.cli import (  # noqa: F401  they declare
    audit,
    calibrate,
    explain,
    export,
    localize,
    look,
    measure,
    patches,
    predict,
    prototypes,
    pyramid,
    search,
    serve,
    train,
    zoom,
)
from fovea.cli.commands import APP, Asked, command, here_is_importable
from fovea.cli.common import bar, say, say_page
from fovea.cli.ending import DEBUG, STATUS, run
from fovea.cli.glossary import writable

app = APP
MOST = 12  # networks of a hub that are listed where none is asked for
HUBS = {  # in `fovea models`
    "timm": ", fetched when first used: classifiers, nearly all of ImageNet's 1000 classes",
    "torchvision": ", fetched when first used: classifiers of ImageNet's 1000 classes, segmentation, detectors",
}
app.add_typer(measure.app, name="measure")
app.add_typer(measure.bench, name="bench")


def _version(wanted: bool) -> None:
    if wanted:
        from fovea import __version__

        say.print(f"fovea {__version__}")
        raise typer.Exit


@app.callback(epilog=f"Exit status: {STATUS}.")
def about(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, metavar="", help="Show the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option(DEBUG, metavar="", help="Before or after a command: show where an error came from.")
    ] = False,
) -> None:
    pass


@command(
    "models",
    arguments=("pattern?",),
    examples=(
        "fovea models",
        "fovea models tnet",
        "fovea models 'timm/*vit*'",
    ),
)
def models(asked: Asked) -> None:
    """List the networks that can be loaded: what each is for, what it knows, and how well it does."""
    from fovea.networks import described
    from fovea.networks import models as listed

    pattern = asked.pattern or ""
    found = listed(pattern)
    if not any(found.values()):
        raise BadChoice(f"no network matches {pattern!r}; 'fovea models' lists them")
    for source, names in found.items():
        shown = names if pattern or source not in HUBS else names[:MOST]
        if names:
            say.print(f"{source} ({len(names)}){HUBS.get(source, '')}", style="bold")
        for name in shown:
            first, *more = [*described(name), ""]
            say.print(f"  {name}{first and f': {first}'}")
            for line in filter(None, more):
                say.print(f"    {line}")
        if len(shown) < len(names):
            left = len(names) - len(shown)
            say.print(f"  … and {left} more: fovea models {source}  |  fovea models '{source}/*resnet*'")
    if not pattern:
        say.print("and a .safetensors file of Network.save, a folder of a transformers model, transformers/NAME;")
        say.print("in Python any module: fovea.wrap(module)")


@command("methods", examples=("fovea methods",))
def methods(asked: Asked) -> None:
    """List the ways to compute a heatmap: what each does, takes and needs."""
    from fovea.heatmaps import method, names

    for title, costly in (("quick", False), ("slow: run where they are named", True)):
        say.print(title, style="bold")
        for entry in (entry for entry in map(method.entry, names()) if bool(entry.traits.get("costly")) == costly):
            words = "; ".join(f"{trait} {entry.traits[trait]}" for trait in ("takes", "needs") if trait in entry.traits)
            say.print(f"  {entry.name:<20} {entry.about}{words and f' ({words})'}")
    say.print("all: every one that applies to the network; your own: package.module:name (docs/extending.md)")


@command(
    "demo",
    options=("device", "out"),
    usual={"out": Path("out/demo")},
    help={"out": "Folder for the page."},
    examples=("fovea demo",),
)
def demo(asked: Asked) -> None:
    """Explain a few photographs with real weights, offline, and write one page to open in a browser."""
    folder = asked.folder()
    with bar("making the page") as advance:
        from fovea.cli.demo import make

        page = make(folder, advance, asked.device)
    say_page(page)


@command(
    "results",
    options=("from_", "out"),
    usual={"out": Path("docs/results.md")},
    help={"out": "The overview; the other pages and the plots go to a folder of its name."},
    examples=("fovea results",),
)
def results(asked: Asked) -> None:
    """Turn results/ into pages with verdicts and plots, beside the papers' figures, and fill in the tables of docs."""
    from fovea.measures.results import write
    from fovea.measures.tables import FILE, refill

    writable("--out", asked.out)
    changed = write(asked.from_, asked.out)
    beside = [path for path in (Path("README.md"), *sorted(asked.out.parent.rglob("*.md"))) if path.is_file()]
    changed += refill(asked.from_, beside) if (asked.from_ / FILE).is_file() else []
    for path in dict.fromkeys([asked.out, *changed]):
        say.print(str(path))


def main() -> None:
    """Whatever happens, it ends with an exit status and, where something went wrong, one line."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a kill, too, leaves what was done in order
    keep_flat()
    here_is_importable()
    sys.exit(run(app, sys.argv[1:]))


def program() -> None:
    """`main` as all that a process does: it ends without taking apart what was imported, which takes a second."""
    statuses: list[int] = []
    atexit.register(_leave, statuses)  # before all others, so that it comes after them
    try:
        main()
    except SystemExit as end:
        statuses += [end.code] if isinstance(end.code, int) else []
        raise


def _leave(statuses: list[int]) -> None:
    """Threads have ended by now, and what others had to do at the end is done."""
    if statuses:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(statuses[0])
