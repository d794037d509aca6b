"""What a network takes pictures for: the best labels, with their probabilities."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice, demand_bounds, finite
from fovea.networks.classes import labeled, predictions
from fovea.networks.inputs import Group, Inputs, groups, in_order
from fovea.networks.running import Runnable
from fovea.pictures import tell_skipped

BATCH = 16
PRINTED = 12  # pictures in a shell


@dataclass(frozen=True)
class Prediction:
    """What one picture is taken for; the best first."""

    name: str
    predictions: tuple[tuple[str, float], ...]  # label, probability

    @property
    def label(self) -> str:
        return self.predictions[0][0]

    @property
    def probability(self) -> float:
        return self.predictions[0][1]

    def to_dict(self) -> dict[str, Any]:
        best = [{"label": label, "probability": finite(share)} for label, share in self.predictions]
        return {"name": self.name, "label": self.label, "probability": finite(self.probability), "predictions": best}

    def line(self) -> str:
        return ", ".join(f"{label} {share:.2f}" for label, share in self.predictions)

    def __repr__(self) -> str:
        return f"<{self.name}: {self.line()}>"


Steps = Iterator[tuple[list[Prediction], list[tuple[str, str]], int, int]]


class Predictions(tuple[Prediction, ...]):
    """One Prediction per picture, in the order given; `skipped` names those that could not be read, and why."""

    skipped: tuple[tuple[str, str], ...] = ()
    note = ""  # what a network of few classes knows

    def __repr__(self) -> str:
        rows = [f"{item.name}: {item.line()}" for item in self[:PRINTED]]
        rows += [f"… and {len(self) - PRINTED} more"] if len(self) > PRINTED else []
        rows += [f"{len(self.skipped)} skipped"] if self.skipped else []
        rows += [f"({self.note})"] if self.note else []
        return "\n".join(rows)


def predict(network: Runnable, pictures: Inputs, k: int, batch: int, max_pixels: int) -> Predictions:
    items, skipped = list[Prediction](), list[tuple[str, str]]()
    for found, left, *_ in predict_steps(network, pictures, k, batch, max_pixels):
        items += found
        skipped += left
    tell_skipped(bool(items), skipped, stacklevel=4)
    predicted = Predictions(items)
    predicted.skipped, predicted.note = tuple(skipped), network.knows
    return predicted


def predict_steps(network: Runnable, pictures: Inputs, k: int, batch: int, max_pixels: int) -> Steps:
    """Batch after batch: predictions, what could not be read, how many are done, and of how many."""
    demand_bounds({"k": k, "batch": batch, "max_pixels": max_pixels})

    def predicted(group: Group, tensors: Tensor) -> list[Prediction]:
        known = labeled(network, tensors)
        with torch.no_grad():
            rows = predictions(known, known(tensors), k)
        if not all(rows):
            raise BadChoice(
                f"{network.name or 'this network'} has no classes to predict (it is an embedding, or gives one number "
                "per picture): call it for its output, net(pictures), or fovea.wrap(module, labels=[...])"
            )
        return [Prediction(shown.name, row) for shown, row in zip(group.shown, rows, strict=True)]

    return in_order(network, groups(network, pictures, batch, max_pixels), predicted)
