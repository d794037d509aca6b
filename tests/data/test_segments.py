from pathlib import Path

import numpy as np
import pytest

import fovea
from checks import raises, refused
from fovea.data import Shot, VideoFrame, make_segments, open_clips
from made_clips import make_clip


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45 frames, 20 a second: 2.25 s, each brighter than the one before."""
    path = tmp_path_factory.mktemp("film") / "film.mp4"
    return make_clip(path, 45, (64, 32), 20, paint=lambda n, _: np.full((32, 64, 3), 5 * n, np.uint8))


def rows(shot: Shot) -> list[int]:
    return [frame.row for frame in shot.frames if isinstance(frame, VideoFrame)]


def test_stretches_are_the_classes(film: Path) -> None:
    """Three of 0.75 s, 15 frames each; training frames are all but every third."""
    data = make_segments(file=str(film), seconds=0.75, frames=2, count=30)
    assert data.name == "film"
    assert data.labels == ("0 s to 0.75 s", "0.75 s to 1.5 s", "1.5 s to 2.25 s")
    assert [shot.label for shot in data.samples] == [0, 1, 2] * 10
    for shot in data.samples:
        own = rows(shot)
        assert all(15 * shot.label <= row < 15 * shot.label + 15 for row in own)
        assert all(row % 3 != 1 for row in own)
        assert own == sorted(own)
        assert own[0] < 15 * shot.label + 8 <= own[1] + 1  # one of each half
    assert len({tuple(rows(shot)) for shot in data.samples}) > 15


def test_test_clips_are_spread_evenly_over_frames_that_were_not_trained_on(film: Path) -> None:
    """Of 15 frames five are kept, 1, 4, 7, 10 and 13: two clips of two."""
    data = open_clips(f"segments:file={film},seconds=0.75,frames=2,split=test")
    assert [(shot.label, rows(shot)) for shot in data.samples[:4]] == [
        (0, [1, 7]), (0, [4, 10]), (1, [16, 22]), (1, [19, 25]),
    ]  # fmt: skip
    assert all(frame.box is None for shot in data.samples for frame in shot.frames)


def test_the_last_stretch_is_left_out_where_it_is_short(film: Path) -> None:
    assert len(make_segments(file=str(film), seconds=1, frames=2, count=4).labels) == 2  # a quarter second is left
    assert len(make_segments(file=str(film), seconds=0.8, frames=1, count=4).labels) == 3  # 16, 16 and 13 frames


def test_frames_are_those_of_the_file_and_small(film: Path) -> None:
    data = make_segments(file=str(film), seconds=0.75, frames=2, count=3, side=16)
    for frame in data.samples[2].frames:
        image = frame.read()
        assert image.size == (32, 16)
        assert np.asarray(image).mean() == pytest.approx(5 * frame.row, abs=4)


def test_the_seed_draws_other_frames(film: Path) -> None:
    drawn = [make_segments(file=str(film), seconds=0.75, frames=2, count=9, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("", "segments are of a video: segments:file=clip.mp4"),
        ("file=FILM,seconds=none", "seconds= takes a number; got 'none'"),
        ("file=FILM,seconds=0", "seconds= is 0.001 to"),
        ("file=FILM,seconds=9", "45 frames in 1 stretch"),
        ("file=FILM,seconds=0.5,frames=3", "18 frames in each for test clips of 3"),
        ("file=FILM,frames=0", "frames= is 1 to 1,000"),
        ("file=FOLDER/flim.mp4", "did you mean 'film.mp4'"),
    ],
)
def test_bad_choices_are_refused(options: str, said: str, film: Path) -> None:
    given = options.replace("FILM", str(film)).replace("FOLDER", str(film.parent))
    refused(said, open_clips, f"segments:{given}")


def test_what_is_no_video_is_refused(tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(b"none")
    raises(fovea.BadPicture, r"film\.mp4", make_segments, file=str(tmp_path / "film.mp4"))
