import pickle
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from checks import refused
from fovea.data import Sample, glyphs, open_data, open_megapixel

pytest.importorskip("sklearn")


def pixels(sample: Sample) -> np.ndarray:
    return np.asarray(sample.source.read())[:, :, 0].astype(int)


def test_a_canvas_follows_from_seed_and_index_alone() -> None:
    few, many = open_data("megapixel:canvas=96,count=5"), open_data("megapixel:canvas=96,count=50")
    assert [one.label for one in few.samples] == [one.label for one in many.samples[:5]]
    assert (pixels(few.samples[3]) == pixels(many.samples[3])).all()
    assert (pixels(few.samples[3]) == pixels(pickle.loads(pickle.dumps(many.samples[3])))).all()
    assert len(pickle.dumps(few.samples[3])) < 2000  # nothing but its settings travels
    others = open_data("megapixel:canvas=96,count=5,seed=1"), open_data("megapixel:canvas=96,count=5,split=test")
    assert all((pixels(few.samples[0]) != pixels(one.samples[0])).any() for one in others)


def test_boxes_are_tight_around_the_labels_digits() -> None:
    """With nothing else on the canvas, the ink is where the boxes are, and reaches all four sides of each."""
    data = open_megapixel(canvas=(120, 90), copies=2, clutter=0, noise=0, count=10)
    for sample in data.samples:
        image, inside = pixels(sample), np.zeros((90, 120), bool)
        assert len(sample.boxes) == 2
        for x0, y0, x1, y1 in (tuple(map(int, box)) for box in sample.boxes):
            ink = image[y0:y1, x0:x1] >= 32
            assert ink[0].any()
            assert ink[-1].any()
            assert ink[:, 0].any()
            assert ink[:, -1].any()
            inside[y0:y1, x0:x1] = True
        assert not (image >= 32)[~inside].any()


def test_the_digit_in_the_box_is_one_of_the_source() -> None:
    data = open_megapixel(canvas=(40, 40), digit=10, clutter=0, noise=0, count=5, split="test")  # 10: their own size
    known = glyphs(("digits",), "test")
    for sample in data.samples:
        ((x0, y0, x1, y1),) = (tuple(map(int, box)) for box in sample.boxes)
        found = pixels(sample)[y0:y1, x0:x1]
        cut = [known.images[i] for i in known.of_class[sample.label]]
        boxes = [Image.fromarray(one).point([0] * 32 + [255] * 224).getbbox() for one in cut]
        tight = [one[box[1] : box[3], box[0] : box[2]] for one, box in zip(cut, boxes, strict=True) if box]
        assert any(one.shape == found.shape and (one == found).all() for one in tight)


def test_train_and_test_share_no_digit() -> None:
    train, test = (glyphs(("digits",), part).images for part in ("train", "test"))
    assert (len(train), len(test)) == (1437, 360)


def test_digits_do_not_overlap_even_when_crowded() -> None:
    """Nine digits of 20 in 60 x 60: only the grid fits them, and every pixel has one owner."""
    data = open_megapixel(canvas=(60, 60), digit=20, copies=9, clutter=0, noise=0, count=3)
    for sample in data.samples:
        cells = {(int(x0) // 20, int(y0) // 20) for x0, y0, _, _ in sample.boxes}
        assert len(cells) == 9


def test_the_label_occurs_most() -> None:
    for sample in open_megapixel(canvas=(200, 200), copies=3, others=18, digit=12, count=5).samples:
        canvas = sample.source
        placed = canvas._digits(canvas._random())
        assert [own for *_, own in placed] == [True] * 3 + [False] * 18
        assert len(sample.boxes) == 3


def test_clutter_and_noise_add_ink_and_never_hide_a_digit() -> None:
    bare, full = (open_megapixel(canvas=(128, 128), clutter=n, noise=n, count=4) for n in (0, 30))
    for one, other in zip(bare.samples, full.samples, strict=True):
        assert one.boxes == other.boxes
        assert (pixels(other) >= pixels(one)).all()
        assert pixels(other).sum() > pixels(one).sum()


def test_any_size_and_every_class() -> None:
    data = open_data("megapixel:canvas=300x50,count=400")
    assert data.samples[0].source.read().size == (300, 50)
    assert min(np.bincount([one.label for one in data.samples], minlength=10)) > 20


def test_from_mnist_files(made: Callable[..., Path]) -> None:
    data = open_data(f"megapixel:source={made('mnist')},canvas=64,count=3")
    assert all(len(one.boxes) == 1 for one in data.samples)
    refused("no data 'mnits'", open_data, "megapixel:source=mnits")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("canvas=big", r"canvas= takes a size in pixels, as 1000 or 1500x800 .*; got 'big'"),
        ("cavnas=64", "no option 'cavnas'; did you mean 'canvas'"),
        ("count=0", "count= is 1 to 500,000; got 0"),
        ("copies=two", "copies= takes a whole number"),
        ("clutter=-1", "clutter= is 0 to 1,000,000; got -1"),
        ("others=1", "at most 0 others fit 1 copies"),
        ("canvas=20", "1 digits of 28 pixels do not fit a canvas of 20 x 20"),
        ("split=val", r"no split 'val' \(it has: test, train\)"),
    ],
)
def test_what_cannot_be(wrong: str, said: str) -> None:
    refused(said, open_data, f"megapixel:{wrong}")


def test_a_small_canvas_is_made_in_a_fraction_of_a_decode() -> None:
    samples = open_data("megapixel:canvas=128,count=50").samples
    took = []
    for sample in samples:
        start = time.perf_counter()
        sample.source.read()
        took.append(time.perf_counter() - start)
    assert sorted(took)[25] < 0.005


def test_two_sources_are_equally_likely(tmp_path: Path) -> None:
    """Twenty digits of MNIST's form beside scikit-learn's 1,400: each has half of the canvases."""
    folder = tmp_path / "a+b"  # a folder's name may hold a plus
    folder.mkdir()
    white = np.full((20, 28, 28), 200, np.uint8)
    for part in ("train", "t10k"):
        header = np.array([0x803, 20, 28, 28], ">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + white.tobytes())
        labels = np.array([0x801, 20], ">i4").tobytes() + np.arange(20, dtype=np.uint8).__mod__(10).tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(labels)
    both = glyphs(("digits", str(folder)), "train")
    assert both.images.shape[1:] == (28, 28)
    for own in both.of_class:
        squares = [bool((both.images[i] == 200).all()) for i in own]
        assert sum(squares) * 2 == len(squares)
    assert len(open_data(f"megapixel:source={folder},count=2")) == 2
