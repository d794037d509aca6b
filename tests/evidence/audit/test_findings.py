import json
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from fovea.evidence.audit.findings import (
    AuditFinding,
    backgrounds,
    first_words,
    is_shortcut,
    is_suspect,
    pairs,
    shortcut,
    shown,
)
from made_audit import BLUE, GREEN, NOTHING, RED, cluster, colors, table

NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
NETWORK = colors(("red_bird", "green_bird", "blue_bird", "nothing"))
OFF = {"there": 0.2, "outside": 0.9}  # no place of its own, but off the objects


@pytest.mark.parametrize(
    ("changed", "suspect"),
    [
        ({}, True),
        ({"elsewhere": 0.1}, True),
        ({"elsewhere": 0.11}, False),
        ({"there": 0.2}, False),
        (OFF, True),
        ({**OFF, "outside": 0.7}, True),
        ({**OFF, "outside": 0.69}, False),
        ({**OFF, "elsewhere": 0.11}, False),
        ({"outside": 0.0}, True),  # on the objects, but always at one place
        ({"carries": 0.0}, True),  # which is left to the trial
    ],
)
def test_suspects_by_hand(changed: dict[str, float], suspect: bool) -> None:
    assert is_suspect(cluster(**changed)) == suspect


@pytest.mark.parametrize(
    ("changed", "moves", "blank", "found"),
    [
        ({}, 0.1, NOTHING, True),
        ({}, 0.09, NOTHING, False),
        ({"carries": 0.6}, 0.1, NOTHING, True),
        ({"carries": 0.59}, 0.1, NOTHING, False),
        ({}, 0.29, RED, False),  # any patch of the class of an empty picture carries it
        ({}, 0.3, RED, True),  # but not into other pictures
        ({"carries": 0.0}, 0.3, NOTHING, True),
        ({"carries": 0.0}, 0.29, NOTHING, False),
        (OFF, 0.1, NOTHING, True),
        ({"elsewhere": 0.5}, 1.0, NOTHING, False),  # what is common elsewhere is none, whatever it does
        ({"there": 0.2}, 1.0, NOTHING, False),
    ],
)
def test_shortcuts_by_hand(changed: dict[str, float], moves: float, blank: int, found: bool) -> None:
    assert is_shortcut(cluster(**changed), moves, blank) == found


def spelled(row: Any) -> Iterator[str]:
    """All that a finding's own numbers can read as."""
    if isinstance(row, dict):
        yield from (text for key, value in row.items() if key != "words" for text in spelled(value))
    elif isinstance(row, list):
        yield from (text for value in row for text in spelled(value))
    elif isinstance(row, (int, float)):
        yield from (f"{100 * row:.0f}", f"{100 * row:.1f}", f"{row:d}" if isinstance(row, int) else "")


def strange(finding: AuditFinding, known: tuple[str, ...] = ()) -> list[str]:
    """Numbers in its words that are none of its figures."""
    own = {*spelled(finding.figures), *known}
    return [number for number in NUMBER.findall(finding.words) if number not in own]


def tidy(words: str) -> bool:
    return words.endswith(".") and not any(wrong in words for wrong in ("_", "  ", "..", "None", "nan"))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        (
            {},
            "red bird: a patch at the lower right keeps the answer by itself in 91 % of 20 cases; it is in 53 % of the "
            "pictures that are taken for red bird; 97 % of these at this place, where 4 % of all others have any "
            "patch; put into pictures of other classes it makes 62 % of them red bird.",
        ),
        ({**OFF, "place": (0.5, 0.1)}, "red bird: a patch at the top keeps the answer by itself in 91 % of 20 cases; "),
        (OFF, "taken for red bird; 90 % of them outside the boxes; put into"),
        ({"outside": 0.85}, "4 % of all others have any patch; 85 % of them outside the boxes; put into"),
        ({"outside": 0.6}, "4 % of all others have any patch; put into"),
        ({"by_chance": 0.004}, "at this place, where 0.4 % of all others have any patch;"),
    ],
)
def test_a_shortcut_in_words(changed: dict[str, Any], words: str) -> None:
    given = cluster(**changed)
    found = shortcut(NETWORK, table([0] * 20), given, 0.62)
    assert words in found.words
    assert tidy(found.words)
    assert strange(found) == []
    assert (found.kind, found.label, found.other) == ("shortcut", "red_bird", "")
    row = found.to_dict()
    assert row["moves"] == 0.62
    for name in ("share", "carries", "needed", "there", "by_chance", "outside", "elsewhere"):
        assert row[name] == getattr(given, name)
    assert (row["class"], row["patches"], row["place"]) == ("red_bird", 20, list(given.place))
    assert json.loads(json.dumps(row, allow_nan=False)) == row


def test_what_is_in_more_pictures_and_does_more_is_looked_at_first() -> None:
    def score(moves: float = 0.4, **changed: float) -> float:
        return shortcut(NETWORK, table([0] * 20), cluster(**changed), moves).score

    assert score() == pytest.approx(0.53 * 0.91 * 1.4)
    assert score(moves=0.5) > score()
    assert score(share=0.6) > score()
    assert score(carries=0.95) > score()


def test_one_patch_of_a_picture_is_shown() -> None:
    """Patches 7, 6, 0 and 1 of pictures that have two each: 3, 3, 0, 0."""
    made = table([0] * 4, np.zeros((4, 2, 64)))
    made.boxes[7], made.boxes[0] = (1, 2, 3, 4), (5, 6, 7, 8)
    seen = shown(made, cluster(patches=np.array([7, 6, 0, 1])))
    assert seen == (("3.png", (1, 2, 3, 4)), ("0.png", (5, 6, 7, 8)))
    assert [name for name, _ in shown(made, cluster(patches=np.array([2, 4, 7, 1])), most=2)] == ["1.png", "2.png"]


def boxed(keep: int, of: int, label: int = RED, inside: float = 0.4) -> dict[str, list[float]]:
    """Pictures of a class with boxes, of which some keep their answer without what is in them."""
    return {
        "answers": [label] * of,
        "without": [label] * keep + [NOTHING] * (of - keep),
        "evidence_inside": [inside + 0.01 * (number % 5 - 2) for number in range(of)],
    }


def together(*parts: dict[str, list[float]]) -> Any:
    columns = {name: [value for part in parts for value in part[name]] for name in parts[0]}
    return table([int(answer) for answer in columns.pop("answers")], **columns)


@pytest.mark.parametrize(
    ("keep", "of", "found"), [(5, 20, True), (4, 20, False), (10, 10, True), (9, 9, False), (3, 12, True)]
)
def test_backgrounds_by_hand(keep: int, of: int, found: bool) -> None:
    assert bool(backgrounds(NETWORK, together(boxed(keep, of)))) == found


def test_a_background_in_words() -> None:
    unboxed = {"answers": [RED] * 3, "without": [-1] * 3, "evidence_inside": [np.nan] * 3}
    made = together(boxed(6, 20), unboxed, boxed(15, 30, GREEN, 0.2), boxed(0, 30, BLUE))
    green, red = backgrounds(NETWORK, made)
    assert red.words == (
        "red bird: 30 % of its 20 pictures keep the answer when what is in their boxes is hidden; 40 % of the evidence "
        "lies in the boxes."
    )
    assert green.words.startswith("green bird: 50 % of its 30 pictures keep")
    for finding in (green, red):
        assert (finding.kind, strange(finding), tidy(finding.words)) == ("background", [], True)
        assert finding.score == finding.figures["share"]
        assert json.loads(json.dumps(finding.to_dict(), allow_nan=False))
    places = [int(name.removesuffix(".png")) for name, _ in green.pictures]
    assert len(places) == 8
    assert set(places) <= set(range(23, 38))  # of those that keep it
    assert list(made.evidence_inside[places]) == sorted(made.evidence_inside[23:38])[:8]  # the least in the boxes first
    assert all(box == () for _, box in green.pictures)


def between(
    one: int, other: int, count: int, close: int = 0, wrong: int = 0, told_by: float = 0.1
) -> dict[str, list[float]]:
    """Pictures that are taken for the one before the other, or the other way round; of the far ones some are wrong."""
    answers = [one if number % 2 else other for number in range(count)]
    others = [other if answer == one else one for answer in answers]
    truths = [others[i] if i >= count - wrong else answer for i, answer in enumerate(answers)]
    margins = [0.1 + 0.8 * i / count if i < close else 3.0 for i in range(count)]
    told = [told_by] * count
    return {"answers": answers, "runner_up": others, "truth": truths, "margin": margins, "told_by": told}


def test_a_pair_in_words() -> None:
    (found,) = pairs(NETWORK, together(between(BLUE, RED, 20, close=3, wrong=2, told_by=0.07)))
    assert (found.label, found.other, found.between) == ("red_bird", "blue_bird", (RED, BLUE))
    assert found.words == (
        "red bird and blue bird: of 20 pictures between the two, 2 are taken for the wrong one and 3 are within 1 of a "
        "logit; half of what tells them apart lies on 7 % of a picture."
    )
    assert strange(found, known=("1",)) == []  # the one logit that is close
    assert found.figures == {"pictures_between": 20, "wrong": 2, "close": 3, "told_by": pytest.approx(0.07)}
    assert found.score == pytest.approx((2 + 0.5 * 3) / 20 * math.log(21))
    names = [name for name, _ in found.pictures]
    assert names == ["18.png", "19.png", "0.png", "1.png", "2.png"]  # the wrong ones, then the closest
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False))["other"] == "blue_bird"


def test_what_is_taken_for_a_third_class_is_not_wrong_between_two() -> None:
    made = between(RED, GREEN, 12, close=4, wrong=2)
    made["truth"][-1] = BLUE
    made["truth"][0] = made["truth"][1] = -1  # nobody knows
    (found,) = pairs(NETWORK, together(made))
    assert (found.figures["wrong"], found.figures["close"]) == (1, 4)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda: between(RED, GREEN, 10, close=1), 1),
        (lambda: between(RED, GREEN, 9, close=9), 0),  # too few
        (lambda: between(RED, GREEN, 40), 0),  # all far apart
    ],
)
def test_pairs_that_are_none(make: Callable[[], dict[str, list[float]]], found: int) -> None:
    assert len(pairs(NETWORK, together(make()))) == found


def test_the_closest_of_all_pairs_come_first() -> None:
    two = [(RED, GREEN), (RED, BLUE), (GREEN, BLUE), (RED, NOTHING), (GREEN, NOTHING), (BLUE, NOTHING)]
    made = [between(*classes, 20, close=number + 1) for number, classes in enumerate(two)]
    found = pairs(NETWORK, together(*made))
    assert [finding.between for finding in found] == two[:0:-1]  # five of the six
    scores = [finding.score for finding in found]
    assert scores == sorted(scores, reverse=True)


def test_first_words() -> None:
    def named(kind: str, words: str) -> AuditFinding:
        return AuditFinding(kind, "red", 1.0, words, {}, ())

    none = "Without boxes it is not known whether an answer rests on the background."
    assert first_words([], 3, boxed=False) == f"0 likely shortcuts in 3 classes. {none}"
    assert first_words([], 3, boxed=True) == "0 likely shortcuts in 3 classes."
    assert first_words([], 1, boxed=True) == "0 likely shortcuts in 1 class."
    found = [named("shortcut", "A."), *(named("pair", f"{letter}.") for letter in "BCDEF")]
    assert first_words(found, 7, boxed=True) == (
        "1 likely shortcut in 7 classes. 1. A. 2. B. 3. C. 4. D. 5. E."  # and no more than five
    )
