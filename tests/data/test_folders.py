from pathlib import Path

import pytest

import fovea
from checks import refused
from fovea.data import open_data, open_folder
from made_data import Made


def test_classes_are_numbered_alike_in_every_split(made: Made) -> None:
    root = made("folder")
    assert open_folder(root).labels == ("cat", "dog", "emu")
    test = open_data(f"{root}:split=test")
    assert [(Path(one.name).name, one.label) for one in test.samples] == [("c.png", 1), ("d.png", 2)]
    assert test.labels == ("cat", "dog", "emu")


def test_train_may_be_a_class(made: Made) -> None:
    root = made("folder")
    (root / "test").rename(root / "bus")
    assert open_folder(root).labels == ("bus", "train")
    refused(r"no split 'train' \(it is not split\)", open_folder, root, split="train")


@pytest.mark.parametrize("inside", ["", "train/"])
def test_boxes_beside_the_splits_or_inside_one(made: Made, inside: str) -> None:
    root = made("folder")
    before = "" if inside else "train/"
    (root / f"{inside}boxes.csv").write_text(
        f"file,boxes\n{before}cat/a.png,1 2 3 4;5 6 7 8\n{before}cat/a.png,0 0 1 1"
    )
    data = open_folder(root)
    assert data.samples[0].boxes == ((1, 2, 3, 4), (5, 6, 7, 8), (0, 0, 1, 1))
    assert len(data.with_boxes()) == 1


def test_boxes_that_fit_no_picture(made: Made) -> None:
    root = made("folder") / "train"
    (root / "boxes.csv").write_text("file,boxes\na.png,1 2 3 4\n")
    refused(r"names no picture that is there: it has 'a\.png'", open_folder, root)
    (root / "boxes.csv").write_text("name,box\ncat/a.png,1 2 3 4\n")
    refused("lacks the columns boxes, file", open_folder, root)


def test_numbers_names_hidden_files_and_nothing(tmp_path: Path, made: Made) -> None:
    root = made("folder") / "train"
    (root / ".cache").mkdir()
    (root / "cat/.a.png").write_bytes(b"")
    (root / "cat/notes.txt").write_text("no picture")
    (root / "cat/gone.png").symlink_to(tmp_path / "nowhere")
    data = open_folder(root, ("dog", "cat", "cow"))
    assert [(Path(one.name).name, one.label) for one in data.samples] == [("a.png", 1), ("gone.png", 1), ("b.png", 0)]
    assert [isinstance(image, fovea.BadPicture) for _, image in data.read()] == [False, True, False]
    (root / "cat").rename(root / "007")
    (root / "dog").rename(root / "3")
    assert {one.label for one in open_folder(root).samples} == {7, 3}
    assert open_folder(root).labels == tuple(map(str, range(8)))
    for path in root.rglob("*.png"):
        path.unlink()
    refused("no picture in the class folders", open_folder, root)
    refused("neither manifest", open_folder, root / "3")


def test_folders_without_pictures_beside_the_splits(made: Made) -> None:
    root = made("folder")
    (root / "annotations").mkdir()
    (root / "annotations/a.xml").write_text("")
    (root / "__MACOSX/train").mkdir(parents=True)
    (root / "__MACOSX/train/._a.png").write_bytes(b"")
    assert open_folder(root).labels == ("cat", "dog", "emu")


def test_dates_are_no_class_numbers(made: Made) -> None:
    root = made("folder") / "train"
    (root / "cat").rename(root / "20231105")
    (root / "dog").rename(root / "20231224")
    assert open_folder(root).labels == ("20231105", "20231224")


def test_here_has_a_name(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(made("folder"))
    assert open_data(".").name == "some-set"


@pytest.mark.parametrize("text", ["1 2 1 4", "1 4 3 2", "1 2 nan 4", "1 2 inf 4", "1 2 3"])
def test_boxes_that_are_none(made: Made, text: str) -> None:
    root = made("folder") / "train"
    (root / "boxes.csv").write_text(f"file,boxes\ncat/a.png,1 2 3 4\ndog/b.png,{text}\n", encoding="utf-8-sig")
    refused(rf"boxes\.csv, line 3: a box is .*; got '{text}'", open_folder, root)
    (root / "boxes.csv").write_text("file,boxes\ncat/a.png\n")
    refused(r"boxes\.csv, line 2 is cut short", open_folder, root)
