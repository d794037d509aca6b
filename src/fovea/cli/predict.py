"""fovea predict."""

import typer

from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, tell_note, tell_skipped, write


@command(
    "predict",
    arguments=("pictures",),
    options=("net", "top", "fit", "batch", "max_pixels", "weights", "untrained", "device", "json"),
    help={"top": "So many labels of each picture."},
    epilog="Examples:  fovea predict photos/  |  fovea predict bird.jpg --net efficientnet_lite0-cub100 --top 3",
)
def predict(asked: Asked) -> None:
    """Say what pictures are taken for: a line each, with the best labels and their probabilities."""
    network = asked.network()
    rows, skipped = [], list[tuple[str, str]]()
    with bar("predicting") as advance:
        from fovea.measures.figures import Figures
        from fovea.networks import input_of, predict_steps

        steps = predict_steps(network, list(asked.pictures), asked.top, asked.batch, asked.max_pixels)
        for found, left, done, total in steps:
            for prediction in found:
                say.print(f"{prediction.name}: {prediction.line()}")
            rows += [prediction.to_dict() for prediction in found]
            skipped += left
            advance(done, total)
    tell_skipped(skipped)
    settings = network.settings(input=input_of(network))
    tell_note(settings, rows)
    write(Figures("predict", settings, rows, skipped), asked.json)
    if not rows:
        raise typer.Exit(1)
