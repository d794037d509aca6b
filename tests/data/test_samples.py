import pickle
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import fovea
from fovea.data import Below, Box, DataSet, Pixels, Sample, Unreadable


@dataclass(frozen=True)
class Noted:
    """Boxes in a file that holds four numbers."""

    path: Path

    def read(self) -> tuple[Box, ...]:
        try:
            x0, y0, x1, y1 = map(float, self.path.read_text().split())
        except (OSError, ValueError) as error:
            raise fovea.BadPicture(f"the boxes in {self.path} cannot be read: {error}") from None
        return ((x0, y0, x1, y1),)


def test_boxes_are_read_when_looked_at_and_only_once(tmp_path: Path) -> None:
    note = tmp_path / "note.txt"
    sample = Sample("a", 0, Unreadable("none"), Noted(note))
    note.write_text("1 2 3 4")
    assert sample.boxes == ((1, 2, 3, 4),)
    note.unlink()
    assert sample.boxes == ((1, 2, 3, 4),)
    assert sample == Sample("a", 0, Unreadable("none"), ((1, 2, 3, 4),))
    assert Sample("a", 0, Unreadable("none")).boxes == ()


def test_unread_boxes_travel_unread(tmp_path: Path) -> None:
    copy = pickle.loads(pickle.dumps(Sample("a", 0, Below(tmp_path, "a.png"), Noted(tmp_path / "later"))))
    (tmp_path / "later").write_text("1 2 3 4")
    assert copy.boxes == ((1, 2, 3, 4),)
    assert copy.source.path == tmp_path / "a.png"


def test_damaged_boxes_are_reported_with_the_pictures(tmp_path: Path) -> None:
    """One broken annotation among thousands is neither fatal nor silent."""
    (tmp_path / "bad").write_text("1 2")
    pixels = Pixels(np.zeros((4, 4), np.uint8))
    noted = Sample("noted", 0, pixels, Noted(tmp_path / "bad"))
    data = DataSet("x", (Sample("plain", 0, pixels), noted, Sample("boxed", 0, pixels, ((0, 0, 1, 1),))), ("c",))
    found = list(data.with_boxes().read())
    assert [sample.name for sample, _ in found] == ["noted", "boxed"]
    assert isinstance(found[0][1], fovea.BadPicture)
    assert "bad cannot be read" in str(found[0][1])
    with pytest.raises(fovea.BadPicture):
        _ = noted.boxes


def test_pixels_are_gray_pictures() -> None:
    image = Pixels(np.array([[0, 255], [7, 9]], np.uint8)).read()
    assert (image.mode, image.getpixel((1, 0)), image.getpixel((0, 1))) == ("RGB", (255, 255, 255), (7, 7, 7))
