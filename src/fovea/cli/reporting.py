"""fovea results."""

from pathlib import Path
from typing import Annotated

import typer

from fovea.cli.common import say

app = typer.Typer()


@app.command()
def results(
    folder: Annotated[Path, typer.Option("--from", help="Folder of the JSON files that 'fovea measure' wrote.")] = Path(
        "results"
    ),
    out: Annotated[Path, typer.Option(help="The page.")] = Path("docs/results.md"),
) -> None:
    """Turn the figures in results/ into a page, beside the papers' own."""
    from fovea.measures.results import page

    text = page(folder)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(text, encoding="utf-8")
    say.print(str(out), markup=False)
