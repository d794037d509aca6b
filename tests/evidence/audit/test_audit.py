import gc
import json
import os
import signal
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import count
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
import made_twostream
from checks import left_as_found, refused
from commands import Run
from fovea.basics import Database, processors
from fovea.data import DataSet, Sample, open_data
from fovea.evidence.audit import Audited, ClassAudit, Findings
from fovea.evidence.audit.examined import Examination
from fovea.evidence.audit.store import NAME
from fovea.pictures import Prepare
from fovea.results import Result, read
from made_audit import BLUE, GREEN, LABELS, RED, Painted, colors, gray, painted, pixels, planted_folder, planted_set

NETWORK = colors()


@pytest.fixture(scope="module")
def marked() -> Audited:
    return fovea.audit(NETWORK, planted_set())


def of_kind(results: Audited, kind: str) -> list[Any]:
    return [finding for finding in results.findings if finding.kind == kind]


def by_class(results: Audited) -> dict[str, ClassAudit]:
    return {item.label: item for item in results.items[1:]}


def test_a_mark_in_a_corner_is_the_first_finding(marked: Audited) -> None:
    first, *others = marked.findings
    assert (first.kind, first.label) == ("shortcut", "red")
    assert first.words.startswith("red: a patch at the lower right keeps the answer by itself in 100 % of 16 cases; it")
    assert first.figures["moves"] > 0.6
    assert {name.split("/")[0] for name, _ in first.pictures} == {"red"}
    assert {box for _, box in first.pictures} == {(40, 40, 56, 56)}
    assert not [finding for finding in others if finding.kind == "shortcut"]
    head, *classes = marked
    assert isinstance(head, Findings)
    assert head.words.startswith("1 likely shortcut in 3 classes. 1. red: a patch at the lower right keeps")
    assert classes[0].label == "red"
    assert sorted(item.label for item in classes) == ["blue", "green", "red"]


def test_every_class_has_its_patches(marked: Audited) -> None:
    """Its bright cell, which carries the answer, then what lies around it."""
    for label, item in by_class(marked).items():
        assert (item.pictures, item.right) == (16, 1)
        cluster, seen = item.clusters[0]
        assert cluster.share == 1
        assert cluster.carries > 0.85  # a patch may have but a part of the cell
        assert cluster.same_place == (label == "red")
        assert {name.split("/")[0] for name, _ in seen} == {label}
        assert item.words.startswith("16 pictures are taken for it, 100 % of them rightly. ")


def test_without_the_mark_there_is_no_shortcut() -> None:
    results = fovea.audit(NETWORK, planted_set(mark=False))
    assert of_kind(results, "shortcut") == []
    assert results.items[0].words.startswith("0 likely shortcuts in 3 classes.")


def test_a_mark_is_found_between_two_classes() -> None:
    results = fovea.audit(NETWORK, planted_set(classes=2))
    assert [finding.label for finding in of_kind(results, "shortcut")] == ["red"]


def test_a_mark_of_which_the_network_makes_nothing_is_no_finding() -> None:
    """A white cell at the lower right of all red pictures, whose color is elsewhere: it speaks for all colors alike."""
    data = planted_set(mark=False)
    for sample in data.samples[:16]:
        sample.source.values[48:, 48:] = 255
    assert of_kind(fovea.audit(NETWORK, data), "shortcut") == []


def boxed(data: DataSet, place: Callable[[int], tuple[float, ...]]) -> DataSet:
    return replace(data, samples=tuple(replace(s, boxes=(place(i),)) for i, s in enumerate(data.samples)))


def test_boxes_tell_what_is_background() -> None:
    """Boxes to the left, and red always to the right of them: what is in the boxes is not needed."""
    data = boxed(planted_set(), lambda number: (0, 0, 40, 56) if number < 16 else (0, 0, 56, 56))
    results = fovea.audit(NETWORK, data)
    (found,) = of_kind(results, "background")
    assert (found.label, found.figures["share"], found.figures["patches"]) == ("red", 1, 16)
    assert found.words.startswith(
        "red: 100 % of its 16 pictures keep the answer when what is in their boxes is hidden;"
    )
    first = results.findings[0]
    assert (first.kind, first.figures["outside"]) == ("shortcut", 1)
    assert "100 % of them outside the boxes" in first.words
    assert "Without boxes" not in results.items[0].words
    without = fovea.audit(NETWORK, data, boxes=False)
    assert of_kind(without, "background") == []
    assert without.findings[0].figures["outside"] is None
    assert without.items[0].words.endswith("Without boxes it is not known whether an answer rests on the background.")


def test_a_mark_at_random_places_is_found_by_boxes() -> None:
    """Nothing else tells it from an object."""
    data = planted_set(mark=False)
    assert of_kind(fovea.audit(NETWORK, data), "shortcut") == []
    found = of_kind(fovea.audit(NETWORK, boxed(data, lambda number: (60, 60, 61, 61))), "shortcut")
    assert {finding.label for finding in found} == {"red", "green", "blue"}


def test_classes_that_are_hardly_told_apart() -> None:
    """A cell of red and another of green, of which one is a little brighter: 12 of 24 are of the other class."""
    made = []
    for number in range(24):
        one, other = (RED, GREEN) if number % 2 else (GREEN, RED)
        values = pixels((number % 7, 1, one, 1.0), (number % 6, 4, other, 0.9))
        made.append(Sample(f"{number:02}", RED, Painted(values)))
    results = fovea.audit(NETWORK, DataSet("made", tuple(made), LABELS[:3]))
    (pair,) = of_kind(results, "pair")
    assert (pair.label, pair.other) == ("red", "green")
    assert pair.figures == {"pictures_between": 24, "wrong": 12, "close": 24, "told_by": pytest.approx(1 / 49)}
    assert len(pair.drawn) == len(pair.pictures) == 6
    assert all(int(name) % 2 == 0 for name, _ in pair.pictures)  # the wrong ones first
    assert {label: item.right for label, item in by_class(results).items()} == {"red": 1, "green": 0}
    assert all("red and green" in item.words for item in results.items[1:])


def test_flat_folders_have_no_truth(tmp_path: Path) -> None:
    for name, values in (("a", pixels((1, 1, RED, 1))), ("b", pixels((2, 2, GREEN, 1)))):
        Image.fromarray(values).save(tmp_path / f"{name}.png")
    found = by_class(fovea.audit(NETWORK, tmp_path))
    assert {label: (item.pictures, item.right) for label, item in found.items()} == {
        "red": (1, None),
        "green": (1, None),
    }
    assert found["red"].words == "1 picture is taken for it. No finding."


def test_classes_that_the_network_does_not_know(tmp_path: Path) -> None:
    """Some of the names are its own, so that they are not counted through: nobody knows what is right."""
    for label in ("red", "cat"):
        (tmp_path / label).mkdir()
        painted((1, 1, RED, 1)).save(tmp_path / label / "a.png")
    (found,) = by_class(fovea.audit(NETWORK, tmp_path)).values()
    assert (found.label, found.pictures, found.right) == ("red", 2, None)


def test_networks_without_names_for_their_classes() -> None:
    (found,) = by_class(fovea.audit(colors(labels=None), planted_set(count=3).only([BLUE]))).values()
    assert (found.label, found.pictures, found.right) == ("2", 3, 1)


def test_pictures_that_cannot_be_read_are_skipped_and_told(tmp_path: Path) -> None:
    folder = planted_folder(tmp_path / "given", count=2)
    (folder / "red/bad.png").write_text("hello")
    strange = folder / "green" / os.fsdecode(b"caf\xe9.png")
    with open(strange, "wb") as file:
        painted((1, 1, GREEN, 1)).save(file, "png")
    with pytest.warns(UserWarning, match=r"1 picture\(s\) skipped: .*bad\.png") as told:
        results = fovea.audit(NETWORK, folder)
    assert told[0].filename == __file__
    assert [Path(name).name for name, _ in results.skipped] == ["bad.png"]
    assert {label: item.pictures for label, item in by_class(results).items()} == {"red": 2, "green": 3, "blue": 2}


def test_all_bad_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "red").mkdir()
    (tmp_path / "red/bad.png").write_text("hello")
    with pytest.raises(fovea.BadPicture, match=r"no picture of .* could be read: .*bad\.png is not a picture"):
        fovea.audit(NETWORK, tmp_path)


class BrokenBoxes:
    def read(self) -> tuple[()]:
        raise fovea.BadPicture("its boxes are no XML")


def test_boxes_that_cannot_be_read_cost_one_picture() -> None:
    data = boxed(planted_set(count=2), lambda number: (0, 0, 9, 9))
    broken = replace(data.samples[1], boxes=BrokenBoxes())
    data = replace(data, samples=(data.samples[0], broken, *data.samples[2:]))
    with pytest.warns(UserWarning, match="its boxes are no XML"):
        results = fovea.audit(NETWORK, data)
    assert results.skipped == ((broken.name, "its boxes are no XML"),)
    assert fovea.audit(NETWORK, data, boxes=False).skipped == ()


def test_pictures_that_are_alike_or_empty() -> None:
    """No two patches differ, or none has anything on it: nothing to find, and nothing fails."""
    for values in (pixels(), pixels((3, 3, RED, 1))):
        data = DataSet("alike", tuple(Sample(f"{i}", 0, Painted(values)) for i in range(12)), LABELS[:3])
        assert of_kind(fovea.audit(NETWORK, data), "shortcut") == []


REFUSED: dict[str, Callable[[], Any]] = {
    "embedding": lambda: fovea.wrap(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), Prepare((8, 8)), embedding=True),
    "text": lambda: fovea.load("textcnn-mr"),
    "streams": made_twostream.made,
    "glimpses": lambda: fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625}),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_networks_without_a_map_of_their_answer(kind: str, tmp_path: Path) -> None:
    words = "has no map of its whole answer to audit by: name a classifier"
    refused(words, fovea.audit, REFUSED[kind](), planted_set(count=1), folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_networks_with_one_output() -> None:
    one = nn.Sequential(nn.Conv2d(3, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 1))
    for labels in (LABELS[:3], ("",)):  # with classes, and without
        data = replace(planted_set(count=1), labels=labels)
        refused("output of (two or more|at least 2)", fovea.audit, fovea.wrap(one, Prepare((24, 24))), data)


def test_pictures_of_equal_names() -> None:
    data = planted_set(count=1)
    refused("the same name", fovea.audit, NETWORK, replace(data, samples=data.samples * 2))


def test_a_network_is_left_as_it_was() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 6, 3, 2), nn.BatchNorm2d(6), nn.ReLU(), nn.Dropout(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.Linear(6, 3),
    )  # fmt: skip
    network = fovea.wrap(module, Prepare((56, 56), crop=None), labels=LABELS[:3])
    module.train()
    data = boxed(planted_set(count=6), lambda number: (50, 50, 56, 56))
    with left_as_found(module):
        trained = fovea.audit(network, data)
    module.eval()
    assert rows(trained) == rows(fovea.audit(network, data))


def rows(results: Audited) -> list[dict[str, Any]]:
    return [item.to_dict() for item in results]


def test_results_are_what_every_verb_gives(marked: Audited, tmp_path: Path) -> None:
    assert isinstance(marked, Audited)
    assert (len(marked), marked.what) == (4, "audit")
    assert marked.settings["data"] == "planted"
    assert (marked.settings["pictures"], marked.settings["input"]) == (48, "squashed")
    assert repr(marked).startswith("<audit: 4 results: what to look at first")
    for item in marked:
        assert isinstance(item, Result)
        assert min(item.draw().size) > 50
        row = item.to_dict()
        assert json.loads(json.dumps(row, allow_nan=False)) == row
        assert np.asarray(item.boxes).shape[1] == 4
        assert len(repr(item)) < 200
    saved = marked.save(tmp_path / "out")
    assert read(tmp_path / "out").results == saved
    assert [row["name"] for row in saved] == ["what to look at first", *(item.label for item in marked.items[1:])]
    for row, item in zip(saved, marked, strict=True):
        assert item.to_dict().items() <= row.items()
    assert "what to look at first" in (tmp_path / "out/index.html").read_text().replace("<wbr>", "")
    assert "a patch at the lower right" in (tmp_path / "out/index_files/what_to_look_at_first.js").read_text()
    inside = marked.page(tmp_path / "page.html").read_text()
    assert "a patch at the lower right" in inside
    assert inside.count("data:image/jpeg") == sum(len(item.view().panels) for item in marked)


def test_what_comes_out_says_what_came_in(marked: Audited) -> None:
    """The table of findings, and the rows of results.json."""
    heading, *lines = marked.items[0].view().table
    assert heading[:3] == ("finding", "class", "in pictures")
    assert lines[0][:5] == ("shortcut", "red", "100 %", "100 %", f"{100 * marked.findings[0].figures['moves']:.0f} %")
    assert len(lines) == len(marked.findings)
    row = marked.items[1].to_dict()
    assert row["findings"][0]["kind"] == "shortcut"
    (cluster, seen), listed = marked.items[1].clusters[0], row["clusters"][0]
    assert listed["patches"] == len(cluster.patches)
    assert listed["place"] == list(cluster.place)
    assert [shown["name"] for shown in listed["patches_shown"]] == [name for name, _ in seen]


def test_the_same_again_is_the_same(marked: Audited) -> None:
    """Whatever the batch, and the order in which the pictures come."""
    data = planted_set()
    turned = replace(data, samples=data.samples[::-1])
    for other in (fovea.audit(NETWORK, data, batch=5), fovea.audit(NETWORK, turned, batch=48)):
        assert [finding.words for finding in other.findings] == [finding.words for finding in marked.findings]
        assert [item.label for item in other] == [item.label for item in marked]


def test_threads_change_nothing(marked: Audited) -> None:
    torch.set_num_threads(4)  # so many batches are examined at a time
    try:
        assert rows(fovea.audit(NETWORK, planted_set())) == rows(marked)
    finally:
        torch.set_num_threads(1)


def test_a_limit_is_spread_over_the_classes() -> None:
    results = fovea.audit(NETWORK, planted_set(), limit=6)
    assert {label: item.pictures for label, item in by_class(results).items()} == {"red": 2, "green": 2, "blue": 2}


class Alive:
    """How many of those that were noted are still there, and how many there ever were at once."""

    def __init__(self) -> None:
        self.noted, self.most = list[weakref.ref[Any]](), 0

    def note(self, thing: Any) -> None:
        self.noted.append(weakref.ref(thing))
        self.most = max(self.most, self.count())

    def count(self) -> int:
        return sum(one() is not None for one in self.noted)


def test_memory_does_not_grow_with_the_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 200 pictures, no more inputs are alive at a time than of one batch and what is read ahead; nor any after."""
    inputs, images, whole = Alive(), Alive(), Examination.examined

    def examined(self: Examination) -> Any:
        inputs.note(self.tensors)
        return whole(self)

    def picture(self: Painted) -> Image.Image:
        made = Image.fromarray(self.values)
        images.note(made)
        return made

    monkeypatch.setattr(Examination, "examined", examined)
    monkeypatch.setattr(Painted, "read", picture)
    made = [Sample(f"{i:03}", 0, Painted(pixels((i % 7, i // 7 % 7, RED, 1), ground=gray(i)))) for i in range(200)]
    results = fovea.audit(NETWORK, DataSet("many", tuple(made), LABELS[:3]), batch=4)
    assert by_class(results)["red"].pictures == 200
    assert len(inputs.noted) >= 50
    assert len(images.noted) >= 200
    assert inputs.most <= 3
    assert images.most <= 6 * processors() + 16
    gc.collect()
    assert (inputs.count(), images.count()) == (0, 0)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    planted_folder(Path("photos"))
    return Run("audit", monkeypatch, capsys)


WORDS = ("photos", "--net", "made_audit:colors")


def test_the_command_says_it_writes_it_and_goes_on(command: Run) -> None:
    Path("photos/red/bad.png").write_text("hello")
    status, said, told = command(*WORDS, "--out", "out", "--json", "a.json")
    assert status == 0, told
    assert said.startswith(
        "1 likely shortcut in 3 classes. 1. red: a patch at the lower right keeps the answer by itself"
    )
    assert "audit: 4 done, 1 skipped: out/results.json" in said
    assert said.endswith("out/index.html\n")
    assert "49 pictures, 49 to look at" in told
    assert "bad.png" in told
    saved = read("out")
    assert (saved.what, saved.settings["net"]) == ("audit", "made_audit:colors")
    assert [Path(row["name"]).name for row in saved.skipped] == ["bad.png"]
    assert saved.results[0]["words"] == said.splitlines()[0]
    assert {path.name for path in Path("out").iterdir()} == {"index.html", "index_files", "results.json", NAME}
    assert json.loads(Path("a.json").read_text())["what"] == "audit"
    status, again, told = command(*WORDS, "--out", "out")
    assert (status, again) == (0, said)
    assert "49 pictures, 1 to look at" in told  # what could not be read may be there by now
    assert read("out").results == saved.results
    assert [Path(row["name"]).name for row in read("out").skipped] == ["bad.png"]


def test_the_command_takes_boxes_and_flat_folders(command: Run) -> None:
    lines = [f"{path.parent.name}/{path.name},0 0 40 56" for path in sorted(Path("photos/red").iterdir())]
    Path("photos/boxes.csv").write_text("\n".join(["file,boxes", *lines, ""]))
    status, said, _ = command(*WORDS)
    assert (status, "Without boxes" in said, "100 % of them outside the boxes" in said) == (0, False, True)
    assert Path("out/audit/index.html").is_file()
    status, said, told = command(*WORDS, "--no-boxes")
    assert (status, "Without boxes" in said, "boxes;" in said) == (0, True, False)
    assert "48 pictures, 48 to look at" in told
    status, said, told = command("photos/red", *WORDS[1:], "--out", "flat", "--limit", "7")
    assert (status, "7 pictures, 7 to look at" in told) == (0, True), told
    assert [(row["label"], row["right"]) for row in read("flat").results[1:]] == [("red", None)]


def test_the_command_refuses_in_words(command: Run) -> None:
    status, said, told = command(*WORDS, "--out", "photos/red/00.png")
    assert (status, said) == (2, "")
    status, said, told = command("photos", "--net", "textcnn-mr")
    assert (status, said) == (2, ""), told
    assert "has no map of its whole answer to audit by" in told
    Path("out/audit").mkdir(parents=True)
    Path("out/audit", NAME).write_text("hello")
    status, said, told = command(*WORDS)
    assert (status, said) == (2, "")
    assert f"{NAME} is no audit, or its beginning is damaged: name another file, or remove this one" in told
    assert "Traceback" not in told


def killed(rows: int) -> None:
    """An audit that SIGKILL ends while it writes, after so many rows."""
    written, whole = count(), Database.write

    def until(given: Iterable[Any]) -> Iterator[Any]:
        for row in given:
            if next(written) == rows:
                os.kill(os.getpid(), signal.SIGKILL)
            yield row

    Database.write = lambda self, about, given: whole(self, about, until(given))  # type: ignore[method-assign]
    fovea.audit(NETWORK, "photos", folder="out", batch=16)


def test_killed_while_it_writes(command: Run) -> None:
    """By SIGKILL: the batches before are kept, and the end is as if nothing had happened."""
    child = get_context("fork").Process(target=killed, args=(2 * 16 + 7,))
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert Path(f"out/{NAME}-journal").exists()  # of the batch that was cut off
    status, said, told = command(*WORDS, "--out", "out")
    assert status == 0, told
    assert "48 pictures, 16 to look at" in told
    status, whole, told = command(*WORDS, "--out", "whole")
    assert "48 pictures, 48 to look at" in told
    assert said.replace("out/", "whole/") == whole
    assert read("out").results == read("whole").results


def test_a_network_by_name_and_a_data_set_opened(command: Run) -> None:
    opened = fovea.audit(NETWORK, open_data("photos"), limit=9)
    assert rows(opened) == rows(fovea.audit("made_audit:colors", Path("photos"), limit=9))
