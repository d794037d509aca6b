"""Stanford Dogs as published: Images/, Annotation/ (XML without extension), train_list.mat and test_list.mat.

The lists stand beside the folders or in lists/. Boxes: see xmlboxes.py."""

from pathlib import Path

from fovea.data.layouts import layout
from fovea.data.matlab import columns
from fovea.data.options import splits_asked
from fovea.data.places import class_number, demand, demand_pictures
from fovea.data.samples import Below, DataSet, Sample
from fovea.data.xmlboxes import XmlBoxes

LISTS = ("train_list.mat", "test_list.mat")


def is_dogs(folder: Path) -> bool:
    return any((folder / where / file).is_file() for file in LISTS for where in ("", "lists"))


@layout(
    "dogs", about="120 breeds: `Images/`, two lists", folders=("StanfordDogs", "stanford_dogs"), recognizes="is_dogs"
)
def open_dogs(folder: Path, *, split: str | None = None) -> DataSet:
    """120 breeds; split=train or test is the official one. Labels are 0 to 119 in the lists' order."""
    asked = splits_asked("dogs", split, ("train", "test"))
    inside = "lists/" if (folder / "lists").is_dir() else ""
    demand("dogs", folder, ("Images", "Annotation", *(inside + file for file in LISTS)))
    samples, breeds = [], {}
    for part in ("train", "test"):
        row = {"split": part}
        files, marked, labels = columns(folder / f"{inside}{part}_list.mat", ("file_list", "annotation_list", "labels"))
        for file, annotation, label in zip(files, marked, labels, strict=True):
            number = class_number(label, file)
            breeds[number] = file.partition("/")[0].partition("-")[2] or file.partition("/")[0]
            if part in asked:
                boxes = XmlBoxes(folder, f"Annotation/{annotation}")
                samples.append(Sample(f"Images/{file}", number, Below(folder, f"Images/{file}"), boxes, row))
    demand_pictures("dogs", samples)
    names = tuple(breeds.get(i, str(i)) for i in range(max(breeds, default=-1) + 1))
    return DataSet("dogs", tuple(samples), names)
