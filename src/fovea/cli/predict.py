"""fovea predict."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import typer

from fovea.basics import BadChoice
from fovea.cli.bulk import BULK, in_bulk, is_bulk
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, tell_note, tell_skipped, write
from fovea.cli.remote import ask_service

if TYPE_CHECKING:
    from fovea.results import Step


@command(
    "predict",
    arguments=("pictures",),
    options=(
        "net", "top", "fit", "batch", "max_pixels", "weights", "untrained", "device", "json", "server", "token", "out",
        *BULK,
    ),
    help={"top": "Labels listed for each picture.", "out": "With --parquet or --engine ray: the folder for the rows."},
    examples=(
        "fovea predict photos/",
        "fovea predict bird.jpg --net efficientnet_lite0-cub100 --top 3",
    ),
)  # fmt: skip
def predict(asked: Asked) -> None:
    """Say what is in pictures: a line each, with the best labels and their probabilities."""
    if is_bulk(asked):
        in_bulk(asked, "predict", asked.network(), top=asked.top)
        return
    if asked.out is not None:
        raise BadChoice("--out is for --parquet and --engine ray; to write figures to a file, use --json")
    from fovea.pictures import gather

    rows, skipped = [], list[tuple[str, str]]()
    settings, steps = _here(asked) if asked.server is None else ask_service(asked, "predict", gather(asked.pictures))
    with bar("predicting") as advance:
        from fovea.measures.figures import Figures

        for step in steps:
            for prediction in step.results:
                say.print(f"{prediction.name}: {prediction.line()}")
            rows += [prediction.to_dict() for prediction in step.results]
            skipped += step.skipped
            advance(step.done, step.total)
    tell_skipped(skipped)
    tell_note(settings, rows)
    write(Figures("predict", settings, rows, skipped), asked.json)
    if not rows:
        raise typer.Exit(1)


def _here(asked: Asked) -> "tuple[dict[str, Any], Iterable[Step[Any]]]":
    """Settings and steps, of a network that is loaded."""
    network = asked.network()
    from fovea.jobs import Taking, task

    doing = task.get("predict")(network, Taking(asked.batch, asked.max_pixels), asked.top)
    return dict(doing.settings), doing.steps(list(asked.pictures))
