import os

import fovea
from checks import refused
from fovea.data import open_data
from made_data import Made, save


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


def test_a_list_does_not_lead_out(made: Made) -> None:
    root = made("cub")
    save(root.parent / "secret.jpg")
    path = root / "images.txt"
    (number, first), *rest = (line.split() for line in path.read_text().splitlines())
    for name in ("../../secret.jpg", f"../..{root.parent}/secret.jpg", "a\\..\\..\\..\\secret.jpg", "a\0.jpg"):
        path.write_text("\n".join([f"{number} {name}", *map(" ".join, rest)]))
        (_, image), *others = open_data(root).read()
        assert "leads out of" in str(image)
        assert not any(isinstance(other, fovea.BadPicture) for _, other in others)
    assert first


def test_hostile_lists(made: Made) -> None:
    root = made("cub")
    boxes = (root / "bounding_boxes.txt").read_text()
    for number in ("nan", "inf", "1e300", "9" * 10_000, "１"):
        (root / "bounding_boxes.txt").write_text(boxes + f"\n1 {number} 1 2 3")
        refused(r"bounding_boxes\.txt, picture 1: expected x y w h", open_data, root)
    (root / "classes.txt").write_bytes(b"\xff\xfe")
    refused(r"classes\.txt cannot be read", open_data, root)
    (root / "classes.txt").unlink()
    os.mkfifo(root / "classes.txt")
    refused("no ordinary file", open_data, root)
    (root / "classes.txt").unlink()
    (root / "classes.txt").write_bytes(b"")
    os.truncate(root / "classes.txt", 10**10)  # ten gigabytes that take no room
    refused(r"size of .*classes\.txt in bytes is 0 to", open_data, root)
