"""What a recipe trains on. A medium opens its data, builds its network, feeds and tests it."""

from dataclasses import replace
from typing import Any

import torch

from fovea.basics import BadChoice, nearest
from fovea.data import DataSet, open_data
from fovea.networks import Network, keep_classes, load, match
from fovea.training.feed import Feed, Progress, preparing
from fovea.training.pictures import HeldOut, feed
from fovea.training.recipe import AugmentPart, NetworkPart, Recipe
from fovea.training.scoring import Retrieved, Tested, Walked


class Medium:
    """The data of a recipe. `labels` are the classes, in the order of the network's outputs."""

    pictures: DataSet | None = None  # where it is a set of them
    data: Any
    validation: Any = None
    test: Any

    def __init__(self, recipe: Recipe, labels: tuple[str, ...], data: Any, test: Any) -> None:
        self.recipe, self.labels, self.data, self.test = recipe, labels, data, test
        self.name: str = data.name

    def __len__(self) -> int:
        return len(self.data)

    def network(self) -> Network:
        raise NotImplementedError

    def feed(self, network: Network, device: torch.device, progress: Progress) -> Feed:
        return self.taken(network, self.data, device, progress)

    def tested(self, network: Network, data: Any, device: torch.device, progress: Progress) -> Tested | None:
        """How the network is scored on validation or test data, where there is some."""
        return None if data is None else self.scored(network, self.taken(network, data, device, progress))

    def taken(self, network: Network, data: Any, device: torch.device, progress: Progress) -> Any:
        """Data as the network takes it."""
        raise NotImplementedError

    def scored(self, network: Network, taken: Any) -> Tested:
        raise NotImplementedError


class Pictures(Medium):
    def __init__(self, recipe: Recipe) -> None:
        data, embeds = open_data(recipe.data.train), recipe.loss.reads == "embedding"
        most = max((sample.label for sample in data.samples), default=-1)
        if most >= len(data.labels):
            raise BadChoice(f"{data.name} has a picture of class {most}, and the network {len(data.labels)} classes")
        apart = embeds or recipe.network.keep == "all"  # embeddings are tested on classes that are not trained
        validation, test = (
            given and (open_data(given) if apart else numbered_as(open_data(given, names=data.labels), data.labels))
            for given in (recipe.data.validation, recipe.data.test)
        )
        super().__init__(recipe, data.labels, data, test)
        self.pictures, self.validation = data, validation

    def network(self) -> Network:
        network = network_of(self.recipe.network, None if self.recipe.loss.reads == "embedding" else self.labels)
        if self.recipe.network.keep == "all":
            every = (self.data, self.validation, self.test)
            data, self.validation, self.test = (given and matched(given, network) for given in every)
            more = (sample for given in self.recipe.data.more for sample in open_data(given).samples)
            samples = (*data.samples, *(replace(sample, label=0) for sample in more))  # a teacher names their classes
            self.data = self.pictures = replace(data, samples=samples)
            self.labels = data.labels
        return network

    def feed(self, network: Network, device: torch.device, progress: Progress) -> Feed:
        return feed(network, self.data, self.recipe.data, self.recipe.augment, device, progress)

    def taken(self, network: Network, data: DataSet, device: torch.device, progress: Progress) -> HeldOut:
        return HeldOut(network, data, device, progress)

    def scored(self, network: Network, taken: HeldOut) -> Tested:
        if self.recipe.loss.reads == "embedding":
            return Retrieved(taken)
        return Walked(taken) if network.can("glimpses") else Tested(taken)

    def refuse_streaming(self) -> None:
        if self.recipe.data.hold is False:
            raise BadChoice("patches are cut out of pictures held in memory: leave data.hold out")


def refuse_pictures(recipe: Recipe, augmented: str, sized: str) -> None:
    """What is for pictures alone is refused for another medium, with what it has in its place."""
    part = recipe.network
    if recipe.augment != AugmentPart():
        raise BadChoice(f"[augment] is for pictures: {augmented}")
    if (part.size, part.crop, part.squash, recipe.data.side) != (None, None, False, None):
        raise BadChoice(f"network.size, network.crop, network.squash and data.side are for pictures; {sized}")


def network_of(part: NetworkPart, labels: tuple[str, ...] | None) -> Network:
    """The network as the recipe wants it; without labels, an embedding."""
    classes = None if part.keep or labels is None else len(labels)
    network = load(part.name, part.weights, part.pretrained, classes, part.options)
    if labels is None and network.labels is not None:
        raise BadChoice(f"{part.name} is a classifier, and ranking losses train embeddings: name embedding/{part.name}")
    if part.keep == "all":
        labels = network.labels
    elif part.keep and labels is not None:
        keep_classes(network, labels)
    prepare = preparing(network)
    size = prepare.size if part.size is None else (part.size, part.size)
    if part.squash and part.crop is not None:
        raise BadChoice("network.squash shows the whole picture and network.crop its middle: give one of them")
    crop = None if part.squash else prepare.crop if part.crop is None else part.crop
    network.transform = replace(prepare, size=size, crop=crop)
    network.labels = labels
    return network


def matched(data: DataSet, network: Network) -> DataSet:
    """A set whose classes have the numbers that the network gives them."""
    labels = network.labels or ()
    outputs = match(network, data, len(labels)).outputs
    samples = (replace(sample, label=outputs[sample.label]) for sample in data.samples)
    return replace(data, samples=tuple(samples), labels=labels)


def numbered_as(data: DataSet, labels: tuple[str, ...]) -> DataSet:
    """A test set whose classes have the numbers that they were trained with, found by name."""
    if data.labels == labels:
        return data
    used = {sample.label: data.labels[sample.label] for sample in data.samples}
    unknown = sorted(set(used.values()) - set(labels))
    if unknown:
        why = f"{', '.join(unknown[:5])}{nearest(unknown[0], labels)} (labels= leaves classes out)"
        raise BadChoice(f"the test data {data.name} has classes that were not trained: {why}")
    samples = (replace(sample, label=labels.index(used[sample.label])) for sample in data.samples)
    return replace(data, samples=tuple(samples), labels=labels)
