"""MR: 10,662 sentences from film reviews, one per line, in rt-polarity.pos and rt-polarity.neg (Pang & Lee 2005)."""

import re
from collections import Counter
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Annotated

import numpy as np

from fovea.basics import SEED, BadChoice, bounded, contents
from fovea.data.layouts import layout, opened
from fovea.data.options import splits_asked
from fovea.data.places import demand

FILES = ("rt-polarity.neg", "rt-polarity.pos")
SPLITS = ("train", "val", "test")
SHARES = (0.8, 0.1, 0.1)
LONGEST = 1 << 26  # bytes of a file
USUAL = ("mr", "rt-polaritydata")
TOKEN = re.compile(r"\w+(?=n't\b)|n't\b|'(?:s|ve|re|d|ll|m)\b|\w+|[^\w \t\r]", re.IGNORECASE)


@dataclass(frozen=True)
class Sentences:
    """One entry a sentence in each field; `classes` are the names that the labels number."""

    name: str
    texts: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    labels: tuple[int, ...]
    split: tuple[str, ...]
    classes: tuple[str, ...] = ("negative", "positive")

    def __len__(self) -> int:
        return len(self.texts)

    def part(self, split: str) -> "Sentences":
        """The sentences of one split."""
        splits_asked(self.name, split, tuple(dict.fromkeys(self.split)))
        kept = [part == split for part in self.split]
        fields = (self.texts, self.tokens, self.labels, self.split)
        return Sentences(self.name, *(tuple(compress(field, kept)) for field in fields))  # type: ignore[arg-type]

    def vocabulary(self, least: int = 1) -> tuple[str, ...]:
        """The words that occur at least so often, the most frequent first, then by the alphabet."""
        count = Counter(word for tokens in self.tokens for word in tokens)
        return tuple(sorted((word for word, times in count.items() if times >= least), key=lambda w: (-count[w], w)))

    def longest(self) -> int:
        return max(map(len, self.tokens), default=0)


def tokenize(text: str) -> tuple[str, ...]:
    """Lower case; words, the clitics n't 's 've 're 'd 'll 'm, and every other character alone. Nothing is lost."""
    return tuple(TOKEN.findall(text.lower()))


def is_mr(folder: Path) -> bool:
    return any((folder / file).is_file() for file in FILES)


def open_sentences(given: str | Path = "mr") -> Sentences:
    """By path, or by name below FOVEA_DATA; 'mr:split=train,seed=1' for a part, and for another division."""
    return opened(given, "texts")


@layout(
    "mr",
    holds="texts",
    about="film reviews: `rt-polarity.pos`, `.neg`",
    folders=("rt-polaritydata",),
    recognizes="is_mr",
)
@bounded
def open_mr(folder: Path, *, split: str | None = None, seed: Annotated[int, SEED] = 0) -> Sentences:
    """80 / 10 / 10 % of each class in train, val and test, dealt by the seed. The files are latin-1."""
    splits_asked("mr", split, SPLITS)
    demand("mr", folder, FILES)
    texts: list[str] = []
    labels: list[int] = []
    parts: list[str] = []
    for label, name in enumerate(FILES):
        # only \n ends a line: \x85 stands inside some, which splitlines would cut
        found = [line.strip(" \t\r") for line in contents(folder / name, LONGEST).decode("latin-1").split("\n")]
        found = [line for line in found if line]
        if not found:
            raise BadChoice(f"{folder / name} has no sentences")
        bounds = np.rint(np.cumsum(SHARES) * len(found))
        place = np.random.default_rng([seed, label]).permutation(len(found))
        texts += found
        labels += [label] * len(found)
        parts += [SPLITS[i] for i in np.searchsorted(bounds, place, side="right")]
    whole = Sentences("mr", tuple(texts), tuple(map(tokenize, texts)), tuple(labels), tuple(parts))
    return whole if split is None else whole.part(split)
