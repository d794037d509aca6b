"""The words that speak for what a text is taken for: the top-1 span of AnchorNet-T, marked in the user's own text."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import torch
from PIL import Image, ImageDraw
from rich.text import Text
from torch import Tensor

from fovea.basics import BadChoice, BadText, finite, write_text
from fovea.data import Read
from fovea.models.anchoring import AnchorNetOutput, BranchOutput
from fovea.models.anchornet_text import WINDOWS
from fovea.networks import Network, as_found, reading_of
from fovea.patches.localized import collected
from fovea.results import Results, Shows, Step, View, drawing, pages, write_picture

CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
MARKED, UNREAD = "bold reverse", "dim"  # styles on a terminal
STYLE = """article { border-bottom: 1px solid var(--line); padding: .8rem 0; overflow-wrap: anywhere }
article p { margin: .2rem 0; white-space: pre-wrap }
mark { background: #ffd24a; color: #111; font-weight: 650; border-bottom: 3px solid #b26a00; padding: 0 .15em }
.unread, .about { color: var(--dim) } .about { font-size: .9rem } .unread { text-decoration: line-through }"""
AT_ONCE = 256  # texts
MARKUP = {"": "{}", "mark": "<mark>{}</mark>", "unread": '<span class="unread" title="not read">{}</span>'}
WIDTH, LINE, SHOWN = 720, 24, 600  # pixels of a drawn text and of a line of it; characters drawn on either side


@dataclass(frozen=True)
class TextSpan:
    """Tokens `start` to `stop` (not included), where they stand in the user's text, and what they add to the logit."""

    start: int
    stop: int
    place: tuple[int, int]  # of characters
    words: str  # as the user wrote them
    evidence: float

    def to_dict(self) -> dict[str, Any]:
        places = {"tokens": [self.start, self.stop], "characters": list(self.place)}
        return {**places, "words": self.words, "evidence": finite(self.evidence)}


@dataclass(frozen=True)
class TextAnswer:
    """What one branch alone says of a text, and its best span for that."""

    window: int  # words that its cells see
    label: str
    probability: float
    span: TextSpan

    def to_dict(self) -> dict[str, Any]:
        share = finite(self.probability)
        return {"branch": self.window, "label": self.label, "probability": share, "span": self.span.to_dict()}


@dataclass(frozen=True, repr=False)
class LocalizedText(Shows):
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

    @property
    def name(self) -> str:
        return self.text

    @property
    def boxes(self) -> list[tuple[int, int]]:
        """The span, in characters."""
        return [self.span.place]

    def marked(self, around: int | None = None) -> Text:
        """The text with its span marked; only so many characters on either side of it where `around` is given."""
        start, stop = self.span.place
        first, last = (0, len(self.text)) if around is None else _around(self.text, start, stop, around)
        text = Text(CONTROLS.sub(" ", self.text))  # what would move the cursor, and the places with it
        text.stylize(MARKED, start, stop)
        text.stylize(UNREAD, self.read, len(self.text))
        return Text("… " if first else "") + text[first:last] + Text(" …" if last < len(self.text) else "")

    def draw(self) -> Image.Image:
        """The text with its span marked, and the answer above it."""
        first, last = _around(self.text, *self.span.place, SHOWN)
        words = [(match[0], match.start() + first) for match in re.finditer(r"\S+", self.text[first:last])]
        letters, gap = drawing.font(15), drawing.font(15).getlength(" ")
        places: list[tuple[float, int]] = []
        x, line = 4.0, 0
        for word, _ in words:
            width = letters.getlength(word)
            if x > 4 and x + width > WIDTH - 4:
                x, line = 4.0, line + 1
            places.append((x, line * LINE + 6))
            x += width + gap
        canvas = Image.new("RGB", (WIDTH, (line + 1) * LINE + 8), "white")
        pen = ImageDraw.Draw(canvas)
        for (word, start), (x, y) in zip(words, places, strict=True):
            if self.span.place[0] < start + len(word) and start < self.span.place[1]:
                pen.rectangle((x - 2, y - 2, x + letters.getlength(word) + 2, y + LINE - 5), "#ffd24a")
            pen.text((x, y), CONTROLS.sub(" ", word), fill="black" if start < self.read else "#888888", font=letters)
        return drawing.titled(canvas, f"{self.label} {self.probability:.2f}", self.about())

    def about(self) -> str:
        """The answer in a line, which names the span for those who see no colors."""
        evidence = f"evidence {self.span.evidence:.2f}"
        return f"{self.label} {self.probability:.2f}, by {self.branch} words: {self.span.words!r}, {evidence}"

    def view(self) -> View:
        """The text with its span marked; what was not read is crossed out."""
        start, stop = self.span.place
        parts = ("", self.text[:start]), ("mark", self.text[start:stop]), ("", self.text[stop : self.read])
        words = [f"by the branch of {self.branch} words, evidence {self.span.evidence:.2f}"]
        alone = (f"{one.window} words: {one.label} {one.probability:.2f} ({one.span.words})" for one in self.branches)
        words += [f"each alone: {'; '.join(alone)}"] + [f"not seen: {self.ignored}"] * bool(self.ignored)
        return View(words="; ".join(words), text=(*parts, ("unread", self.text[self.read :])))

    def html(self) -> str:
        """A part of a page: everything of the user's is escaped."""
        view = self.view()
        text = "".join(MARKUP[kind].format(escape(part)) for kind, part in view.text if part)
        answer = f"<b>{escape(self.label)} {self.probability:.2f}</b>, {escape(view.words)}"
        return f'<article><p>{text}</p><p class="about">{answer}</p></article>'

    def to_dict(self) -> dict[str, Any]:
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "label": self.label,
            "probability": finite(self.probability),
            "branch": self.branch,
            "span": self.span.to_dict(),
            "branches": [branch.to_dict() for branch in self.branches],
            "unknown": dict(self.unknown),
            "cut": self.cut,
        }

    def files(self, folder: Path, stem: str, size: drawing.Size = None) -> dict[str, Any]:
        write_picture(folder / f"{stem}.words.png", self.draw())
        write_text(folder / f"{stem}.html", pages.page("words that speak for the answer", [self.html()], STYLE))
        return {"picture": f"{stem}.words.png", "page": f"{stem}.html"}

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{self.html()}"


def localize_texts(
    network: Network, texts: str | Iterable[str], target: str | int | None = None, branch: int | None = None
) -> Results[LocalizedText]:
    """One result per text; a text that cannot be read is warned about, and refused where there is no other."""
    settings = {"net": network.name, "branch": branch, "target": target}
    return collected(text_steps(network, texts, target, branch), "text", BadText, settings)


def text_steps(
    network: Network, texts: str | Iterable[str], target: str | int | None = None, branch: int | None = None
) -> Iterator[Step[LocalizedText]]:
    """The span of each text for what it is taken for, or for a class `target`: the best of the branches' maps. `branch`
    takes the span of the one whose cells see so many words, instead of the best."""
    reading = reading_of(network)
    if not network.can("spans"):
        raise BadChoice(
            f"{network.name or 'the network'} finds no spans of words: load one that does, as anchornet_text-mr"
        )
    if branch is not None and branch not in WINDOWS:
        raise BadChoice(f"no branch of {branch} words (there are: {', '.join(map(str, WINDOWS))})")
    wanted = None if target is None else network.index(target)
    given = [texts] if isinstance(texts, str) else list(texts)
    read = list(zip(given, reading.all(given), strict=True))
    skipped = [(str(text), str(reason)) for text, reason in read if isinstance(reason, BadText)]
    good = [(text, words) for text, words in read if not isinstance(words, BadText)]
    if not good:
        yield Step([], skipped, len(given), len(given))
    for start in range(0, len(good), AT_ONCE):
        part = good[start : start + AT_ONCE]
        ids = torch.stack([words.ids for _, words in part]).to(network.device)
        with as_found(network), torch.no_grad():
            out = network.answer(ids)
        results = _localized(network, out, part, wanted, branch)
        yield Step(results, [] if start else skipped, len(skipped) + start + len(part), len(given))


def _localized(
    network: Network, out: AnchorNetOutput, part: Sequence[tuple[str, Read]], wanted: int | None, branch: int | None
) -> list[LocalizedText]:
    label = out.decision.label if wanted is None else torch.full_like(out.decision.label, wanted)
    shares = torch.stack([seen.logits.float().softmax(1) for seen in out.branches])  # J,N,classes
    maps = [best_cells(seen, label) for seen in out.branches]
    value = torch.stack([best for best, _ in maps])  # J,N
    chosen = value.argmax(0) if branch is None else torch.full_like(label, WINDOWS.index(branch))
    alone = [best_cells(seen, seen.logits.argmax(1)) for seen in out.branches]  # for what each branch says itself
    found = []
    for i, (text, read) in enumerate(part):
        j, c = int(chosen[i]), int(label[i])
        places = own_places(text, read)
        answers = []
        for window, share, (worth, start) in zip(WINDOWS, shares[:, i], alone, strict=True):
            span = _span(text, places, int(start[i]), window, float(worth[i]))
            answers.append(TextAnswer(window, network.label(int(share.argmax())), float(share.max()), span))
        span = _span(text, places, int(maps[j][1][i]), WINDOWS[j], float(value[j, i]))
        probability = out.decision.probability[i] if wanted is None else shares[:, i, c].max()
        answer = network.label(c), float(probability), WINDOWS[j], span, tuple(answers)
        unseen = dict(read.unknown), read.cut, places[-1][1] if read.cut else len(text), read.ignored
        found.append(LocalizedText(text, read.tokens, *answer, *unseen))
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
