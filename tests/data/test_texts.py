import pytest
import torch

from checks import raises, refused
from fovea.basics import BadText
from fovea.data import Reading, forget

READING = Reading(("the", "film", "is", "n't", "bad", "."), 8)


def test_words_have_numbers_and_places() -> None:
    read = READING("The film isn't BAD.")
    assert read.tokens == ("the", "film", "is", "n't", "bad", ".")
    assert read.ids.tolist() == [2, 3, 4, 5, 6, 7, 0, 0]
    assert read.words(2, 5) == "isn't BAD"
    assert read.words(4, 11) == "BAD."  # past the end
    assert (dict(read.unknown), read.cut, read.ignored) == ({}, 0, "")


def test_what_was_ignored_is_told() -> None:
    read = READING("the zany film is wild , wild " + "and so on " * 3333)
    assert read.ids.tolist() == [2, 1, 3, 4, 1, 1, 1, 1]
    assert read.unknown == {"zany": 1, "wild": 2, ",": 1, "and": 1}
    assert read.cut == 10_006 - 8
    assert read.ignored == "only the first 8 of 10,006 words were read; unknown words: 'zany', 'wild', ',', 'and'"


def test_another_language_still_gets_an_answer_with_a_warning() -> None:
    read = READING("這部電影 очень хорошо")
    assert set(read.ids.tolist()) == {0, 1}
    assert "none of the words is known" in read.ignored


@pytest.mark.parametrize("text", ["", "  \t\n ", "\x85"])
def test_a_text_without_words_is_refused(text: str) -> None:
    raises(BadText, "has no words", READING, text)


def test_one_bad_text_does_not_stop_the_rest() -> None:
    found = list(READING.all(["the film", "", None, "bad"]))
    assert [isinstance(one, BadText) for one in found] == [False, True, True, False]
    assert "a text is a string; got NoneType" in str(found[2])
    assert READING.batch(["the film", "bad"]).shape == (2, 8)


def test_line_breaks_are_no_words_and_letters_that_grow_keep_their_places() -> None:
    assert READING("the\nfilm\r\n").tokens == ("the", "film")
    read = READING("İ the film")  # its small form is two letters
    assert read.words(read.tokens.index("film"), 9) == "film"


def test_a_vocabulary_is_checked() -> None:
    refused("'a' is there twice", Reading, ("a", "b", "a"), 5)
    refused("length of a text in words is 1 to 16,384; got 0", Reading, (), 0)


def test_forgotten_words_become_unknown_and_padding_stays() -> None:
    torch.manual_seed(0)
    ids = READING("the film is n't bad .").ids.repeat(500, 1)
    forgotten = forget(ids, 0.3)
    assert (forgotten[:, 6:] == 0).all()
    assert ((forgotten == ids) | (forgotten == 1)).all()
    assert (forgotten[:, :6] == 1).float().mean().item() == pytest.approx(0.3, abs=0.03)


def test_texts_of_any_length_and_letters() -> None:
    read = Reading(("a", "b"), 5)
    raises(BadText, r"\(1,000,003 characters\) is too long: at most 1,000,000 are read", read, "a" * 1_000_001)
    raises(BadText, "has no words", read, " " * 1_000_000)
    for text in ("x" * 1_000_000, "n't" * 100_000, "a\u0301" * 100_000, "\ud800 \0 \u202e \uffff", "'" * 100_000):
        found = read(text)
        assert len(found.tokens) <= 5
        assert len(found.ignored) < 800
