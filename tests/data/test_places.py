import os
from collections.abc import Callable
from pathlib import Path

import pytest

from checks import refused
from fovea.data import open_data, pictures, plain


def test_names_are_compared_without_their_dress() -> None:
    assert plain("CUB-200-2011") == plain("cub_200_2011") == "cub2002011"


def test_pictures_below_a_folder_sorted_with_hidden_ones_left_out(tmp_path: Path) -> None:
    for name in ("b/2.JPEG", "b/.hidden.png", "a.png", "b/c/1.jpg", "notes.txt", ".git/x.png", "README"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert pictures(tmp_path) == ["a.png", "b/2.JPEG", "b/c/1.jpg"]


@pytest.mark.parametrize(
    ("kind", "inside"),
    [("imagenet", "Data/CLS-LOC/train/n01440764"), ("folder", "train/cat"), ("fmow", "train/airport/airport_0")],
)
def test_opening_looks_at_folders_not_at_files(
    made: Callable[..., Path], kind: str, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million files are listed in seconds; a look at each of them would take minutes on a network disk."""
    root, stat, looked = made(kind), os.stat, []

    def counted(*given: object, **how: object) -> os.stat_result:
        looked.append(given)
        return stat(*given, **how)

    def opened() -> tuple[int, int]:
        looked.clear()
        return len(open_data(root)), len(looked)

    opened()  # imports look at files too
    monkeypatch.setattr(os, "stat", counted)
    pictures_before, looks_before = opened()
    for i in range(200):
        (root / inside / f"more_{i}_rgb.jpg").touch()
    assert opened() == (pictures_before + 200, looks_before)
    assert looks_before


def test_homes_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path / "gone"))
    refused(r"FOVEA_DATA, .* is .*gone, which does not exist", open_data, "birds")
    for given in ("~nobody-of-this-name/x", "~nobody-of-this-name/x:split=test"):
        refused("no data '~nobody-of-this-name/x'", open_data, given)
