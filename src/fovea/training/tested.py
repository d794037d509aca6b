"""What a trained network says of its test pictures, on a page: those that it takes for another class come first."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fovea.data import DataSet, Sample
from fovea.heatmaps import DEFAULT, Explained, explain_batches
from fovea.heatmaps.explain import find
from fovea.heatmaps.targets import each
from fovea.networks import Network
from fovea.results import FILE, PAGE, Step, View, Writer
from fovea.training.feed import Progress

MOST = 120  # pictures on the page
Outcome = tuple[Sample, str, str]  # a sample, its class, and what it was taken for


@dataclass(frozen=True)
class Tried(Explained):
    """A picture's maps, beside the class that it is of."""

    truth: str

    def view(self) -> View:
        right = "right" if self.label == self.truth else f"wrong: it is {self.truth}"
        return replace(super().view(), words=right)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"truth": self.truth}


def page_of(network: Network, data: DataSet, outcomes: Sequence[Outcome], folder: Path, progress: Progress) -> Path:
    """Wrong ones with the maps of the answer and of what it should have been; right ones with that of the answer."""
    wrong = [outcome for outcome in outcomes if outcome[1] != outcome[2]][:MOST]
    right = [outcome for outcome in outcomes if outcome[1] == outcome[2]][: MOST - len(wrong)]
    settings = {"net": network.name, "data": data.name, "wrong": len(wrong), "right": len(right), "method": DEFAULT}
    for name in (FILE, PAGE):  # of a run that was thrown away
        (folder / name).unlink(missing_ok=True)
    with Writer(folder, "test pictures", settings) as writer:
        for step in _steps(network, data, wrong, right):
            writer.add(step.results, step.skipped)
            progress(step.done, len(wrong) + len(right))
    return writer.folder / PAGE


def _steps(network: Network, data: DataSet, wrong: list[Outcome], right: list[Outcome]) -> Iterator[Step[Explained]]:
    before = 0
    for outcomes in filter(None, (wrong, right)):
        samples, truths, answers = zip(*outcomes, strict=True)
        truth = {sample.name: label for sample, label in zip(samples, truths, strict=True)}
        aims = [list(dict.fromkeys(both)) for both in zip(answers, truths, strict=True)]
        for step in explain_batches(network, replace(data, samples=samples), [find(DEFAULT)], each(aims)):
            tried = [Tried(result.parts, truth[result.name]) for result in step.results]
            yield Step(tried, step.skipped, before + step.done, before + step.total)
        before += len(outcomes)
