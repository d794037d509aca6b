"""What holds for every data set, and how they are found."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fovea
from checks import refused
from fovea.basics import BadChoice
from fovea.data import Below, held_by, holding, layout, open_data, opened
from made_data import Made, save

ENTRIES = layout.entries()
ON_DISK = [name for name, entry in ENTRIES.items() if "recognizes" in entry.traits and holding(entry) == "pictures"]
MADE = {"segments": "segments:file=clip.mp4"}  # what a set that is made cannot do without
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
def test_a_path_is_recognized_by_its_files_and_every_picture_is_read(made: Made, kind: str) -> None:
    data = open_data(made(kind))
    assert len(data) >= 3
    for sample, image in data.read():
        assert not isinstance(image, fovea.BadPicture), image
        assert 0 <= sample.label < len(data.labels)
        assert all(0 <= x0 < x1 <= image.width and 0 <= y0 < y1 <= image.height for x0, y0, x1, y1 in sample.boxes)
    assert data.name in (kind, "some-set")


@pytest.mark.parametrize("name", ON_DISK)
def test_names_below_fovea_data(made: Made, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folders = ENTRIES[name].traits.get("folders", ())
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
    splits = sorted({sample.row["split"] for sample in whole.samples if "split" in sample.row})
    if not splits:
        refused(r"not split|no option 'split'", open_data, root, split="train")
        return
    parts = [open_data(f"{root}:split={split}") for split in splits]
    assert sorted(one.name for part in parts for one in part.samples) == sorted(one.name for one in whole.samples)
    assert all(part.labels == whole.labels for part in parts)
    wrong = splits[0][:-1] + "_" + splits[0][-1]
    refused(rf"no split '{wrong}'; did you mean '{splits[0]}'.* \(it has: {splits[0]}", open_data, root, split=wrong)


@pytest.mark.parametrize(("kind", "file"), NEEDED)
def test_half_a_set_says_what_is_missing_and_where_it_looked(made: Made, kind: str, file: str) -> None:
    root = made(kind)
    (root / file).rename(root.parent / "elsewhere")
    refused(rf"{kind} is incomplete: .*{file.removesuffix('.gz')}.* not in {root}", open_data, root)


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
    refused(f"none of the {len(paths)} pictures", open_data, root)


def test_labels_limit_and_options(made: Made) -> None:
    root = made("cub")
    assert [one.label for one in open_data(f"{root}:labels=1").samples] == [1]
    assert len(open_data(f"{root}:labels=0-1,limit=2")) == 2
    for wrong, said in {
        "splt=test": "no option 'splt'; did you mean 'split'",
        "limit=few": "limit= takes a whole number; got 'few'",
        "limit=0": "limit= is 1 to 1,000,000,000; got 0",
        "labels=a": "labels are written 0-49",
        "labels=7": "no picture of the classes",
        "test": "name:key=value",
        "layout=cup": "no layout 'cup'; did you mean 'cub'",
        "layout=dogs": "dogs is incomplete: .*train_list.mat",
    }.items():
        refused(said, open_data, f"{root}:{wrong}")


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
    refused("did you mean 'cub100'", open_data, "cub10")
    monkeypatch.delenv("FOVEA_DATA")
    refused("FOVEA_DATA, below which data is looked for by name, is not set", open_data, "cub")


def test_an_empty_folder_with_a_known_name_is_half_a_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path))
    (tmp_path / "CUB_200_2011/images/001.X").mkdir(parents=True)
    for place in ("cub", tmp_path / "CUB_200_2011"):
        refused(r"images\.txt, .* not in .*CUB_200_2011 \(there: images\)", open_data, place)
    (tmp_path / "ILSVRC2012").mkdir()
    refused(r"imagenet is incomplete: no folder of pictures .*CLS-LOC/train", open_data, "imagenet")
    (tmp_path / "fmow").mkdir()
    refused("fmow is incomplete: no train/, val/", open_data, "fmow")


def test_ones_own_dogs_are_a_folder_and_made_sets_need_none(
    tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made("folder", "dogs")
    assert open_data("dogs").labels == ("cat", "dog", "emu")
    made("folder", "digits")
    assert open_data("./digits").labels == ("cat", "dog", "emu")
    refused("digits is made, not read from 'dogs'", open_data, "dogs:layout=digits")


def test_two_splits_are_one_too_many(made: Made) -> None:
    root = made("folder")
    assert len(open_data(f"{root}:split=test", "test")) == 2
    refused("split=test after the colon, but 'train' is asked for", open_data, f"{root}:split=test", "train")


@pytest.mark.parametrize("name", ENTRIES)
def test_what_a_set_holds_is_declared(name: str, made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is known before anything is opened, and nothing opens what it does not hold."""
    entry = ENTRIES[name]
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path))
    given = MADE.get(name, name) if "recognizes" not in entry.traits else str(made(name, name))
    holds = holding(entry)
    assert held_by(given) == holds
    assert entry.about
    for other in {"pictures", "texts", "sounds", "clips"} - {holds}:
        refused(f"holds {holds}, not {other}: open it with fovea.data.open_", opened, given, other)


def test_names_and_help_need_neither_torch_nor_the_files() -> None:
    code = "import sys; from fovea.data.layouts import held_by, layout; list(layout); "
    code += "assert held_by('sounds') == 'sounds'; import fovea.data.samples; "
    code += "print([m for m in ('torch', 'fovea.data.cars') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


OWN = """
from pathlib import Path
import numpy as np
from fovea.data import DataSet, Pixels, Sample, layout

def is_pets(folder):
    return (folder / "pets.txt").is_file()

def samples(count, label=0):
    return [Sample(str(i), label, Pixels(np.full((4, 4), i, np.uint8))) for i in range(count)]

@layout("pets-at-home", about="`pets.txt`", folders=("oxford-pets",), recognizes="is_pets")
def open_pets(folder: Path, *, fold: str = "a", share: float = 1):
    return DataSet("pets", samples(int(4 * share)), [fold])

def drawn(*, count: int = 2):
    return DataSet("drawn", tuple(samples(count)), ("dot",))

def plain(folder: Path):
    return DataSet("plain", tuple(samples(1)), ("dot",))

def listed(): return samples(2)
def nothing(): return None
def yielding(): yield from samples(2)
def named(): return DataSet("named", ("cat.jpg",), ("cat",))
def unfit(): return DataSet("unfit", tuple(samples(2, label=3)), ("cat", "dog"))
bare = 3
"""
BROKEN = """
from fovea.data import layout

@layout("half", recognizes="is_half")
def half(folder): ...

@layout("smells", holds="smells")
def smells(): ...
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "stranger.py").write_text(OWN)
    (tmp_path / "careless.py").write_text(BROKEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("FOVEA_DATA", str(tmp_path / "sets"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "sets/Oxford_Pets"
    folder.mkdir(parents=True)
    (folder / "pets.txt").touch()
    before = dict(layout._given)
    yield folder
    layout._given = before
    for name in ("stranger", "careless"):
        sys.modules.pop(name, None)


def test_a_strangers_layout_by_reference_by_name_by_its_files_and_by_force(own: Path) -> None:
    assert len(open_data("stranger:drawn")) == 2
    assert len(open_data("stranger:drawn:count=7,limit=5")) == 5
    assert open_data("stranger:open_pets:fold=b,share=0.5").labels == ("b",)
    assert len(open_data("stranger:pets-at-home:share=0.5")) == 2
    assert open_data("pets_at_home").labels == ("a",)  # declared by now
    assert open_data(own).labels == ("a",)
    assert open_data(f"{own}:layout=stranger:plain").name == "plain"
    refused(r"opens a folder: write FOLDER:layout=stranger:plain", open_data, "stranger:plain")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("stranger:listed", "layout 'stranger:listed' of stranger returned a list: return a fovea.data.DataSet"),
        ("stranger:nothing", "returned nothing: return a fovea.data.DataSet"),
        ("stranger:yielding", "returned a generator: return"),
        ("stranger:named", r"samples are fovea.data.Sample\(name, label, source, boxes\); got 'cat.jpg'"),
        ("stranger:unfit", "0 is of class 3, and labels names 2 classes"),
        ("stranger:bare", r"is a function open\(folder, \*, split=None\) that returns a DataSet; got 3"),
        ("stranger:drawn:count=x", "count= takes a whole number"),
        (
            "stranger:drawn:split=test",
            r"no option 'split'.* \(its options: count, crop, fold_seed, folds, labels, layout, limit, part\)",
        ),
        ("stranger:pest", "stranger has no layout 'pest'"),
        ("strangr:pets", "options of data .* there is no module 'strangr'"),
        ("oxford-pets:layout=careless:half", "recognized by a function 'is_half' of its file, which has none"),
        ("careless:smells", "holds pictures or texts or sounds or clips; got 'smells'"),
        ("oxford-pets:layout=strangr:pets", "there is no module 'strangr' to import"),
    ],
)
def test_a_strangers_mistakes_are_said_in_words(own: Path, given: str, said: str) -> None:
    refused(said, open_data, given)


PIECES = ["digits", "megapixel", ":", "=", ",", "split", "labels", "limit", "layout", "0-5", "/nowhere", "..", "~",
          "\0", "\n", "__main__", "os.path", "é", "\ud800", " ", "+", "train", "x" * 300, "cub", "[", "*", "folder",
          "mnist", "9" * 5000, "~root", ".", "1e9", "%s", "-"]  # fmt: skip


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=7))
@settings(max_examples=400, deadline=None)
def test_any_words_for_data_are_a_set_or_are_refused(pieces: list[str]) -> None:
    with suppress(BadChoice):
        assert len(open_data("".join(pieces))) >= 0


@pytest.mark.parametrize(
    "words",
    ["os:system:command=touch PLACE", "shutil:copy:src=/etc/hostname,dst=PLACE", "sys:exit", "builtins:open",
     "torch.hub:load:repo_or_dir=PLACE", "fovea.basics.files:write_text:path=PLACE,text=x"],
)  # fmt: skip
def test_no_function_is_called_that_is_no_layout(words: str, tmp_path: Path) -> None:
    """As a recipe of somebody else's may name one."""
    refused("is no layout: it is not declared as one", open_data, words.replace("PLACE", str(tmp_path / "new")))
    assert not (tmp_path / "new").exists()


def test_folders_that_lead_back_to_themselves(tmp_path: Path) -> None:
    save(tmp_path / "set/cat/a.png")
    for name in ("one", "two", "three"):
        (tmp_path / "set/cat" / name).symlink_to(tmp_path / "set", target_is_directory=True)
        (tmp_path / "set/cat" / f"{name}-here").symlink_to(tmp_path / "set/cat", target_is_directory=True)
    assert 1 <= len(open_data(tmp_path / "set")) <= 3
