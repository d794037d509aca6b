"""What a network gives for the pictures of a data set, and small questions about its input and output."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics import LOCAL, BadChoice, BadPicture, Engine, Progress, quiet
from fovea.basics import in_order as in_order_of
from fovea.data import DataSet, Sample
from fovea.networks.inputs import Group, groups, run_ahead
from fovea.networks.network import Network, as_found
from fovea.networks.running import device_of, placed

PART = 64  # pictures that a worker is given at a time
Skipped = list[tuple[str, str]]
Answer = Callable[[Tensor], Tensor] | None
Outputs = Iterator[tuple[list[Sample], Tensor]]


def outputs(
    network: Network,
    data: DataSet,
    size: int,
    skipped: Skipped,
    progress: Progress = quiet,
    answer: Answer = None,
    engine: Engine = LOCAL,
) -> Outputs:
    """What the network, or another `answer` of it, gives for every batch, in eval mode and without gradients; it is
    left as found. An engine's workers each do some of the pictures, with the network as it is."""
    done = 0
    for group, output in _found(network, data, size, answer, engine):
        skipped += group.skipped
        if output is not None:
            done += len(output)
            yield group.of(data.samples), output
        progress(group.done, group.total)
    if not done:
        reason = f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else f"{data.name} is empty"
        raise BadPicture(reason)


def _found(
    network: Network, data: DataSet, size: int, answer: Answer, engine: Engine
) -> Iterator[tuple[Group, Tensor | None]]:
    if engine.here:
        yield from _run(network, data, size, answer)
        return

    def make() -> Callable[[tuple[int, DataSet]], tuple[int, list[tuple[Group, Tensor | None]]]]:
        placed(network, device_of("auto"))

        def work(part: tuple[int, DataSet]) -> tuple[int, list[tuple[Group, Tensor | None]]]:
            found = _run(network, part[1], size, answer)
            return part[0], [(group.without_inputs(), None if out is None else out.cpu()) for group, out in found]

        return work

    start = 0
    for part in in_order_of(engine.map(make, list(enumerate(parts_of(data))))):
        for group, output in part:
            yield group.moved(start, len(data)), output
        start += part[-1][0].total


def parts_of(data: DataSet) -> Iterator[DataSet]:
    """A data set as parts that workers are given."""
    for start in range(0, len(data), PART):
        yield replace(data, samples=data.samples[start : start + PART])


def _run(network: Network, data: DataSet, size: int, answer: Answer) -> Iterator[tuple[Group, Tensor | None]]:
    def run(group: Group) -> Tensor | None:
        with as_found(network), torch.no_grad():
            return None if group.batch is None else (answer or network)(group.batch)

    return run_ahead(network, groups(network, data, size), run)


def blank(network: Network) -> torch.Tensor:
    """An empty picture as the network takes it (1,C,H,W)."""
    tensor, _ = network.prepare(Image.new("RGB", (256, 256), "gray"))
    return tensor.unsqueeze(0).to(network.device, network.dtype)


def input_of(network: Network) -> str:
    """How pictures of other proportions than the network's come in."""
    if getattr(network.transform, "whole", False):
        return "whole, in its proportions" if getattr(network.transform, "step", 0) else "whole, padded"
    return "squashed" if getattr(network.transform, "crop", 0) is None else "cropped"


def rank_of(output: torch.Tensor, labels: torch.Tensor) -> NDArray[np.int64]:
    """How many other classes score no lower than the true one: a tie is not a hit."""
    own = output.gather(1, labels.to(output.device).unsqueeze(1))
    return ((~(output < own)).sum(1) - 1).cpu().numpy()


IMAGENET = 1000
SHOWN = 5  # names in an error


@dataclass(frozen=True)
class Matching:
    """The output of every class that occurs in the data, and by what it was found."""

    outputs: Mapping[int, int]  # the data's label: the network's output
    how: str

    def of(self, samples: Sequence[Sample]) -> Tensor:
        """The output of every sample's class."""
        return torch.tensor([self.outputs[sample.label] for sample in samples])


def match(network: Network, data: DataSet, outputs: int) -> Matching:
    """By the classes' names where the network knows them all, by `imagenet_label` in the data's rows for a network with
    ImageNet's 1000 outputs, by number where it knows none of the names."""
    used = sorted({sample.label for sample in data.samples})
    own = network.labels or ()
    names = {label: data.labels[label] if label < len(data.labels) else str(label) for label in used}
    if own and all(own.count(name) == 1 for name in names.values()):  # ImageNet has two cranes
        return Matching({label: own.index(name) for label, name in names.items()}, "name")
    if outputs == IMAGENET and len(data.labels) < IMAGENET and (rows := _imagenet_labels(data)) is not None:
        return Matching(rows, "imagenet_label")
    strange = [name for name in names.values() if name not in own]
    if strange and any(name in own and not name.isdecimal() for name in names.values()):
        more = f" and {len(strange) - SHOWN} more" if len(strange) > SHOWN else ""
        raise BadChoice(
            f"{network.name or 'the network'} knows {len(names) - len(strange)} of the {len(names)} classes of "
            f"{data.name} by name, but not {', '.join(map(repr, strange[:SHOWN]))}{more}: leave those out with labels= "
            "(labels=0-9 keeps the first ten), or use a network trained on all of them"
        )
    if used and used[-1] >= outputs:
        raise BadChoice(
            f"{network.name or 'the network'} has {outputs} outputs and {data.name} labels up to {used[-1]}, and they "
            f"do not have the same names: use a network trained on {data.name}, or a part of the data (labels=0-9)"
        )
    named = any(not name.isdecimal() for name in names.values()) and any(not name.isdecimal() for name in own)
    return Matching({label: label for label in used}, "number, since the names differ" if named else "number")


def match_by_trying(network: Network, data: DataSet, tensors: Tensor) -> Matching:
    """The same, where nothing has been asked of the network yet: one of the tensors tells how many outputs it has."""
    with as_found(network), torch.no_grad():
        return match(network, data, width_of(network(tensors[:1])))


def width_of(output: Tensor) -> int:
    """How many classes an output tells of."""
    if output.ndim != 2 or output.shape[1] < 2:
        raise BadChoice(
            f"classes need an output of two or more numbers; this network gives {tuple(output.shape[1:])} per picture "
            "(fovea.wrap(module, output=...) picks the logits)"
        )
    return int(output.shape[1])


def _imagenet_labels(data: DataSet) -> dict[int, int] | None:
    pairs = {(sample.label, sample.row.get("imagenet_label", "")) for sample in data.samples}
    found = {label: int(text) for label, text in pairs if text.isdecimal() and len(text) < 5 and int(text) < IMAGENET}
    return found if len(found) == len(pairs) else None
