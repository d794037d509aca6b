"""fovea predict."""

from collections.abc import Iterator
from itertools import starmap
from typing import TYPE_CHECKING, Any

import typer

from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, tell_note, tell_skipped, write
from fovea.cli.remote import ask_service

if TYPE_CHECKING:
    from fovea.results import Step


@command(
    "predict",
    arguments=("pictures",),
    options=("net", "top", "fit", "batch", "max_pixels", "weights", "untrained", "device", "json", "server", "token"),
    help={"top": "So many labels of each picture."},
    epilog="Examples:  fovea predict photos/  |  fovea predict bird.jpg --net efficientnet_lite0-cub100 --top 3",
)
def predict(asked: Asked) -> None:
    """Say what pictures are taken for: a line each, with the best labels and their probabilities."""
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


def _here(asked: Asked) -> "tuple[dict[str, Any], Iterator[Step[Any]]]":
    """Settings and steps, of a network that is loaded."""
    network = asked.network()
    from fovea.networks import input_of, predict_steps
    from fovea.results import Step

    steps = predict_steps(network, list(asked.pictures), asked.top, asked.batch, asked.max_pixels)
    return network.settings(input=input_of(network)), starmap(Step, steps)
