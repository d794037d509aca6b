import shutil
from pathlib import Path

import numpy as np
from scipy.io import savemat

import fovea
from checks import refused
from fovea.data import imagenet_labels, open_data
from made_data import Made


def test_labels_are_in_the_usual_order(made: Made) -> None:
    data = open_data(made("imagenet"))
    assert data.labels == imagenet_labels()
    assert [(Path(one.name).stem, data.labels[one.label]) for one in data.samples] == [
        ("n01440764_10026", "tench"),
        ("n01440764_10027", "tench"),
        ("n02102040_7", "English springer"),
        ("ILSVRC2012_val_00000001", "English springer"),
        ("ILSVRC2012_val_00000002", "goldfish"),
    ]
    assert [one.label for one in data.samples] == [0, 0, 217, 217, 1]


def test_boxes_where_there_are_any(made: Made) -> None:
    """0-based with the last pixel counted; the first training picture has a file, the others have none."""
    data = open_data(made("imagenet"))
    assert [one.boxes for one in data.samples] == [
        ((13, 2, 21, 15),),
        (),
        (),
        ((0, 0, 30, 20),),
        ((0, 0, 30, 20), (4, 5, 7, 8)),
    ]
    assert len(data.with_boxes()) == 3


def test_validation_in_wnid_folders(made: Made, tmp_path: Path) -> None:
    root, flat = tmp_path / "plain", made("imagenet")
    for i, wnid in enumerate(("n02102040", "n01443537"), 1):
        (root / "val" / wnid).mkdir(parents=True)
        shutil.copy(flat / f"Data/CLS-LOC/val/ILSVRC2012_val_{i:08}.JPEG", root / "val" / wnid)
    shutil.copytree(flat / "Annotations/CLS-LOC/val", root / "Annotations/val")
    data = open_data(f"{root}:layout=imagenet,split=val")
    assert [(one.label, len(one.boxes)) for one in data.samples] == [(1, 2), (217, 1)]
    # a few wnids alone are a folder with classes of its own
    assert open_data(root / "val").labels == ("n01443537", "n02102040")


def test_flat_validation_by_the_devkit(made: Made) -> None:
    """The devkit numbers classes in its own order: here springers are 1 and goldfish 2."""
    root = made("imagenet")
    shutil.rmtree(root / "Annotations")
    refused(r"none of its 2 pictures has a class.*00000002\.xml.* or from ILSVRC2012", open_data, f"{root}:split=val")
    devkit = root / "ILSVRC2012_devkit_t12/data"
    devkit.mkdir(parents=True)
    synsets = np.empty((3, 1), [("ILSVRC2012_ID", object), ("WNID", object), ("words", object)])
    for i, row in enumerate([(1, "n02102040", "English springer"), (2, "n01443537", "goldfish"), (1001, "n0", "dog")]):
        synsets[i, 0] = row
    savemat(devkit / "meta.mat", {"synsets": synsets})
    (devkit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n2\n")
    data = open_data(f"{root}:split=val")
    assert [(one.label, one.boxes) for one in data.samples] == [(217, ()), (1, ())]


def test_xml_unpacked_among_the_pictures(made: Made, tmp_path: Path) -> None:
    flat = made("imagenet")
    shutil.copytree(flat / "Data/CLS-LOC/val", tmp_path / "mixed/val")
    for path in (flat / "Annotations/CLS-LOC/val").iterdir():
        shutil.copy(path, tmp_path / "mixed/val")
    assert [one.label for one in open_data(tmp_path / "mixed").samples] == [217, 1]


def test_damaged_xml(made: Made) -> None:
    root = made("imagenet")
    (root / "Annotations/CLS-LOC/train/n01440764/n01440764_10026.xml").write_text("<annotation><size>")
    found = list(open_data(f"{root}:split=train").with_boxes().read())
    assert len(found) == 1
    assert "n01440764_10026.xml cannot be read" in str(found[0][1])


def test_flat_pictures_without_a_class_are_reported(made: Made) -> None:
    root = made("imagenet")
    (root / "Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml").write_text("<annotation>")
    (_, bad), (good, image) = open_data(f"{root}:split=val").read()
    assert "ILSVRC2012_val_00000001.JPEG has no class: the boxes in" in str(bad)
    assert (good.label, isinstance(image, fovea.BadPicture)) == (1, False)
    (root / "Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml").unlink()
    assert "does not exist" in str(next(open_data(f"{root}:split=val").read())[1])


def test_no_test_labels(made: Made) -> None:
    refused("no published labels; use split=val", open_data, f"{made('imagenet')}:split=test")


def test_other_wnids_are_numbered_among_themselves(made: Made) -> None:
    root = made("imagenet")
    (root / "Data/CLS-LOC/train/n02102040").rename(root / "Data/CLS-LOC/train/n99999999")
    data = open_data(f"{root}:split=train")
    assert data.labels == ("n01440764", "n99999999")
    assert [one.label for one in data.samples] == [0, 0, 1]
