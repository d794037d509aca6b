import copy
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import fovea
import made_twostream
from conftest import Pooled, seeded
from fovea.data import open_data
from fovea.evidence import paragraph
from fovea.evidence.words import percent, place_of
from fovea.pictures import Prepare

Row = dict[str, Any]
NUMBER = re.compile(r"-?\d+(?:[.,]\d+)*")


@pytest.mark.parametrize(
    ("box", "place"),
    [
        ((0, 0, 30, 30), "at the upper left"),
        ((70, 0, 100, 30), "at the upper right"),
        ((0, 70, 30, 100), "at the lower left"),
        ((70, 70, 100, 100), "at the lower right"),
        ((35, 35, 65, 65), "in the middle"),
        ((35, 0, 65, 30), "at the top"),
        ((35, 70, 65, 100), "at the bottom"),
        ((0, 35, 30, 65), "on the left"),
        ((70, 35, 100, 65), "on the right"),
        ((0, 0, 78, 78), "all over the picture"),  # 61 % of it
        ((0, 0, 76, 76), "at the upper left"),  # 58 %, whose middle is at 38 %
        ((0, 0, 100, 100), "all over the picture"),
        ((0, 40, 100, 60), "in the middle"),
        ((39, 50, 40, 51), "on the left"),
        ((40, 50, 41, 51), "in the middle"),
    ],
)
def test_places_by_hand(box: tuple[int, ...], place: str) -> None:
    assert place_of(box, (100, 100)) == place
    x0, y0, x1, y1 = box
    assert place_of((4 * x0, 3 * y0, 4 * x1, 3 * y1), (400, 300)) == place  # whatever the picture's proportions


def test_shares_in_words() -> None:
    assert [percent(share) for share in (0.5, 0.346, 0.02, 0.01, 0.0099, 0.004, 0.0)] == [
        "50 %", "35 %", "2 %", "1 %", "1.0 %", "0.4 %", "0.0 %",
    ]  # fmt: skip


def part(share: float, labels: tuple[str, str], alone: tuple[float, float]) -> Row:
    said = {
        ground: {"label": label, "probability": 0.7 + 0.01 * i, "answer": 0.2 + 0.01 * i}
        for i, (ground, label) in enumerate(zip(("mean", "blur"), labels, strict=True))
    }
    grounds = dict(zip(("mean", "blur"), alone, strict=True))
    return {"share": share, "boxes": [[1, 2, 3, 4]], "backgrounds": said, "on_one_background": grounds}


def plain() -> Row:
    """A picture of which all is well. No two of its numbers read alike."""
    labels = {"snow_leopard": 0.81, "lynx": 0.09, "tabby": 0.03}
    return {
        "label": "snow_leopard",
        "probability": 0.81,
        "calibrated": True,
        "unsure": [],
        "runner_up": "lynx",
        "name": "a.jpg",
        "size": [640, 480],
        "predictions": [{"label": label, "probability": share} for label, share in labels.items()],
        "where": [
            {"kind": "answer", "boxes": [[250, 160, 390, 320]], "place": "in the middle"},
            {"kind": "runner-up", "boxes": [[0, 0, 100, 100]], "place": "at the upper left"},
            {"kind": "contrast", "boxes": [[500, 330, 640, 480]], "place": "at the lower right", "exact": True},
        ],
        "enough": part(0.14, ("snow_leopard", "snow_leopard"), (0.12, 0.13)),
        "needed": part(0.06, ("lynx", "lynx"), (0.05, 0.06)),
        "closer": None,
        "longer": None,
        "prototypes": None,
        "like": None,
        "trust": {"random": 0.31, "methods": {"gradcam": 0.95}, "changes": {}, "doubts": []},
        "cost": {"forwards": 44, "macs": 390_000_000, "ms": 812.0, "pixels": 50176, "picture": 307200},
    }


def changed(**parts: Any) -> Callable[[], Row]:
    return lambda: plain() | copy.deepcopy(parts)


WINDOWS = [{"box": [0, 0, 9, 9], "label": label, "probability": 0.5} for label in ("lynx", "tabby", "lynx")]
DOUBTS = ["mirrored, it is taken for lynx", "gradcam shows another map (rank correlation 0.21)"]
CLOSER = {
    "windows": WINDOWS,
    "label": "lynx",
    "probability": 0.58,
    "pixels": 4711,
    "share": 0.27,
    "forwards": 3,
    "resolution": 1,
}
STREAMS = {"global": {"label": "lynx", "probability": 0.61}, "local": {"label": "ox", "probability": 0.42}}
PROTOTYPES = [{"prototype": 17, "label": "lynx", "similarity": 4.56}, {"prototype": 3, "label": "ox", "similarity": 1}]
NEIGHBORS = [
    {"label": "lynx", "name": "b.jpg", "similarity": 0.93},
    {"label": None, "name": "c.jpg", "similarity": 0.91},
]
ROWS: dict[str, tuple[Callable[[], Row], str]] = {
    "well": (
        plain,
        "snow leopard (0.81), seen in the middle. What tells it from lynx lies at the lower right. 14 % of the picture "
        "is enough; without 6 % of it the answer becomes lynx. The map stood all checks.",
    ),
    "unsure": (changed(unsure=["snow_leopard", "lynx"]), "Not sure between snow leopard (0.81) and lynx (0.09), seen"),
    "unsure of three": (
        changed(unsure=["snow_leopard", "lynx", "tabby"]),
        "Not sure between snow leopard (0.81), lynx (0.09) and tabby (0.03), seen in the middle.",
    ),
    "doubtful": (
        changed(unsure=["snow_leopard"], probability=0.44), "Perhaps snow leopard (0.44), seen in the middle.",
    ),
    "nothing enough": (
        changed(enough=None),
        "Nothing less than the whole was found to be enough; without 6 % of it the answer becomes lynx.",
    ),
    "nothing needed": (
        changed(needed=None), "14 % of the picture is enough; nothing was found without which the answer changes.",
    ),
    "neither": (
        changed(enough=None, needed=None),
        "Nothing less than the whole was found to be enough; nothing was found without which the answer changes.",
    ),
    "backgrounds disagree": (
        changed(enough=part(0.36, ("snow_leopard", "snow_leopard"), (0.04, 0.36))),
        "36 % of the picture is enough (with the rest gray 4 % would do); without",
    ),
    "needed on backgrounds that disagree": (
        changed(needed=part(0.24, ("lynx", "tabby"), (0.24, 0.002))),
        "without 24 % of it the answer becomes lynx or tabby (with the rest blurred 0.2 % would do).",
    ),
    "backgrounds nearly agree": (
        changed(enough=part(0.36, ("snow_leopard", "snow_leopard"), (0.18, 0.36))), "36 % of the picture is enough;",
    ),
    "closer changes the answer": (
        changed(closer=CLOSER), "With 3 parts at full resolution, 27 % of the pixels, it becomes lynx (0.58).",
    ),
    "closer keeps the answer": (
        changed(closer=CLOSER | {"label": "snow_leopard"}),
        "With 3 parts at full resolution, 27 % of the pixels, it stays snow leopard (0.58).",
    ),
    "one part": (
        changed(closer=CLOSER | {"windows": WINDOWS[:1]}), "With 1 part at full resolution, 27 % of the pixels, it",
    ),
    "doubts": (
        changed(trust=plain()["trust"] | {"doubts": DOUBTS}),
        "Doubts: mirrored, it is taken for lynx; gradcam shows another map (rank correlation 0.21).",
    ),
    "not checked": (changed(trust=None), "the answer becomes lynx."),
    "no map of it": (changed(where=[{"kind": "answer", "boxes": [], "place": None}]), "snow leopard (0.81). 14 % of"),
    "streams": (
        changed(longer=STREAMS),
        "The picture as a whole is taken for lynx (0.61), its parts for ox (0.42).",
    ),
    "prototypes": (
        changed(prototypes=PROTOTYPES), "It looks most like prototype 17 of lynx (similarity 4.56).",
    ),
    "neighbors": (changed(like={"neighbors": NEIGHBORS}), "Nearest in the index: lynx (0.93) and c.jpg (0.91)."),
}  # fmt: skip


def spelled(row: Any) -> Iterator[str]:
    """All that a row's own numbers can read as, how many of something there are, and numbers in its texts."""
    if isinstance(row, dict):
        yield from (text for value in row.values() for text in spelled(value))
    elif isinstance(row, list):
        yield str(len(row))
        yield from (text for value in row for text in spelled(value))
    elif isinstance(row, str):
        yield from NUMBER.findall(row.replace("_", " "))
    elif isinstance(row, (int, float)) and not isinstance(row, bool):
        yield from (f"{row:.2f}", f"{100 * row:.0f}", f"{100 * row:.1f}", f"{row:d}" if isinstance(row, int) else "")


def strange(row: Row) -> list[str]:
    """Numbers of the paragraph that the row does not have."""
    return [number for number in NUMBER.findall(paragraph(row)) if number not in set(spelled(row))]


@pytest.mark.parametrize("kind", ROWS)
def test_what_is_said_of_a_row(kind: str) -> None:
    make, words = ROWS[kind]
    row = make()
    assert words in paragraph(row)
    assert strange(row) == []
    assert row == make()  # which was only read
    text = paragraph(row)
    assert "_" not in text
    assert "  " not in text
    assert ".." not in text
    assert text.endswith(".")


def test_a_number_of_elsewhere_would_be_noticed() -> None:
    """What checks the paragraphs is no check if anything passes it."""
    row = plain()
    assert NUMBER.findall(paragraph(row)) == ["0.81", "14", "6"]
    assert {"0.82", "15", "7"}.isdisjoint(spelled(row))


@pytest.mark.parametrize("kind", ROWS)
def test_numbers_follow_the_row(kind: str) -> None:
    """With every share half as large, the numbers of the paragraph are others."""

    def moved(value: Any, by: float) -> Any:
        if isinstance(value, dict):
            return {key: moved(each, by) for key, each in value.items()}
        if isinstance(value, list):
            return [moved(each, by) for each in value]
        return value * by if isinstance(value, float) else value

    row = ROWS[kind][0]()
    before, after = (NUMBER.findall(paragraph(moved(row, by))) for by in (1.0, 0.5))
    still = {a for a, b in zip(before, after, strict=True) if a == b}
    assert still <= {"1", "3", "17", "0.21"}  # how many parts, a prototype's number, and what is quoted


def test_paragraphs_of_pictures() -> None:
    """Of networks that say different things, made of nothing but their rows."""
    noise = [Image.fromarray(np.random.default_rng(i).integers(0, 256, (90, 120, 3), np.uint8)) for i in range(4)]
    pooled = fovea.wrap(seeded(Pooled), Prepare((24, 24)), labels=[f"kind_{i}" for i in range(5)])
    looks = [*fovea.look(pooled, noise), *fovea.look(pooled, noise[:1], trust=False, glimpses=0)]
    looks += fovea.look(made_twostream.made(), made_twostream.planted_image())
    for look in looks:
        row = look.to_dict()
        assert look.words == paragraph(row)
        assert strange(row) == []
        assert look.label.replace("_", " ") in look.words


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the packs gtsdb and cub100")
@pytest.mark.parametrize(
    ("net", "data"),
    [
        ("efficientnet_lite0", "gtsdb"),
        ("tnet-imagenet", "gtsdb"),
        ("efficientnet_lite0-cub100", "cub100:split=test"),
        ("twostream-cub100", "cub100:split=test"),
        ("protopnet-cub100", "cub100:split=test"),
        ("anchornet-cub100", "cub100:split=test"),
    ],
)
def test_paragraphs_of_packs(net: str, data: str, tmp_path: Path) -> None:
    """Street scenes and birds by the networks that come with fovea: numbers are those of results.json."""
    samples = open_data(data).first(2).samples
    looks = fovea.look(net, [sample.read() for sample in samples], forwards=30)
    looks.save(tmp_path)
    rows = json.loads((tmp_path / "results.json").read_text())["results"]
    for look, row in zip(looks, rows, strict=True):
        assert look.words == paragraph(row)
        assert strange(row) == []
