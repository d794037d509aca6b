"""From a user's text to the numbers of its words, and back: what was read, what was unknown, what was left out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice, BadText, shown, within
from fovea.data.sentences import TOKEN
from fovea.data.vectors import PADDING, UNKNOWN

FIRST = 2  # the row of the first word, after padding and the one for words that have none
SHOWN = 5  # unknown words that are named
LENGTH, LONGEST = 16_384, 1_000_000  # words that a network reads at most, and characters of a text


@dataclass(frozen=True)
class Read:
    """One text as a network takes it. `places` are where the tokens stand in `text`, first and past the last letter."""

    text: str
    tokens: tuple[str, ...]  # those that were kept
    places: tuple[tuple[int, int], ...]
    ids: Tensor  # L, int64
    unknown: Mapping[str, int]  # words without a row of their own, and how often they stand here
    cut: int  # tokens beyond the length

    def words(self, start: int, stop: int) -> str:
        """The text of these tokens, as the user wrote it; a stretch that runs past the end is what there is of it."""
        held = self.places[start:stop]
        return self.text[held[0][0] : held[-1][1]] if held else ""

    @property
    def ignored(self) -> str:
        """What the network did not see of the text, in words for the user; nothing where it saw all."""
        said = []
        if self.cut:
            said.append(f"only the first {len(self.tokens)} of {len(self.tokens) + self.cut:,} words were read")
        if self.unknown:
            named = ", ".join(shown(word) for word in list(self.unknown)[:SHOWN])
            more = f" and {len(self.unknown) - SHOWN} more" if len(self.unknown) > SHOWN else ""
            if sum(self.unknown.values()) == len(self.tokens):
                nothing = "so the answer says nothing about this text: the network reads the language it was trained on"
                said.append(f"none of the words is known ({named}{more}), {nothing}")
            else:
                said.append(f"unknown words: {named}{more}")
        return "; ".join(said)


@dataclass(frozen=True)
class Reading:
    """The words that have rows, from row 2 on, and the tokens that a text is cut or padded to."""

    words: tuple[str, ...]
    length: int

    def __post_init__(self) -> None:
        within("the length of a text in words", self.length, 1, LENGTH)
        if len(self.index) < len(self.words):
            twice = next(word for word, times in Counter(self.words).items() if times > 1)
            raise BadChoice(f"every word has one row; {twice!r} is there twice")

    @cached_property
    def index(self) -> Mapping[str, int]:
        return {word: i for i, word in enumerate(self.words, FIRST)}

    @property
    def rows(self) -> int:
        return FIRST + len(self.words)

    def __call__(self, text: str) -> Read:
        if not isinstance(text, str):
            raise BadText(f"a text is a string; got {type(text).__name__}")
        if len(text) > LONGEST:
            raise BadText(f"the text {shown(text)} is too long: at most {LONGEST:,} are read")
        # some letters grow when made small, and then places count in the small ones
        written = text if len(text.lower()) == len(text) else text.lower()
        found = (match for match in TOKEN.finditer(text.lower()) if not match[0].isspace())
        kept = list(islice(found, self.length))
        if not kept:
            raise BadText(f"the text {shown(text)} has no words: give at least one")
        tokens = tuple(match[0] for match in kept)
        ids = self.numbers(tokens, self.length)
        unknown = Counter(word for word in tokens if word not in self.index)
        return Read(written, tokens, tuple(match.span() for match in kept), ids, unknown, sum(1 for _ in found))

    def numbers(self, tokens: Sequence[str], length: int) -> Tensor:
        """The rows of these tokens, padded at the end (L)."""
        ids = torch.full((length,), PADDING)
        ids[: len(tokens)] = torch.tensor([self.index.get(word, UNKNOWN) for word in tokens])
        return ids

    def batch(self, texts: Any) -> Tensor:
        """One text or several as N,length; each must be readable."""
        several = [texts] if isinstance(texts, str) or not isinstance(texts, Iterable) else texts
        return torch.stack([self(text).ids for text in several])

    def all(self, texts: str | Iterable[str]) -> Iterator[Read | BadText]:
        """Each text, or the reason why it cannot be read: one bad text does not stop the rest."""
        for text in [texts] if isinstance(texts, str) else texts:
            try:
                yield self(text)
            except BadText as reason:
                yield reason


@dataclass(frozen=True)
class Dropout:
    """Shares left out in training: of words, which become unknown ones, of the numbers of vectors, and of features."""

    words: float = 0.0
    vectors: float = 0.0
    features: float = 0.0

    @classmethod
    def of(cls, given: Sequence[float]) -> "Dropout":
        """As a recipe writes it."""
        try:
            words, vectors, features = map(float, given)
        except (TypeError, ValueError):
            words = vectors = features = -1.0
        if not all(0 <= share < 1 for share in (words, vectors, features)):
            got = f"of words, of their vectors and of features, as [0.1, 0.2, 0.5]; got {given}"
            raise BadChoice(f"dropout is three shares below 1, {got}")
        return cls(words, vectors, features)


def forget(ids: Tensor, share: float) -> Tensor:
    """Some words taken for unknown ones, so that no single word is relied on and the unknown row is learned."""
    drawn = torch.rand(ids.shape, device=ids.device) < share  # N,L
    return ids.masked_fill(drawn & (ids != PADDING), UNKNOWN)


def cells_in(words: Tensor, window: int) -> Tensor:
    """Which windows hold the most words (N,L): those in the sentence whole, or the one that holds a short sentence."""
    held = words.unfold(1, window, 1).sum(2)  # N,P
    return held == held.amax(1, keepdim=True)
