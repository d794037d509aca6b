import tracemalloc
from pathlib import Path

import pytest

import fovea
from checks import raises
from fovea.data import XmlBoxes, read_marked

OBJECT = (
    "<object><name>n01</name><bndbox><xmin>{}</xmin><ymin>{}</ymin><xmax>{}</xmax><ymax>{}</ymax></bndbox></object>"
)


def note(tmp_path: Path, *boxes: tuple[object, ...], size: str = "<width>500</width><height>375</height>") -> Path:
    path = tmp_path / "note.xml"
    path.write_text(f"<annotation><size>{size}</size>{''.join(OBJECT.format(*box) for box in boxes)}</annotation>")
    return path


def test_the_last_pixel_counts_and_nothing_lies_outside(tmp_path: Path) -> None:
    found = read_marked(note(tmp_path, (85, 1, 499, 272), (0, 0, 500, 375), (-1, 3, 4, 5)))
    assert found.boxes == ((85, 1, 500, 273), (0, 0, 500, 375), (0, 3, 5, 6))
    assert found.names == ("n01",) * 3


def test_a_size_of_nothing_limits_nothing(tmp_path: Path) -> None:
    assert read_marked(note(tmp_path, (1, 2, 9, 9), size="<width>0</width>")).boxes == ((1, 2, 10, 10),)


def test_no_file_is_no_boxes_but_a_damaged_one_is_said(tmp_path: Path) -> None:
    assert XmlBoxes(tmp_path, "absent.xml").read() == ()
    note(tmp_path, ("a", 1, 2, 3))
    raises(fovea.BadPicture, r"the boxes in .*note\.xml cannot be read", XmlBoxes(tmp_path, "note.xml").read)


LAUGHS = "".join(f'<!ENTITY a{i + 1} "{f"&a{i};" * 10}">' for i in range(9))
HOSTILE = {
    "a bomb": f'<!DOCTYPE z [<!ENTITY a0 "{"x" * 1000}">{LAUGHS}]><z>&a9;</z>',
    "another file": '<!DOCTYPE z [<!ENTITY a SYSTEM "file:///etc/passwd">]><z><object><name>&a;</name></object></z>',
    "not a number": OBJECT.format("nan", 1, 2, 3),
    "infinite": OBJECT.format(0, 1, "1e999", 3),
    "huge": OBJECT.format(0, 1, "9" * 10_000, 3),
    "long": f"<a>{' ' * 1_000_000}</a>",
    "no XML": "\0",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text(HOSTILE[name])
    tracemalloc.start()
    raises(fovea.BadPicture, r"the boxes in .*a\.xml cannot be read", XmlBoxes(tmp_path, "a.xml").read)
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_elements_as_deep_as_there_is_room_for(tmp_path: Path) -> None:
    (tmp_path / "a.xml").write_text("<a>" * 140_000 + "</a>" * 140_000)
    assert XmlBoxes(tmp_path, "a.xml").read() == ()


def test_a_list_does_not_lead_out(tmp_path: Path) -> None:
    note(tmp_path, (1, 2, 9, 9))
    (tmp_path / "set").mkdir()
    for name in ("../note.xml", str(tmp_path / "note.xml"), "a/../../note.xml", "..\\note.xml", "note\0.xml"):
        raises(fovea.BadPicture, "leads out of", XmlBoxes(tmp_path / "set", name).read)
