"""The words that speak for what a text is taken for: the top-1 span of AnchorNet-T, marked in the user's own text."""

import re
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from rich.text import Text
from torch import Tensor

from fovea.basics.errors import BadChoice, BadText
from fovea.basics.files import finite, write_json
from fovea.data.texts import Read
from fovea.models.anchoring import AnchorNetOutput, BranchOutput
from fovea.models.anchornet_text import WINDOWS, AnchorNetText
from fovea.networks.network import Network, as_found, reading_of

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
FOUND, UNREAD = "bold reverse", "dim"  # styles on a terminal
STYLE = """:root { color-scheme: light dark; --ink: #1d2430; --dim: #667085; --page: #fff; --line: #d9dde3 }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaee; --dim: #98a2b3; --page: #14171c; --line: #2e343d } }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; background: var(--page); color: var(--ink);
  font: 1.05rem/1.7 system-ui, sans-serif; overflow-wrap: anywhere }
article { border-bottom: 1px solid var(--line); padding: .8rem 0 } p { margin: .2rem 0; white-space: pre-wrap }
mark { background: #ffd24a; color: #111; font-weight: 650; border-bottom: 3px solid #b26a00; padding: 0 .15em }
.unread, .about { color: var(--dim) } .about { font-size: .9rem } .unread { text-decoration: line-through }"""


@dataclass(frozen=True)
class TextSpan:
    """Tokens `start` to `stop` (not included), where they stand in the user's text, and what they add to the logit."""

    start: int
    stop: int
    place: tuple[int, int]  # of characters
    words: str  # as the user wrote them
    evidence: float

    def row(self) -> dict[str, Any]:
        return {
            "tokens": [self.start, self.stop],
            "characters": list(self.place),
            "words": self.words,
            "evidence": finite(self.evidence),
        }


@dataclass(frozen=True)
class TextAnswer:
    """What one branch alone says of a text, and its best span for that."""

    window: int  # words that its cells see
    label: str
    probability: float
    span: TextSpan


@dataclass(frozen=True)
class TextFound:
    """One text: what it was taken for, and the span that speaks for it."""

    text: str
    tokens: tuple[str, ...]  # those that were read
    label: str
    probability: float
    branch: int  # the window, in words, of the branch whose span it is
    span: TextSpan
    branches: tuple[TextAnswer, ...]
    unknown: Mapping[str, int]
    cut: int  # tokens that were not read
    read: int  # characters that were
    ignored: str  # what the network did not see, in words; nothing where it saw all

    def marked(self, around: int | None = None) -> Text:
        """The text with its span marked; only so many characters on either side of it where `around` is given."""
        start, stop = self.span.place
        first, last = (0, len(self.text)) if around is None else _around(self.text, start, stop, around)
        found = Text(CONTROLS.sub(" ", self.text))  # what would move the cursor, and the places with it
        found.stylize(FOUND, start, stop)
        found.stylize(UNREAD, self.read, len(self.text))
        return Text("… " if first else "") + found[first:last] + Text(" …" if last < len(self.text) else "")

    def about(self) -> str:
        """The answer in a line, which names the span for those who see no colours."""
        evidence = f"evidence {self.span.evidence:.2f}"
        return f"{self.label} {self.probability:.2f}, by {self.branch} words: {self.span.words!r}, {evidence}"

    def html(self) -> str:
        """A part of a page: everything of the user's is escaped."""
        start, stop = self.span.place
        before, found, after, unread = (
            escape(self.text[one:other])
            for one, other in ((0, start), (start, stop), (stop, self.read), (self.read, None))
        )
        rest = f'<span class="unread" title="not read">{unread}</span>' if unread.strip() else unread
        answers = "; ".join(
            f"{one.window} words: {one.label} {one.probability:.2f} ({one.span.words})" for one in self.branches
        )
        lines = [
            f"<b>{escape(self.label)} {self.probability:.2f}</b>, by the branch of {self.branch} words, evidence "
            f"{self.span.evidence:.2f}",
            escape(f"Each branch alone: {answers}"),
            *([escape(f"Not seen: {self.ignored}")] if self.ignored else []),
        ]
        about = "".join(f'<p class="about">{line}</p>' for line in lines)
        return f"<article><p>{before}<mark>{found}</mark>{after}{rest}</p>{about}</article>"

    def row(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "label": self.label,
            "probability": finite(self.probability),
            "branch": self.branch,
            "span": self.span.row(),
            "branches": [
                {
                    "branch": one.window,
                    "label": one.label,
                    "probability": finite(one.probability),
                    "span": one.span.row(),
                }
                for one in self.branches
            ],
            "unknown": dict(self.unknown),
            "cut": self.cut,
        }

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{self.html()}"


@dataclass(frozen=True)
class TextRegions:
    """What was found in every text; `skipped` are those without words."""

    found: tuple[TextFound, ...]
    skipped: tuple[tuple[str, str], ...] = ()

    def __len__(self) -> int:
        return len(self.found)

    def __getitem__(self, index: int) -> TextFound:
        return self.found[index]

    def __iter__(self) -> Iterator[TextFound]:
        return iter(self.found)

    def html(self) -> str:
        return page(self.found)

    def save(self, folder: str | Path) -> list[dict[str, Any]]:
        """texts.html and regions.json into a folder; the JSON's rows come back."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "texts.html").write_text(self.html(), encoding="utf-8")
        rows = [one.row() for one in self.found]
        skipped = [{"text": name, "reason": reason} for name, reason in self.skipped]
        write_json(folder / "regions.json", {"texts": rows, "skipped": skipped})
        return rows


def localize_texts(
    network: Network, texts: str | Iterable[str], target: str | int | None = None, branch: int | None = None
) -> TextRegions:
    """What `in_texts` gives; a text that cannot be read is warned about, and refused where there is no other."""
    found = in_texts(network, texts, target, branch)
    if not found.found:
        raise BadText(found.skipped[0][1] if found.skipped else "no text was given")
    if found.skipped:
        warnings.warn(f"{len(found.skipped)} text(s) skipped: {found.skipped[0][1]}", stacklevel=3)
    return found


def in_texts(
    network: Network,
    texts: str | Iterable[str],
    target: str | int | None = None,
    branch: int | None = None,
    at_once: int = 256,
) -> TextRegions:
    """The span of each text for what it is taken for, or for a class `target`: the best of the branches' maps.

    `branch` takes the span of the one whose cells see so many words, instead of the best.
    """
    reading = reading_of(network)
    if not isinstance(network.module, AnchorNetText):
        raise BadChoice(f"{network.name or 'the network'} tells no spans: load an anchornet_text, as anchornet_text-mr")
    if branch is not None and branch not in WINDOWS:
        raise BadChoice(f"no branch of {branch} words (there are: {', '.join(map(str, WINDOWS))})")
    wanted = None if target is None else network.index(target)
    given = [texts] if isinstance(texts, str) else list(texts)
    reads, originals, skipped = [], [], []
    for text, read in zip(given, reading.all(given), strict=True):
        if isinstance(read, BadText):
            skipped.append((str(text), str(read)))
        else:
            reads.append(read)
            originals.append(text)
    found: list[TextFound] = []
    for start in range(0, len(reads), at_once):
        own = reads[start : start + at_once]
        ids = torch.stack([read.ids for read in own]).to(network.device)
        with as_found(network), torch.no_grad():
            out = network.module(ids)
        found += _found(network, out, own, originals[start : start + at_once], wanted, branch)
    return TextRegions(tuple(found), tuple(skipped))


def _found(
    network: Network,
    out: AnchorNetOutput,
    reads: Sequence[Read],
    texts: Sequence[str],
    wanted: int | None,
    branch: int | None,
) -> list[TextFound]:
    label = out.decision.label if wanted is None else torch.full_like(out.decision.label, wanted)
    shares = torch.stack([one.logits.float().softmax(1) for one in out.branches])  # J,N,classes
    maps = [best_cells(one, label) for one in out.branches]
    value = torch.stack([one for one, _ in maps])  # J,N
    chosen = value.argmax(0) if branch is None else torch.full_like(label, WINDOWS.index(branch))
    own = [
        (share.max(1), best_cells(one, one.logits.argmax(1))) for one, share in zip(out.branches, shares, strict=True)
    ]
    found = []
    for i, (read, text) in enumerate(zip(reads, texts, strict=True)):
        j, c = int(chosen[i]), int(label[i])
        places = own_places(text, read)
        answers = tuple(
            TextAnswer(
                window,
                network.label(int(said.indices[i])),
                float(said.values[i]),
                _span(text, places, int(start[i]), window, float(worth[i])),
            )
            for window, (said, (worth, start)) in zip(WINDOWS, own, strict=True)
        )
        probability = out.decision.probability[i] if wanted is None else shares[:, i, c].max()
        found.append(
            TextFound(
                text,
                read.tokens,
                network.label(c),
                float(probability),
                WINDOWS[j],
                _span(text, places, int(maps[j][1][i]), WINDOWS[j], float(value[j, i])),
                answers,
                dict(read.unknown),
                read.cut,
                places[-1][1] if read.cut else len(text),
                read.ignored,
            )
        )
    return found


def best_cells(seen: BranchOutput, label: Tensor) -> tuple[Tensor, Tensor]:
    """What the best cell of one branch adds to the logit of each text's class (N), and the word it begins at (N)."""
    rows = torch.arange(len(label), device=label.device)
    added = seen.activation[rows, label] / seen.scale  # N,P
    # a cell in the padding has no attention, and its 0 must not win against evidence below 0
    added = added if seen.attention is None else added.where(seen.attention > 0, -torch.inf)
    best = added.max(1)
    return best.values, best.indices


def own_places(text: str, read: Read) -> list[tuple[int, int]]:
    """Where the tokens stand in the text as it was given: one letter, İ, is two when made small."""
    if read.text == text:
        return list(read.places)
    letter = [i for i, one in enumerate(text) for _ in one.lower()]  # of each small letter, the one it was
    return [(letter[start], letter[stop - 1] + 1) for start, stop in read.places]


def _span(text: str, places: Sequence[tuple[int, int]], start: int, window: int, evidence: float) -> TextSpan:
    stop = min(start + window, len(places))  # a short text has one cell, which sees all of it
    place = places[start][0], places[stop - 1][1]
    return TextSpan(start, stop, place, text[slice(*place)], evidence)


def _around(text: str, start: int, stop: int, around: int) -> tuple[int, int]:
    """At whole words, where these are not too long."""
    first, last = max(0, start - around), min(len(text), stop + around)
    if first:
        first = min(text.find(" ", first, start) + 1 or first, start)
    if last < len(text):
        last = max(text.rfind(" ", stop, last), stop) if " " in text[stop:last] else last
    return first, last


def page(found: Sequence[TextFound]) -> str:
    """A page on its own: nothing is fetched, and what the user wrote cannot run."""
    title = "Words that speak for the answer"
    parts = "\n".join(one.html() for one in found)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{title}</title>\n<style>{STYLE}</style></head>\n<body><h1>{title}</h1>\n{parts}\n</body></html>\n"
    )
