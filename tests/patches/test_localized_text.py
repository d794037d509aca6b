import random
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import fovea
from fovea.basics import BadChoice, BadText
from fovea.data import Reading
from fovea.models.anchornet_text import WINDOWS, localized
from fovea.networks import Network
from fovea.patches import LocalizedText, own_places, text_steps
from fovea.patches.localize import localize
from fovea.results import read

WORDS = ("the", "film", "is", "really", "not", "so", "much", "bad", "as", "bland", ".", "good")


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(0)
    found = fovea.load(
        "anchornet_text", pretrained=False, classes=2, options={"words": WORDS, "width": 8, "length": 20}
    )
    found.labels = ("negative", "positive")
    return found


def one(network: Network, text: str, **options: object) -> LocalizedText:
    (found,) = localize(network, text, **options)
    return found


def test_the_span_is_the_best_of_the_three_maps(network: Network) -> None:
    texts = ["the film is really not so much bad as bland .", "good", "not bad", "so much good film as bad is ."]
    reading = network.transform
    assert isinstance(reading, Reading)
    spans = localized(network, [reading(text) for text in texts])
    for found, span, text in zip(localize(network, texts), spans, texts, strict=True):
        assert (found.branch, found.span.start) == (WINDOWS[span.branch], span.start)
        assert found.span.evidence == pytest.approx(span.value)
        assert found.span.words == " ".join(text.split()[found.span.start : found.span.stop])


def test_the_span_stands_in_the_text_as_it_was_written(network: Network) -> None:
    found = one(network, "  The   FILM isn't,really  GOOD!\tNot so BAD ")
    start, stop = found.span.place
    assert found.span.words == found.text[start:stop]
    assert found.marked().plain == found.text
    assert [(mark.start, mark.end) for mark in found.marked().spans if "reverse" in str(mark.style)] == [(start, stop)]


def test_what_would_move_the_cursor_is_shown_as_space(network: Network) -> None:
    found = one(network, "good\r\x1b[31m film\x07 bad")
    assert found.marked().plain == "good  [31m film  bad"


@pytest.mark.parametrize("seed", range(30))
def test_tokens_are_found_again_in_any_text(seed: int) -> None:
    """Each token stands at its place, small or large, and nothing but space lies between tokens."""
    draw = random.Random(seed)
    letters = "abcXYZ  \t\n.,!'’<&>İıßÀΣς中文🙂né012 n't 's"
    text = "".join(draw.choices(letters, k=draw.randint(1, 40))) + "a"
    read = Reading((), 100)(text)
    places = own_places(text, read)
    assert len(places) == len(read.tokens)
    end = 0
    for (start, stop), token in zip(places, read.tokens, strict=True):
        assert token.casefold() in text[start:stop].casefold()
        if "İ" not in text:  # which is two tokens at one place
            assert text[start:stop].casefold() == token.casefold()
            assert start >= end
        assert not text[end:start].strip()
        end = stop
    assert not text[end:].strip()


def test_every_branch_tells_its_own_answer(network: Network) -> None:
    found = one(network, "the film is really not so much bad as bland .")
    assert [answer.window for answer in found.branches] == [3, 5, 7]
    assert all(answer.span.stop - answer.span.start == answer.window for answer in found.branches)
    by_branch = {branch: one(network, found.text, branch=branch) for branch in WINDOWS}
    assert max(by_branch.values(), key=lambda each: each.span.evidence).span == found.span
    assert {each.branch for each in by_branch.values()} == set(WINDOWS)


def test_a_target_is_looked_for_whatever_was_decided(network: Network) -> None:
    text = "so much good film as bad is ."
    each = {label: one(network, text, target=label) for label in ("negative", "positive")}
    assert {label: found.label for label, found in each.items()} == {"negative": "negative", "positive": "positive"}
    decided = one(network, text)
    assert each[decided.label].span == decided.span


def test_a_short_text_has_a_span_of_what_there_is(network: Network) -> None:
    found = one(network, "Bad!")
    assert (found.span.start, found.span.stop, found.span.place, found.span.words) == (0, 2, (0, 4), "Bad!")


def test_what_was_not_seen_is_told(network: Network) -> None:
    found = one(network, "a truly good " + "film " * 10_000)
    assert (found.cut, len(found.tokens), found.read) == (9_983, 20, len("a truly good " + "film " * 17) - 1)
    assert found.unknown == {"a": 1, "truly": 1}
    assert "only the first 20 of 10,003 words" in found.ignored
    assert 'class="unread"' in found.html()
    assert len(found.marked(50).plain) < 200
    assert found.marked(50).plain.endswith(" …")
    other = one(network, "очень хороший фильм")
    assert "none of the words is known" in other.ignored


def test_texts_without_words_are_skipped_or_refused(network: Network) -> None:
    with pytest.warns(UserWarning, match="1 text"):
        found = localize(network, ["", "good film"])
    assert (len(found), len(found.skipped)) == (1, 1)
    with pytest.raises(BadText, match="no words"):
        localize(network, "  \n ")
    with pytest.raises(BadText, match="no text"):
        localize(network, [])
    assert [(step.results, len(step.skipped)) for step in text_steps(network, [""])] == [([], 1)]


def test_choices_that_text_does_not_have_are_refused(network: Network) -> None:
    with pytest.raises(BadChoice, match="count is for pictures and sounds"):
        localize(network, "good", count=2)
    with pytest.raises(BadChoice, match="there are: 3, 5, 7"):
        localize(network, "good", branch=4)
    with pytest.raises(BadChoice, match="did you mean 'positive'"):
        localize(network, "good", target="positiv")
    with pytest.raises(BadChoice, match="finds no spans"):
        localize(fovea.load("textcnn", pretrained=False, options={"words": WORDS, "width": 8}), "good")


def test_what_is_saved(network: Network, tmp_path: Path) -> None:
    found = localize(network, ["<script>alert('bad')</script> & film", "good film"])
    rows = found.save(tmp_path, files=True)
    assert read(tmp_path).results == rows
    assert rows[1]["span"]["characters"] == [0, 9]
    pages = [(tmp_path / row["files"]["page"]).read_text() for row in rows]
    for shown in pages:
        assert "<script" not in shown
        assert not re.search(r"(src|href)=|url\(", shown)
    assert re.findall(r"<mark>(.*?)</mark>", pages[1]) == ["good film"]


def test_the_drawn_text_marks_the_words_of_the_span(network: Network) -> None:
    found = one(network, "the film is really not so much bad as bland .")
    yellow = (np.asarray(found.draw()) == (0xFF, 0xD2, 0x4A)).all(2)
    assert yellow.sum() > 20 * 15  # a few words
    assert not yellow[:20].any()  # the title is above
