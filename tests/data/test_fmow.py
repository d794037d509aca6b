import json

import fovea
from checks import refused
from fovea.data import open_data
from made_data import Made

NOTE = "train/airport/airport_0/airport_0_1_rgb.json"


def test_categories_are_sorted_over_all_splits(made: Made) -> None:
    data = open_data(made("fmow"))
    assert data.labels == ("airport", "barn", "zoo")
    assert [(one.name, one.label) for one in data.samples] == [
        ("train/airport/airport_0/airport_0_1_rgb.jpg", 0),
        ("train/zoo/zoo_0/zoo_0_1_rgb.jpg", 2),
        ("val/barn/barn_0/barn_0_1_rgb.jpg", 1),
    ]


def test_boxes_are_of_the_pictures_own_category(made: Made) -> None:
    root = made("fmow")
    assert open_data(root).samples[0].boxes == ((3, 4, 13, 9),)
    (root / NOTE).write_text(json.dumps({"bounding_boxes": {"ID": 1, "box": [1, 2, 3, 4]}}))  # one, not in a list
    assert open_data(root).samples[0].boxes == ((1, 2, 4, 6),)
    (root / NOTE).unlink()
    assert open_data(root).samples[0].boxes == ()


BOX = '{"bounding_boxes": [{"box": [1, 2, 3, 4]}]} '


def test_a_damaged_json_is_reported_with_its_picture(made: Made) -> None:
    root = made("fmow")
    numbers = (BOX.replace("4", text) for text in ("NaN", "Infinity", "1e300", "9" * 400, "9" * 10_000, "null"))
    for text in ("{", "{}", '{"bounding_boxes": [{"box": [1, 2]}]}', "[]", "[" * 100_000, " " * 10**7, *numbers):
        (root / NOTE).write_text(text)
        (sample, image), *_ = open_data(root).with_boxes().read()
        assert (sample.label, isinstance(image, fovea.BadPicture)) == (0, True)


def test_only_the_splits_that_are_there(made: Made) -> None:
    root = made("fmow")
    refused(r"no split 'test' \(it has: train, val\)", open_data, f"{root}:split=test")
    (root / "val").rename(root / "test_gt")
    assert [one.label for one in open_data(f"{root}:split=test").samples] == [1]
