from typing import Literal

import pytest

from checks import refused
from fovea.data import Size, numbers, parsed, typed


def opener(
    folder: str, *, split: str | None = None, count: int = 3, size: Size = (1, 1), kind: Literal["a", "b"] = "a"
) -> None: ...


def test_text_becomes_the_functions_own_types() -> None:
    name, options = parsed("set: split = test, count=12,size=30x20,kind=b,")
    assert name == "set"
    assert typed("set", opener, options) == {"split": "test", "count": 12, "size": (30, 20), "kind": "b"}
    assert typed("set", opener, {"size": "7"}) == {"size": (7, 7)}


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("count", "1.5", "set: count= takes a whole number; got '1.5'"),
        ("size", "2x", "takes a size in pixels"),
        ("kind", "c", "takes a or b; got 'c'"),
        ("folder", "x", "no option 'folder'"),
        (
            "cuont",
            "1",
            r"no option 'cuont'; did you mean 'count'\? \(its options: count, fold_seed, folds, kind, labels",
        ),
    ],
)
def test_wrong_ones_say_what_was_expected(key: str, value: str, said: str) -> None:
    refused(said, typed, "set", opener, {key: value})


def test_numbers() -> None:
    assert numbers("3+5+8-10") == {3, 5, 8, 9, 10}
