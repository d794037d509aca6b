"""What a recipe trains on: pictures or another medium. Each opens its data, builds its network, feeds and tests it."""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

import torch
from lightning.fabric import Fabric
from torch import nn

from fovea.basics.errors import BadChoice, nearest
from fovea.data import DataSet, open_data
from fovea.data.layouts import held_by
from fovea.models.glimpsing import Glimpsing
from fovea.networks.loading import keep_classes, kind_of, load
from fovea.networks.network import Network
from fovea.training.clips import ClipMedium
from fovea.training.feed import Feed, HeldOut, Progress, feed, preparing
from fovea.training.recipe import NetworkPart, Recipe
from fovea.training.scoring import Classified, Retrieved
from fovea.training.sounds import SoundMedium
from fovea.training.text import TextMedium
from fovea.training.walks import Walked


class Tested(Protocol):
    """A test set, and how a network does on it."""

    @property
    def skipped(self) -> list[tuple[str, str]]: ...

    def __len__(self) -> int: ...

    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        """`module` is the network's, or a copy with averaged weights; each process takes its share."""
        ...


class Medium(Protocol):
    """The data of a recipe. `labels` are the classes, in the order of the network's outputs."""

    name: str
    labels: tuple[str, ...]

    @property
    def pictures(self) -> DataSet | None: ...

    def __len__(self) -> int: ...

    def network(self) -> Network: ...

    def feed(self, network: Network, device: torch.device, progress: Progress) -> Feed: ...

    def tested(self, network: Network, device: torch.device, progress: Progress) -> Tested | None: ...


def medium_of(recipe: Recipe) -> Medium:
    holds = held_by(recipe.data.train)
    if holds in MEDIA:
        return MEDIA[holds](recipe)
    if recipe.data.localizer is not None:
        from fovea.training.patches import PatchMedium

        return PatchMedium(recipe)
    if kind_of(recipe.network.name).startswith(("twostream/", "local/")):
        from fovea.training.looking import TwoStreamMedium

        return TwoStreamMedium(recipe)
    return Pictures(recipe)


class Pictures:
    def __init__(self, recipe: Recipe) -> None:
        self.recipe, self.data = recipe, open_data(recipe.data.train)
        self.pictures: DataSet | None = self.data
        self.name, self.labels = self.data.name, self.data.labels
        _known_labels(self.data)
        ranking = recipe.loss.reads == "embedding"  # classes that are not trained are what embeddings are tested on
        test = None if recipe.data.test is None else open_data(recipe.data.test, names=None if ranking else self.labels)
        self.test = test if test is None or ranking else numbered_as(test, self.labels)

    def __len__(self) -> int:
        return len(self.data)

    def network(self) -> Network:
        return network_of(self.recipe.network, None if self.recipe.loss.reads == "embedding" else self.labels)

    def feed(self, network: Network, device: torch.device, progress: Progress) -> Feed:
        return feed(network, self.data, self.recipe.data, self.recipe.augment, device, progress)

    def tested(self, network: Network, device: torch.device, progress: Progress) -> Tested | None:
        if self.test is None:
            return None
        held = HeldOut(network, self.test, device, progress)
        if self.recipe.loss.reads == "embedding":
            return Retrieved(held)
        return Walked(held) if isinstance(network.module, Glimpsing) else Classified(held)


# by what a data set holds; pictures where it is none of these
MEDIA: dict[str, Callable[[Recipe], Medium]] = {"sounds": SoundMedium, "texts": TextMedium, "clips": ClipMedium}


def network_of(part: NetworkPart, labels: tuple[str, ...] | None) -> Network:
    """The network as the recipe wants it; without labels, an embedding."""
    classes = None if part.keep or labels is None else len(labels)
    network = load(part.name, part.weights, part.pretrained, classes, part.options)
    if labels is None and network.labels is not None:
        raise BadChoice(f"{part.name} tells classes apart, and ranking losses are of embeddings: embedding/{part.name}")
    if part.keep and labels is not None:
        keep_classes(network, labels)
    prepare = preparing(network)
    size = prepare.size if part.size is None else (part.size, part.size)
    if part.squash and part.crop is not None:
        raise BadChoice("network.squash shows the whole picture and network.crop its middle: give one of them")
    crop = None if part.squash else prepare.crop if part.crop is None else part.crop
    network.transform = replace(prepare, size=size, crop=crop)
    network.labels = labels
    return network


def _known_labels(data: DataSet) -> None:
    """Every sample is of a class that the network has an output for."""
    most = max((sample.label for sample in data.samples), default=-1)
    if most >= len(data.labels):
        raise BadChoice(f"{data.name} has a picture of class {most}, and the network {len(data.labels)} classes")


def numbered_as(data: DataSet, labels: tuple[str, ...]) -> DataSet:
    """A test set whose classes have the numbers that they were trained with, found by name."""
    if data.labels == labels:
        return data
    used = {sample.label: data.labels[sample.label] for sample in data.samples}
    unknown = sorted(set(used.values()) - set(labels))
    if unknown:
        raise BadChoice(
            f"the test data {data.name} has classes that were not trained: {', '.join(unknown[:5])}"
            f"{nearest(unknown[0], labels)} (labels= leaves classes out)"
        )
    samples = (replace(sample, label=labels.index(used[sample.label])) for sample in data.samples)
    return replace(data, samples=tuple(samples), labels=labels)
