"""fovea calibrate."""

from pathlib import Path

from fovea.basics import BadChoice
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, tell_skipped, write


@command(
    "calibrate",
    options=("net", "data", "split", "limit", "batch", "out", "json", "weights", "device"),
    required=("net", "data", "out"),
    help={
        "net": "A classifier: a name from 'fovea models', or a .safetensors file.",
        "data": "Pictures with labels, apart from those that it is tested on, as cub100:split=train.",
        "out": "The file for the calibrated network: NAME.safetensors.",
    },
    examples=("fovea calibrate --net mine.safetensors --data photos/ --split val --out mine-calibrated.safetensors",),
)
def calibrate_network(asked: Asked) -> None:
    """Correct a classifier's probabilities, and write it to a new file.

    Afterwards about 8 of 10 answers given with a probability of 0.8 are right. The answers themselves stay."""
    if Path(asked.out).suffix != ".safetensors":
        raise BadChoice(f"--out is the file of the calibrated network, NAME.safetensors; got {asked.out}")
    network = asked.network()
    network.metadata()  # what cannot be saved is refused before pictures are read
    with bar("calibrating") as advance:
        import torch

        from fovea.evidence.calibration import calibrate
        from fovea.measures.figures import Figures

        data = asked.dataset(network.labels)
        result = calibrate(network, data, batch=asked.batch, progress=advance)
    tell_skipped(result.skipped)
    floats = [value for value in network.module.parameters() if value.is_floating_point()]
    network.save(asked.out, half=all(torch.equal(value, value.half().to(value)) for value in floats))  # as it came
    for name, before, now in (("NLL", result.nll_before, result.nll), ("ECE", result.ece_before, result.ece)):
        say.print(f"{name} over {result.pictures} pictures: {before:.4f} before, {now:.4f} now")
    say.print(f"temperature: {', '.join(f'{value:.3f}' for value in result.temperatures)}")
    say.print(f"calibrated: {asked.out}")
    row = {key: value for key, value in vars(result).items() if key not in ("temperatures", "skipped")}
    row |= {f"temperature_{things}": value for things, value in enumerate(result.temperatures)}
    write(Figures("calibrate", network.settings(data=data.name), [row], result.skipped), asked.json)
