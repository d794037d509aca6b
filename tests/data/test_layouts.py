"""What holds for every data set, and how they are found."""

from collections.abc import Callable
from pathlib import Path

import pytest

import fovea
from fovea.data import LAYOUTS, Below, open_data

Made = Callable[..., Path]
ON_DISK = [one.name for one in LAYOUTS if one.recognises and one.name != "mr"]
LISTED = ["cub", "dogs", "cars", "tiny-imagenet"]  # an index lists the pictures
NEEDED = [
    ("cub", "images.txt"), ("cub", "image_class_labels.txt"), ("cub", "train_test_split.txt"),
    ("cub", "bounding_boxes.txt"), ("cub", "classes.txt"),
    ("dogs", "train_list.mat"), ("dogs", "test_list.mat"), ("dogs", "Annotation"), ("dogs", "Images"),
    ("cars", "devkit/cars_meta.mat"), ("cars", "devkit/cars_train_annos.mat"),
    ("cars", "cars_test_annos_withlabels.mat"), ("cars", "cars_test"),
    ("tiny-imagenet", "words.txt"), ("tiny-imagenet", "train/n02124075/n02124075_boxes.txt"),
    ("tiny-imagenet", "val/val_annotations.txt"), ("tiny-imagenet", "wnids.txt"),
    ("mnist", "t10k-labels-idx1-ubyte.gz"), ("mnist", "train-images-idx3-ubyte.gz"),
]  # fmt: skip


@pytest.mark.parametrize("kind", ON_DISK)
def test_a_path_is_recognised_by_its_files_and_every_picture_is_read(made: Made, kind: str) -> None:
    data = open_data(made(kind))
    assert len(data) >= 3
    for sample, image in data.read():
        assert not isinstance(image, fovea.BadPicture), image
        assert 0 <= sample.label < len(data.labels)
        assert all(0 <= x0 < x1 <= image.width and 0 <= y0 < y1 <= image.height for x0, y0, x1, y1 in sample.boxes)
    assert data.name in (kind, "some-set")


@pytest.mark.parametrize("layout", [one for one in LAYOUTS if one.name in ON_DISK], ids=lambda one: one.name)
def test_names_below_fovea_data(made: Made, layout: object, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    name, folders = layout.name, layout.folders  # type: ignore[attr-defined]
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path))
    if name not in ("folder", "pack"):
        made(name, (folders or (name.upper(),))[0])
        assert len(open_data(name)) == len(open_data((folders or (name,))[0].lower())) >= 3
    made(name, "mine")
    assert len(open_data("mine")) >= 3
    made(name, f"unpacked/here/{(folders or ('.',))[0]}")
    assert len(open_data(tmp_path / "unpacked/here")) >= 3  # an archive often brings a folder of its own


@pytest.mark.parametrize("kind", ON_DISK)
def test_splits_are_parts_and_a_wrong_one_names_them(made: Made, kind: str) -> None:
    root = made(kind)
    whole = open_data(root)
    splits = sorted({sample.row["split"] for sample in whole.samples})
    parts = [open_data(f"{root}:split={split}") for split in splits]
    assert sorted(one.name for part in parts for one in part.samples) == sorted(one.name for one in whole.samples)
    assert all(part.labels == whole.labels for part in parts)
    assert len(splits) == 2
    with pytest.raises(fovea.BadChoice, match=rf"no split 'trian'; did you mean 'train'\? \(it has: .*{splits[1]}"):
        open_data(root, split="trian")


@pytest.mark.parametrize(("kind", "file"), NEEDED)
def test_half_a_set_says_what_is_missing_and_where_it_looked(made: Made, kind: str, file: str) -> None:
    root = made(kind)
    (root / file).rename(root.parent / "elsewhere")
    with pytest.raises(fovea.BadChoice, match=rf"{kind} is incomplete: .*{file.removesuffix('.gz')}.* not in {root}"):
        open_data(root)


@pytest.mark.parametrize("kind", LISTED)
def test_an_absent_picture_is_a_bad_picture_and_all_absent_is_half_a_set(made: Made, kind: str) -> None:
    root = made(kind)
    data = open_data(root)
    paths = [one.source.path for one in data.samples if isinstance(one.source, Below)]
    paths[0].unlink()
    paths[1].write_bytes(b"no picture")
    images = [image for _, image in open_data(root).read()]
    assert [isinstance(one, fovea.BadPicture) for one in images] == [True, True] + [False] * (len(images) - 2)
    assert "does not exist" in str(images[0])
    for path in paths:
        path.unlink(missing_ok=True)
    with pytest.raises(fovea.BadChoice, match=f"none of the {len(paths)} pictures"):
        open_data(root)


def test_labels_limit_and_options(made: Made) -> None:
    root = made("cub")
    assert [one.label for one in open_data(f"{root}:labels=1").samples] == [1]
    assert len(open_data(f"{root}:labels=0-1,limit=2")) == 2
    for wrong, said in {
        "splt=test": "no option 'splt'; did you mean 'split'",
        "limit=few": "limit= takes a whole number; got 'few'",
        "limit=0": "at least 1",
        "labels=a": "labels are written 0-49",
        "labels=7": "no picture of the classes",
        "test": "name:key=value",
        "layout=cup": "no layout 'cup'; did you mean 'cub'",
        "layout=dogs": "dogs is incomplete: .*train_list.mat",
    }.items():
        with pytest.raises(fovea.BadChoice, match=said):
            open_data(f"{root}:{wrong}")


def test_a_layout_can_be_forced(made: Made) -> None:
    root = made("cub")
    assert open_data(f"{root / 'images'}").labels == ("001.Black_footed_Albatross", "002.Laysan_Albatross")
    assert open_data(f"{root}:layout=folder").labels == ("images",)


def test_a_name_that_leads_nowhere_lists_all_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(fovea.BadChoice) as caught:
        open_data("cub")
    assert all(str(tmp_path / one) in str(caught.value) for one in ("cub", "CUB_200_2011", "cub200"))
    (tmp_path / "cub100").mkdir()
    with pytest.raises(fovea.BadChoice, match="did you mean 'cub100'"):
        open_data("cub10")
    monkeypatch.delenv("FOVEA_DATA")
    with pytest.raises(fovea.BadChoice, match="FOVEA_DATA, below which data is looked for by name, is not set"):
        open_data("cub")


def test_an_empty_folder_with_a_known_name_is_half_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path))
    (tmp_path / "CUB_200_2011/images/001.X").mkdir(parents=True)
    for given in ("cub", tmp_path / "CUB_200_2011"):
        with pytest.raises(fovea.BadChoice, match=r"images\.txt, .* not in .*CUB_200_2011 \(there: images\)"):
            open_data(given)
    (tmp_path / "ILSVRC2012").mkdir()
    with pytest.raises(fovea.BadChoice, match=r"imagenet is incomplete: no folder of pictures .*CLS-LOC/train"):
        open_data("imagenet")
    (tmp_path / "fmow").mkdir()
    with pytest.raises(fovea.BadChoice, match="fmow is incomplete: no train/, val/"):
        open_data("fmow")


def test_ones_own_dogs_are_a_folder_and_made_sets_need_none(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made("folder", "dogs")
    assert open_data("dogs").labels == ("cat", "dog", "emu")
    made("folder", "digits")
    assert open_data("./digits").labels == ("cat", "dog", "emu")
    with pytest.raises(fovea.BadChoice, match="digits is made, not read from 'dogs'"):
        open_data("dogs:layout=digits")


def test_sentences_are_not_pictures(made: Made) -> None:
    with pytest.raises(fovea.BadChoice, match="open_sentences"):
        open_data(made("mr"))


def test_two_splits_are_one_too_many(made: Made) -> None:
    root = made("folder")
    assert len(open_data(f"{root}:split=test", "test")) == 2
    with pytest.raises(fovea.BadChoice, match="split=test after the colon, but 'train' is asked for"):
        open_data(f"{root}:split=test", "train")
