"""Cars196 as published, in both layouts: cars_annos.mat with car_ims/, and devkit/ with cars_train/ and cars_test/.

Boxes there are MATLAB's, 1-based with the last pixel counted: x0 = x1' - 1, x1 = x2'. For retrieval the classes are
halved: labels=0-97 to train, labels=98-195 to test."""

from collections.abc import Iterator
from pathlib import Path

from fovea.basics import BadChoice
from fovea.data.layouts import layout
from fovea.data.matlab import columns
from fovea.data.options import splits_asked
from fovea.data.places import class_number, demand, demand_pictures
from fovea.data.samples import Below, DataSet, Sample, corners

CORNERS = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")
MARKS = ("cars_annos.mat", "car_ims", "devkit/cars_meta.mat", "devkit/cars_train_annos.mat", "cars_train", "cars_test")
WITH_LABELS = "cars_test_annos_withlabels.mat"


def is_cars(folder: Path) -> bool:
    return any((folder / mark).exists() for mark in (*MARKS, WITH_LABELS))


@layout(
    "cars",
    about="196 cars: `car_ims/` or `devkit/`",
    folders=("Cars196", "StanfordCars", "stanford_cars"),
    recognizes="is_cars",
)
def open_cars(folder: Path, *, split: str | None = None) -> DataSet:
    """196 cars; split=train or test is the official one. Labels are 0 to 195 in the order of class_names."""
    asked = splits_asked("cars", split, ("train", "test"))
    if (folder / "cars_annos.mat").is_file() or (folder / "car_ims").is_dir():
        demand("cars", folder, ("cars_annos.mat", "car_ims"))
        names = columns(folder / "cars_annos.mat", ("class_names",))[0]
        samples = [sample for sample in _all_in_one(folder) if sample.row["split"] in asked]
    else:
        # the test labels are a download of their own, kept beside devkit/ or in it
        test = f"devkit/{WITH_LABELS}" if (folder / "devkit" / WITH_LABELS).is_file() else WITH_LABELS
        lists = {"train": "devkit/cars_train_annos.mat", "test": test}
        wanted = [file for part in asked for file in (lists[part], f"cars_{part}")]
        demand("cars", folder, ("devkit/cars_meta.mat", *wanted))
        names = columns(folder / "devkit/cars_meta.mat", ("class_names",))[0]
        samples = [sample for part in asked for sample in _one_split(folder, part, lists[part])]
    demand_pictures("cars", samples)
    wrong = next((sample for sample in samples if not 0 <= sample.label < len(names)), None)
    if wrong is not None:
        raise BadChoice(f"cars in {folder} is inconsistent: {wrong.name} is of class {wrong.label + 1} of {len(names)}")
    return DataSet("cars", tuple(samples), tuple(names))


def _all_in_one(folder: Path) -> Iterator[Sample]:
    fields = columns(folder / "cars_annos.mat", ("relative_im_path", "class", "test", *CORNERS), "annotations")
    rows = ({"split": "train"}, {"split": "test"})
    for file, label, test, *box in zip(*fields, strict=True):
        yield _sample(folder, file, label, box, rows[test in ("1", "1.0")])


def _one_split(folder: Path, part: str, annotations: str) -> Iterator[Sample]:
    row = {"split": part}
    fields = columns(folder / annotations, ("fname", "class", *CORNERS), "annotations")
    for file, label, *box in zip(*fields, strict=True):
        yield _sample(folder, f"cars_{part}/{file}", label, box, row)


def _sample(folder: Path, file: str, label: str, box: list[str], row: dict[str, str]) -> Sample:
    x0, y0, x1, y1 = corners(box, file)
    return Sample(file, class_number(label, file), Below(folder, file), ((x0 - 1, y0 - 1, x1, y1),), row)
