"""The text CNN of Kim 2014: filters over 3, 4 and 5 words, the maximum of each over the sentence, one linear layer.

Padding stands at the end and is masked: a filter is applied where it lies in the sentence whole, or once to a sentence
shorter than it. So a sentence has the same logits alone and in any batch, and spans of a few words can be given too."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fovea.data import PADDING, Dropout, Reading, cells_in, forget
from fovea.networks import Network, model

DROPOUT = (0.0, 0.0, 0.5)  # shares of words, of their vectors and of features
WINDOWS, FILTERS = (3, 4, 5), 100
PAPER = Dropout(features=0.5)


@dataclass(frozen=True)
class TextCNNOutput:
    logits: Tensor  # N,classes
    features: Tensor  # N,filters: the maximum of each over the sentence


class TextCNN(nn.Module):
    """Features that dropout leaves out are the maxima."""

    abilities = frozenset({"texts"})

    def __init__(self, classes: int, rows: int, width: int, dropout: Dropout = PAPER) -> None:
        super().__init__()
        self.embedding = nn.Embedding(rows, width, PADDING)
        self.forgotten = dropout.words
        self.drop_vectors, self.drop = nn.Dropout(dropout.vectors), nn.Dropout(dropout.features)
        self.filters = nn.ModuleList(nn.Conv1d(width, FILTERS, window) for window in WINDOWS)
        self.classifier = nn.Linear(FILTERS * len(WINDOWS), classes)

    def forward(self, ids: Tensor) -> TextCNNOutput:
        """N,L numbers of words; L is padded to the widest filter where it is less."""
        ids = F.pad(ids, (0, max(WINDOWS[-1] - ids.shape[1], 0)), value=PADDING)
        words = ids != PADDING  # N,L
        if self.training and self.forgotten:
            ids = forget(ids, self.forgotten)
        vectors = self.drop_vectors(self.embedding(ids)).transpose(1, 2)  # N,D,L
        found = []
        for window, filters in zip(WINDOWS, self.filters, strict=True):
            seen = cells_in(words, window).unsqueeze(1)  # N,1,P
            found.append((filters(vectors).relu() * seen).amax(2))  # what is masked is 0, the least that ReLU gives
        features = torch.cat(found, 1)  # N,filters
        return TextCNNOutput(self.classifier(self.drop(features)), features)

    def reset_classifier(self, classes: int) -> None:
        """A new, untrained last layer for so many classes."""
        old = self.classifier
        self.classifier = nn.Linear(old.in_features, classes).to(old.weight)


@model("textcnn", about="filters over 3, 4 and 5 words (Kim 2014)", can=("texts",))
def build(
    classes: int, words: Sequence[str] = (), width: int = 300, length: int = 59, dropout: Sequence[float] = DROPOUT
) -> Network:
    """`words` have the rows from 2 on of the embedding, `width` wide; sentences are cut after `length` tokens.
    `dropout`: of words, of their vectors, of features."""
    reading = Reading(tuple(words), length)
    module = TextCNN(classes, reading.rows, width, Dropout.of(dropout))
    return Network(module, reading, tuple(map(str, range(classes))), "filters")  # type: ignore[arg-type]  # a text's
