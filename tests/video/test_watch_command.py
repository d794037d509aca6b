from pathlib import Path

import av
import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from commands import Run
from conftest import Pooled, seeded
from fovea.cli.explain import apart
from fovea.pictures import Prepare
from fovea.results import Saved, read
from made_clips import make_clip, picture


class Clips(nn.Module):
    takes_frames = True

    def __init__(self) -> None:
        super().__init__()
        self.cnn, self.rnn = nn.Conv2d(3, 6, 3, 4, 1), nn.GRU(6, 4, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(self.cnn(x.flatten(0, 1)).relu().mean((2, 3)).unflatten(0, x.shape[:2]))[0][:, -1]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """'mine' is a small classifier, 'frames' a network over clips."""
    nets = {
        "mine": fovea.wrap(seeded(Pooled), Prepare((24, 24), crop=1.0), labels=["cat", "dog", "crane", "lynx", "ox"]),
        "frames": fovea.wrap(seeded(Clips), Prepare((16, 16))),
    }
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fovea.networks.loading.load", lambda name, *_, **__: nets[name])
    monkeypatch.setattr("fovea.networks.demand_known", lambda name: None)
    monkeypatch.setattr("fovea.networks.labels_of", lambda name: None)
    return Run("explain", monkeypatch, capsys)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two pictures, two clips that can be read, one that cannot, one that is empty."""
    found = tmp_path / "both"
    found.mkdir()
    frames = [Image.fromarray(picture(n)) for n in range(6)]
    frames[0].save(found / "still.png")
    frames[0].save(found / "still.gif")
    frames[0].save(found / "moving.gif", save_all=True, append_images=frames[1:], duration=100)
    make_clip(found / "clip.mp4", 12)
    (found / "broken.mp4").write_text("hello")
    (found / "nothing.mkv").touch()
    (found / "notes.txt").write_text("hello")
    return found


def saved(folder: str = "out/explain") -> Saved:
    return read(folder)


def names(*suffixes: str) -> list[str]:
    return sorted(one.name for one in Path("out/explain").iterdir() if one.name.endswith(suffixes))


def test_one_clip(run: Run, folder: Path) -> None:
    status, said, _ = run(folder / "clip.mp4", "--net", "mine", "--frames", 3)
    assert status == 0
    assert "explain: 1 done, 0 skipped" in said
    assert names("") == ["index.html", "index_files", "results.json"]
    assert sorted(path.name for path in Path("out/explain/index_files").iterdir()) == [
        "clip.jpg",
        "clip.js",
        "clip.mp4",
    ]
    (row,) = saved().results
    assert [one["number"] for one in row["frames"]] == [2, 6, 10]
    with av.open("out/explain/index_files/clip.mp4") as film:
        assert sum(1 for _ in film.decode(video=0)) == 12
        assert film.duration == pytest.approx(1.2e6, abs=1e4)


def test_every_frame(run: Run, folder: Path) -> None:
    assert run(folder / "clip.mp4", "--net", "mine", "--every", 1)[0] == 0
    assert len(saved().results[0]["frames"]) == 12
    assert run(folder / "clip.mp4", "--net", "mine", "--every", 5)[0] == 0
    assert [one["number"] for one in saved("out/explain-2").results[0]["frames"]] == [0, 5, 10]


def test_a_folder_of_both(run: Run, folder: Path) -> None:
    status, said, warned = run(folder, "--net", "mine")
    assert status == 0
    assert "explain: 4 done, 2 skipped" in said
    assert "broken.mp4 is damaged, cut short or no clip" in warned
    assert "nothing.mkv is empty (0 bytes)" in warned
    assert [Path(row["name"]).name for row in saved().results] == [
        "still.gif", "still.png", "clip.mp4", "moving.gif"
    ]  # fmt: skip
    assert [Path(row["name"]).name for row in saved().skipped] == ["broken.mp4", "nothing.mkv"]
    assert len(list(Path("out/explain/index_files").glob("*.mp4"))) == 2


def test_nothing_but_a_damaged_clip(run: Run, folder: Path) -> None:
    status, said, warned = run(folder / "broken.mp4", "--net", "mine")
    assert status == 1
    assert "explain: 0 done, 1 skipped" in said
    assert "broken.mp4" in warned


def test_several_methods_and_targets(run: Run, folder: Path) -> None:
    status, *_ = run(
        *(folder / "clip.mp4", "--net", "mine", "--method", "l2caf,gradcam"),
        *("--target", "cat", "--target", "ox", "--files"),
    )
    assert status == 0
    assert names(".strip.png") == [f"clip.{m}.{t}.strip.png" for m in ("gradcam", "l2caf") for t in ("cat", "ox")]
    assert len(names(".mp4")) == len(names(".npy")) == 4
    assert len(list(Path("out/explain/index_files").glob("*.mp4"))) == 4
    assert "l2caf: cat" in Path("out/explain/index_files/clip.js").read_text()


def test_clips_and_pictures_are_fitted_alike(run: Run, folder: Path) -> None:
    """Of 64 x 48 the crop, the user's own, leaves out 8 columns on either side: no box reaches there."""

    def lefts(*options: str) -> dict[str, int]:
        assert (
            run(
                *(folder / "clip.mp4", folder / "still.png", "--net", "mine", "--method", "gradcam-abs", *options),
                *("--out", "out/explain"),
            )[0]
            == 0
        )
        boxes = {Path(row["name"]).suffix: row["maps"][0]["boxes"] for row in saved().results}
        return {".mp4": boxes[".mp4"][0][0][0], ".png": boxes[".png"][0][0]}

    assert lefts() == lefts("--fit", "crop") == {".mp4": 8, ".png": 8}
    assert lefts("--fit", "squash") == lefts("--fit", "whole") == {".mp4": 0, ".png": 0}


def test_a_network_over_frames(run: Run, folder: Path) -> None:
    status, said, warned = run(folder / "clip.mp4", folder / "still.png", "--net", "frames", "--frames", 5, "--files")
    assert status == 0
    assert "explain: 1 done, 1 skipped" in said
    assert "frames takes clips, not pictures" in warned
    assert np.load("out/explain/clip.l2caf.output.npy").shape == (5, 4, 4)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("clip.mp4", "--frames", 3, "--every", 2), "give one of them"),
        (("still.png", "--frames", 3), "--frames is for clips, and no clip was given"),
        (("still.png", "--every", 3), "--every is for clips"),
        (("clip.mp4", "--frames", 0), "--frames is 1 to 100,000; got 0"),
        (("clip.mp4", "--target", "catt"), "did you mean 'cat'"),
        (("clip.mp4", "--target", "pair"), "targets for all its frames"),
    ],
)
def test_wrong_usage(run: Run, folder: Path, arguments: tuple[object, ...], words: str) -> None:
    name, *options = arguments
    status, _, warned = run(folder / str(name), "--net", "mine", *options)
    assert status == 2
    assert words in warned
    assert not Path("out").exists()


def test_more_frames_than_there_are(run: Run, folder: Path) -> None:
    status, _, warned = run(folder / "clip.mp4", "--net", "mine", "--frames", 99)
    assert status == 0
    assert "note: " in warned
    assert "99 frames were asked for and there are 12: all are used" in warned


def test_what_is_a_clip(folder: Path, tmp_path: Path) -> None:
    pictures, clips = apart([str(folder)])
    assert [Path(one).name for one in pictures] == ["still.gif", "still.png"]
    assert [one.name for one in clips] == ["broken.mp4", "clip.mp4", "moving.gif", "nothing.mkv"]
    assert apart([f"{folder}/*.mp4"]) == ([], [folder / "broken.mp4", folder / "clip.mp4"])
    assert apart([f"{folder}/st*"]) == ([f"{folder}/st*"], [])
    assert apart([str(folder / "missing.mp4")]) == ([str(folder / "missing.mp4")], [])  # told as any missing file is
    torch.save({}, tmp_path / "x.pt")
    assert apart([str(tmp_path / "x.pt")]) == ([str(tmp_path / "x.pt")], [])
