from pathlib import Path

from checks import refused
from fovea.data import open_data
from made_data import Made


def test_labels_follow_the_sorted_wnids(made: Made) -> None:
    data = open_data(made("tiny-imagenet"))
    assert data.labels == ("goldfish", "Egyptian cat")
    assert [(Path(one.name).name, one.label) for one in data.samples] == [
        ("n01443537_0.JPEG", 0), ("n01443537_1.JPEG", 0), ("n02124075_0.JPEG", 1), ("n02124075_1.JPEG", 1),
        ("val_0.JPEG", 1), ("val_1.JPEG", 0),
    ]  # fmt: skip


def test_the_last_pixel_of_a_box_counts(made: Made) -> None:
    data = open_data(made("tiny-imagenet"))
    assert data.samples[0].boxes == ((0, 10, 64, 59),)
    assert data.samples[4].boxes == ((0, 32, 45, 63),)


def test_shared_first_words_are_told_apart(made: Made) -> None:
    root = made("tiny-imagenet")
    (root / "words.txt").write_text("n01443537\tcrane, bird\nn02124075\tcrane, machine\n")
    assert open_data(root).labels == ("crane, bird", "crane, machine")


def test_what_cannot_be(made: Made) -> None:
    root = made("tiny-imagenet")
    refused("no published labels; use split=val", open_data, f"{root}:split=test")
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tn02124075\t0\t32\t44\n")
    refused(r"val_annotations\.txt, line 1: expected a file and a box", open_data, root)
    (root / "val/val_annotations.txt").write_text("val_0.JPEG\tn09999999\t0\t32\t44\t62\n")
    refused(r"n09999999, not in wnids\.txt", open_data, root)
    (root / "wnids.txt").write_bytes(b"n" * 5000 + b"\nn\0\x1b\n")
    refused(r"is incomplete: train/n\\x00\\x1b/.*, train/n{194} not in", open_data, root)
