import os
from collections.abc import Callable
from pathlib import Path

import pytest

import fovea
from checks import refused
from fovea.data import open_data

needs_packs = pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the packs")


def test_words_are_numbered_in_sorted_order(made: Callable[..., Path]) -> None:
    data = open_data(f"{made('pack')}:split=train")
    assert data.labels == ("ant", "cat")
    assert [(one.name, one.label, one.boxes) for one in data.samples] == [
        ("a.png", 1, ((1, 2, 3, 4), (5, 6, 7, 8))),
        ("b.png", 0, ((1, 2, 3, 4), (5, 6, 7, 8))),
    ]


def test_a_shard_that_is_cut_short(made: Callable[..., Path]) -> None:
    root = made("pack")
    shard = root / "00.tar"
    shard.write_bytes(shard.read_bytes()[:1100])
    reasons = [str(image) for _, image in open_data(root).read() if isinstance(image, fovea.BadPicture)]
    assert [one.partition(" ")[0] for one in reasons] == ["b.png", "c.png"]


def test_manifests_that_cannot_be(made: Callable[..., Path]) -> None:
    root = made("pack")
    text = (root / "manifest.csv").read_text()
    (root / "manifest.csv").write_text(text, encoding="utf-8-sig")
    assert len(open_data(root)) == 3
    (root / "manifest.csv").write_text(text + "\nd.png,00.tar\n")
    refused(r"manifest\.csv, line 5 is cut short", open_data, root)
    (root / "manifest.csv").write_text(text.replace("1 2 3 4", "3 2 1 4"))
    refused(r"manifest\.csv, a\.png: a box is", open_data, root)
    (root / "manifest.csv").write_text(text.replace("cat", "99999999999").replace("ant", "0"))
    refused(r"label 99999999999 in manifest\.csv is too large", open_data, root)
    (root / "manifest.csv").write_text("file,shard,label\n")
    refused("lists no picture", open_data, root)
    (root / "manifest.csv").write_text(text)
    (root / "00.tar").unlink()
    refused(r"incomplete: 00\.tar", open_data, root)


@needs_packs
@pytest.mark.parametrize(
    ("given", "count", "classes"),
    [
        ("gtsdb:split=test", 76, 4), ("gtsdb:split=train", 228, 4), ("imagenette:split=train", 5000, 10),
        ("imagenette:split=test", 1600, 10), ("cub100", 5864, 100), ("imagenet-val-3k", 3000, 1000),
        ("mnist:split=train", 60000, 10), ("mnist:split=test", 10000, 10),
    ],
)  # fmt: skip
def test_the_packs(given: str, count: int, classes: int) -> None:
    if not Path(os.environ["FOVEA_DATA"], given.partition(":")[0]).is_dir():
        pytest.skip("not in FOVEA_DATA")
    data = open_data(given)
    assert (len(data), len(data.labels)) == (count, classes)
    for sample, image in data.first(4).read():
        assert not isinstance(image, fovea.BadPicture)
        assert all(0 <= x0 < x1 <= image.width and 0 <= y0 < y1 <= image.height for x0, y0, x1, y1 in sample.boxes)
