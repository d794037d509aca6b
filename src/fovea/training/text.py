"""Training on sentences: data whose folder holds those of MR, with word vectors beside them.

`data.localizer` names a trained AnchorNet-T: the network is then trained and tested on the spans that it localises.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadText
from fovea.data.options import parsed
from fovea.data.places import find
from fovea.data.sentences import USUAL, Sentences, is_mr, open_sentences
from fovea.data.texts import Read, Reading
from fovea.data.vectors import open_vectors
from fovea.models.anchoring import AnchorNetOutput
from fovea.models.anchornet_text import WINDOWS, localized
from fovea.networks.loading import load
from fovea.networks.network import Network, reading_of
from fovea.networks.stream import rank_of
from fovea.training.feed import Batch, Progress, Wanted
from fovea.training.recipe import AugmentPart, Recipe

BARE = ("anchornet_text", "textcnn")  # networks that take their vocabulary from the data
OFTEN = 2  # a word without a vector has a row where the training sentences have it so often
# Adam moves every number by about its learning rate a step: vectors as large as word2vec's would hardly be tuned
SPREAD = 0.1


class TextMedium:
    pictures = None

    def __init__(self, recipe: Recipe) -> None:
        if recipe.augment != AugmentPart():
            raise BadChoice("[augment] is for pictures: text takes network.options.dropout, which drops words' vectors")
        if (recipe.network.size, recipe.network.crop, recipe.data.side) != (None, None, None):
            raise BadChoice("network.size, network.crop and data.side are for pictures; text takes options.length")
        self.recipe, self.data = recipe, open_sentences(recipe.data.train)
        self.name, self.labels = self.data.name, self.data.classes
        self.test = None if recipe.data.test is None else open_sentences(recipe.data.test)
        self.localizer = None if recipe.data.localizer is None else localizing(recipe.data.localizer)

    def __len__(self) -> int:
        return len(self.data)

    def network(self) -> Network:
        part, classes = self.recipe.network, len(self.labels)
        if part.weights is None and part.name in BARE:
            network = bare(part.name, self.recipe.data.train, self.data, part.options)
        else:  # its vocabulary is in the weights file
            network = load(part.weights or part.name, None, part.pretrained, classes, part.options)
        kind = network.origin.name if network.origin else network.name
        if not isinstance(network.transform, Reading):
            raise BadChoice(f"the data {self.name} holds sentences: network.name is {' or '.join(BARE)}; got {kind}")
        if part.name in BARE and kind != part.name:
            raise BadChoice(f"network.weights are those of a {kind}, and network.name is {part.name}")
        network.labels = self.labels
        return network

    def feed(self, network: Network, device: torch.device, progress: Progress) -> "TextFeed":
        return TextFeed(self._numbered(network, self.data, device, progress), device)

    def tested(self, network: Network, device: torch.device, progress: Progress) -> "TextTest | None":
        return None if self.test is None else TextTest(self._numbered(network, self.test, device, progress))

    def _numbered(self, network: Network, data: Sentences, device: torch.device, progress: Progress) -> "Numbered":
        return numbered(network, data, device, self.localizer, progress)


def bare(name: str, given: str, data: Sentences, options: dict[str, object]) -> Network:
    """An untrained network with the vocabulary of the data and the vectors beside it.

    A word has a row if it has a vector, or if the training sentences have it often enough to learn one.
    """
    folder = find(parsed(given)[0], USUAL, is_mr)
    everything = open_sentences(folder)  # a vector may be known of a word that training does not show
    vectors = open_vectors(folder, everything.vocabulary())
    learned, lacking = set(data.vocabulary(OFTEN)), set(vectors.missing)
    rows = [0, 1, *(i for word, i in vectors.index.items() if word not in lacking or word in learned)]
    words = [vectors.words[i] for i in rows[2:]]
    matrix = torch.from_numpy(vectors.matrix[rows])
    own = dict(options) | {"words": words, "width": matrix.shape[1]}
    network = load(name, classes=len(data.classes), options=own)
    with torch.no_grad():
        embedding: nn.Embedding = network.module.embedding  # type: ignore[assignment]
        embedding.weight.copy_(matrix * (SPREAD / matrix[2:].std()))
    return network


def localizing(name: str) -> Network:
    network = load(name)
    if network.origin is None or network.origin.name != "anchornet_text":
        raise BadChoice(f"data.localizer names the weights of an anchornet_text; {name} is {network.name}")
    return network


@dataclass(frozen=True)
class Sentence:
    name: str
    text: str
    label: int


@dataclass(frozen=True)
class Numbered:
    """Sentences, or the spans localised in them, as numbers of words."""

    sentences: tuple[Sentence, ...]
    ids: Tensor  # N,L
    labels: Tensor  # N
    skipped: list[tuple[str, str]]


def numbered(
    network: Network, data: Sentences, device: torch.device, localizer: Network | None, progress: Progress
) -> Numbered:
    reading = reading_of(network)
    kept: list[tuple[Sentence, Read]] = []
    skipped: list[tuple[str, str]] = []
    for i, (text, label) in enumerate(zip(data.texts, data.labels, strict=True)):
        try:
            kept.append((Sentence(f"{data.name} {data.split[i]} {i}", text, label), reading(text)))
        except BadText as reason:
            skipped.append((f"{data.name} {i}", str(reason)))
        progress(i + 1, len(data))
    if not kept:
        raise BadText(f"no sentence of {data.name} could be read: {skipped[0][1] if skipped else 'it has none'}")
    sentences = tuple(sentence for sentence, _ in kept)
    if localizer is None:
        ids = torch.stack([read.ids for _, read in kept])
    else:
        localizer.module.to(device)
        theirs = [reading_of(localizer)(sentence.text) for sentence in sentences]
        found = zip(theirs, localized(localizer, theirs), strict=True)
        ids = torch.stack([reading.numbers(read.tokens[one.start : one.stop], WINDOWS[-1]) for read, one in found])
    labels = torch.tensor([sentence.label for sentence in sentences])
    return Numbered(sentences, ids.to(device), labels.to(device), skipped)


class TextFeed:
    def __init__(self, data: Numbered, device: torch.device) -> None:
        self.data, self.device = data, device
        self.samples, self.skipped = data.sentences, data.skipped

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        for one in wanted:
            index = one.index.to(self.device)
            yield Batch(self._short(self.data.ids[index]), self.data.labels[index], one.index)

    def _short(self, ids: Tensor) -> Tensor:
        """Padding that all sentences have is left out, which changes nothing; a GPU likes one size better."""
        return ids if self.device.type == "cuda" else ids[:, : int((ids > 0).sum(1).max())]


class TextTest:
    """Top-1, and that of each branch where there are branches: b3, b5, b7."""

    def __init__(self, data: Numbered) -> None:
        self.data, self.skipped = data, data.skipped

    def __len__(self) -> int:
        return len(self.data.sentences)

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        module.eval()
        ids, labels = (one[fabric.global_rank :: fabric.world_size] for one in (self.data.ids, self.data.labels))
        counts: dict[str, float] = {}
        for start in range(0, len(ids), size):
            out = module(ids[start : start + size])
            heads = {"top1": network.read(out)}
            if isinstance(out, AnchorNetOutput):
                heads |= {f"b{window}": one.logits for window, one in zip(WINDOWS, out.branches, strict=True)}
            for name, logits in heads.items():
                right = (rank_of(logits, labels[start : start + size]) < 1).sum()
                counts[name] = counts.get(name, 0.0) + float(right)
        if fabric.world_size > 1:
            both = torch.tensor(list(counts.values()), device=fabric.device)
            counts = dict(zip(counts, torch.as_tensor(fabric.all_reduce(both, reduce_op="sum")).tolist(), strict=True))
        return {name: right / len(self) for name, right in counts.items()}
