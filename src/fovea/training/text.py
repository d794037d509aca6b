"""Training on sentences: data whose folder holds those of MR, with word vectors beside them.

`data.localizer` names a trained AnchorNet-T: the network is then trained and tested on the spans that it localizes."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, BadText
from fovea.data import USUAL, Read, Sentences, find, is_mr, open_sentences, open_vectors, parsed
from fovea.models.anchornet_text import WINDOWS, localized
from fovea.networks import Network, load, model, rank_of, reading_of
from fovea.training.feed import Batch, Feed, Progress, Wanted
from fovea.training.medium import Medium, refuse_pictures
from fovea.training.recipe import Recipe
from fovea.training.scoring import Counts, Tested

# networks that take their vocabulary from the data
BARE = tuple(name for name, entry in model.entries().items() if "texts" in entry.traits.get("can", ()))
OFTEN = 2  # a word without a vector has a row where the training sentences have it so often
# Adam moves every number by about its learning rate per step: vectors as large as word2vec's would hardly be tuned
SPREAD = 0.1


class TextMedium(Medium):
    def __init__(self, recipe: Recipe) -> None:
        refuse_pictures(recipe, "text takes network.options.dropout, which drops words", "text takes options.length")
        data, test, localizer = open_sentences(recipe.data.train), recipe.data.test, recipe.data.localizer
        super().__init__(recipe, data.classes, data, None if test is None else open_sentences(test))
        self.localizer = network = None if localizer is None else load(localizer)
        if network is not None and (network.origin is None or network.origin.name != "anchornet_text"):
            raise BadChoice(f"data.localizer names the weights of an anchornet_text; {localizer} is {network.name}")

    def network(self) -> Network:
        part, classes = self.recipe.network, len(self.labels)
        if part.weights is None and part.name in BARE:
            network = bare(part.name, self.recipe.data.train, self.data, dict(part.options))
        else:  # its vocabulary is in the weights file
            network = load(part.weights or part.name, None, part.pretrained, classes, part.options)
        kind = network.origin.name if network.origin else network.name
        if not network.can("texts"):
            raise BadChoice(f"the data {self.name} holds sentences: network.name is {' or '.join(BARE)}; got {kind}")
        if part.name in BARE and kind != part.name:
            raise BadChoice(f"network.weights are those of a {kind}, and network.name is {part.name}")
        network.labels = self.labels
        return network

    def taken(self, network: Network, data: Sentences, device: torch.device, progress: Progress) -> "TextFeed":
        return TextFeed(network, data, device, self.localizer, progress)

    def scored(self, network: Network, taken: "TextFeed") -> Tested:
        return TextTest(taken)


def bare(name: str, given: str, data: Sentences, options: dict[str, object]) -> Network:
    """An untrained network with the vocabulary of the data and the vectors beside it. A word has a row if it has a
    vector, or if the training sentences have it often enough to learn one."""
    folder = find(parsed(given)[0], USUAL, is_mr)
    everything = open_sentences(folder)  # a vector may be known of a word that training does not show
    vectors = open_vectors(folder, everything.vocabulary())
    learned, lacking = set(data.vocabulary(OFTEN)), set(vectors.missing)
    rows = [0, 1, *(i for word, i in vectors.index.items() if word not in lacking or word in learned)]
    words = [vectors.words[i] for i in rows[2:]]
    matrix = torch.from_numpy(vectors.matrix[rows])
    network = load(name, classes=len(data.classes), options={**options, "words": words, "width": matrix.shape[1]})
    with torch.no_grad():
        embedding: nn.Embedding = network.module.embedding  # type: ignore[assignment]
        embedding.weight.copy_(matrix * (SPREAD / matrix[2:].std()))
    return network


@dataclass(frozen=True)
class Sentence:
    name: str
    text: str
    label: int


class TextFeed(Feed):
    """Sentences, or the spans localized in them, as numbers of words."""

    def __init__(
        self, network: Network, data: Sentences, device: torch.device, localizer: Network | None, progress: Progress
    ) -> None:
        reading, skipped = reading_of(network), list[tuple[str, str]]()
        kept: list[tuple[Sentence, Read]] = []
        for i, (text, label) in enumerate(zip(data.texts, data.labels, strict=True)):
            try:
                kept.append((Sentence(f"{data.name} {data.split[i]} {i}", text, label), reading(text)))
            except BadText as reason:
                skipped.append((f"{data.name} {i}", str(reason)))
            progress(i + 1, len(data))
        if not kept:
            raise BadText(f"no sentence of {data.name} could be read: {skipped[0][1] if skipped else 'it has none'}")
        sentences = [sentence for sentence, _ in kept]
        super().__init__(sentences, [sentence.label for sentence in sentences], device)
        self.skipped = skipped
        if localizer is None:
            ids = [read.ids for _, read in kept]
        else:
            localizer.module.to(device)
            theirs = [reading_of(localizer)(sentence.text) for sentence in sentences]
            spans = zip(theirs, localized(localizer, theirs), strict=True)
            ids = [reading.numbers(read.tokens[span.start : span.stop], WINDOWS[-1]) for read, span in spans]
        self.ids = torch.stack(ids).to(device)  # N,L

    def inputs(self, wanted: Wanted) -> Tensor:
        """Padding that all sentences have is left out, which changes nothing; a GPU likes one size better."""
        ids = self.ids[wanted.index]
        return ids if self.device.type == "cuda" else ids[:, : int((ids > 0).sum(1).max())]


class TextTest(Tested):
    """Top-1, and that of each branch where there are branches: b3, b5, b7."""

    def counts(self, network: Network, module: nn.Module, batch: Batch, size: int) -> Counts:
        out = module(self.held.ids[batch.index.to(self.held.device)])
        heads = {"top1": network.read(out)}
        if network.can("spans"):
            heads |= {f"b{window}": one.logits for window, one in zip(WINDOWS, out.branches, strict=True)}
        ranks = {name: rank_of(logits, batch.target) for name, logits in heads.items()}
        return {name: (int((rank < 1).sum()), len(rank)) for name, rank in ranks.items()}
