from checks import refused
from fovea.data import open_data
from made_data import Made


def test_labels_boxes_and_the_official_split(made: Made) -> None:
    data = open_data(made("cub"))
    assert data.labels == ("Black_footed_Albatross", "Laysan_Albatross")
    first, second, third = data.samples
    assert first.name == "images/001.Black_footed_Albatross/Black_Footed_Albatross_0001.jpg"
    assert [(one.label, one.row["split"]) for one in data.samples] == [(0, "test"), (0, "train"), (1, "train")]
    assert (first.boxes, second.boxes, third.boxes) == (((6, 2, 16, 17),), ((0, 0, 30, 20),), ((1, 1, 3, 3),))


def test_index_files_that_do_not_fit_together(made: Made) -> None:
    root = made("cub")
    (root / "image_class_labels.txt").write_text("1 1\n2 1\n")
    refused(r"inconsistent: picture 3 \(002", open_data, root)
    (root / "bounding_boxes.txt").write_text("1 6.0 2.0 10.0\n")
    refused(r"bounding_boxes\.txt, picture 1: expected x y w h", open_data, root)
    (root / "classes.txt").write_text("1\n")
    refused(r"classes\.txt, line 1", open_data, root)
