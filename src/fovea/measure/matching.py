"""Which of a network's outputs stands for which class of the data."""

from collections.abc import Mapping
from dataclasses import dataclass

from fovea.data import DataSet
from fovea.errors import BadChoice
from fovea.network import Network

IMAGENET = 1000


@dataclass(frozen=True)
class Matching:
    """The output of every class that occurs in the data, and by what it was found."""

    outputs: Mapping[int, int]  # the data's label: the network's output
    how: str


def match(network: Network, data: DataSet, outputs: int) -> Matching:
    """By the classes' names where the network knows them all, by `imagenet_label` in the data's rows for a network with
    ImageNet's 1000 outputs, otherwise by number.
    """
    used = sorted({sample.label for sample in data.samples})
    own = network.labels or ()
    names = {label: data.labels[label] if label < len(data.labels) else str(label) for label in used}
    if own and all(own.count(name) == 1 for name in names.values()):  # ImageNet has two cranes
        return Matching({label: own.index(name) for label, name in names.items()}, "name")
    if outputs == IMAGENET and len(data.labels) < IMAGENET and (rows := _imagenet_labels(data)) is not None:
        return Matching(rows, "imagenet_label")
    if used and used[-1] >= outputs:
        raise BadChoice(
            f"{network.name or 'the network'} has {outputs} outputs and {data.name} labels up to {used[-1]}, and they "
            f"do not have the same names: use a network trained on {data.name}, or a part of the data (labels=0-9)"
        )
    named = any(not name.isdecimal() for name in names.values()) and any(not name.isdecimal() for name in own)
    return Matching({label: label for label in used}, "number, since the names differ" if named else "number")


def _imagenet_labels(data: DataSet) -> dict[int, int] | None:
    pairs = {(sample.label, sample.row.get("imagenet_label", "")) for sample in data.samples}
    found = {label: int(text) for label, text in pairs if text.isdecimal() and int(text) < IMAGENET}
    return found if len(found) == len(pairs) else None
