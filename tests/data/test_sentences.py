import os
from pathlib import Path

import pytest

from checks import refused
from fovea.data import open_sentences, tokenize
from made_data import Made


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("It's GOOD .", "it 's good ."),
        ("don't , can't won't", "do n't , ca n't wo n't"),
        ("they're i'm you'll we've he'd", "they 're i 'm you 'll we 've he 'd"),
        ("coming-of-age [a] film!", "coming - of - age [ a ] film !"),
        ("the characters' 'best' '70s", "the characters ' ' best ' ' 70s"),
        ("clichés", "clichés"),
    ],
)
def test_words_clitics_and_single_characters(text: str, tokens: str) -> None:
    assert tokenize(text) == tuple(tokens.split(" "))


@pytest.mark.parametrize("text", ["a\x85b c", "x--y 'n' 3/4 $10 <i>n't</i>", "", "isn't'it\t!!"])
def test_no_character_is_lost(text: str) -> None:
    assert "".join(tokenize(text)) == text.lower().replace(" ", "").replace("\t", "")


def test_lines_end_at_line_feeds_only(made: Made) -> None:
    found = open_sentences(made("mr"))
    assert found.texts == (
        "simplistic , silly and tedious .",
        "a gorgeous , witty film .",
        "it's good\x85don't miss it",
    )
    assert found.labels == (0, 1, 1)
    assert found.tokens[2] == ("it", "'s", "good", "\x85", "do", "n't", "miss", "it")
    assert found.classes == ("negative", "positive")
    assert found.longest() == 8
    assert found.vocabulary()[:3] == (",", ".", "it")
    assert found.vocabulary(least=2) == (",", ".", "it")


def many(root: Path, count: int = 50) -> Path:
    for i, name in enumerate(("rt-polarity.neg", "rt-polarity.pos")):
        (root / name).write_text("".join(f"film {i} {j}\n" for j in range(count)))
    return root


def test_the_split_is_80_10_10_of_each_class_and_follows_from_the_seed(tmp_path: Path) -> None:
    root = many(tmp_path)
    whole = open_sentences(root)
    parts = [open_sentences(f"{root}:split={name}") for name in ("train", "val", "test")]
    assert [len(one) for one in parts] == [80, 10, 10]
    assert [sum(one.labels) for one in parts] == [40, 5, 5]
    assert sorted(text for one in parts for text in one.texts) == sorted(whole.texts)
    assert open_sentences(root) == whole
    assert open_sentences(f"{root}:seed=1").split != whole.split
    assert whole.part("val") == parts[1]


def test_what_cannot_be(tmp_path: Path, made: Made) -> None:
    root = made("mr")
    for wrong, said in {"split=dev": r"no split 'dev' \(it has: test, train, val\)", "seed=x": "whole number"}.items():
        refused(said, open_sentences, f"{root}:{wrong}")
    refused("no option 'sed'; did you mean 'seed'", open_sentences, f"{root}:sed=1")
    (root / "rt-polarity.pos").unlink()
    refused(r"mr is incomplete: rt-polarity\.pos not in .*there: rt-polarity\.neg", open_sentences, root)


@pytest.mark.skipif(not Path(os.environ.get("FOVEA_DATA", "."), "mr").is_dir(), reason="needs the pack mr")
def test_the_real_sentences() -> None:
    found = open_sentences("mr")
    assert (len(found), sum(found.labels), len(found.part("train"))) == (10662, 5331, 8530)
    for text, tokens in zip(found.texts, found.tokens, strict=True):
        assert "".join(tokens) == text.lower().replace(" ", "")
