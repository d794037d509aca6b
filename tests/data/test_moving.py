import numpy as np
import pytest

from checks import refused
from fovea.data import MOTIONS, MovedFrame, Shot, Shots, boxes_of, make_moving, open_clips


def moving(text: str = "") -> Shots:
    return open_clips(f"moving:source=digits{text}")


def middles(shot: Shot) -> np.ndarray:
    boxes = np.array(boxes_of(shot.frames))
    return (boxes[:, :2] + boxes[:, 2:]) / 2  # T,2


def test_sixteen_motions_of_two_legs() -> None:
    assert len(MOTIONS) == 16
    assert MOTIONS[:5] == ("right-right", "right-down", "right-left", "right-up", "down-right")


@pytest.mark.parametrize(
    ("motion", "first", "second"),
    [("right-right", (1, 0), (1, 0)), ("down-left", (0, 1), (-1, 0)), ("up-down", (0, -1), (0, 1))],
)
def test_a_digit_moves_as_its_class_says(motion: str, first: tuple[int, int], second: tuple[int, int]) -> None:
    """Along its way by 0.75 to 1.25 steps in a leg, and not at all across it."""
    for shot in moving(f",count=8,step=12,motions={motion}").samples:
        assert MOTIONS[shot.label] == motion
        for leg, gone in zip((first, second), np.diff(middles(shot), axis=0), strict=True):
            along, across = gone @ leg, gone @ leg[::-1]
            assert 0.75 * 12 - 1 <= along <= 1.25 * 12 + 1
            assert across == 0


def test_more_frames_are_more_of_the_same_path() -> None:
    few, many = moving(",count=3").samples[2], moving(",count=3,frames=9").samples[2]
    assert len(many.frames) == 9
    assert (middles(few) == middles(many)[[0, 4, 8]]).all()


def test_the_box_is_tight_around_the_digit() -> None:
    for shot in moving(",count=4").samples:
        for frame in shot.frames:
            pixels = np.asarray(frame.read())[:, :, 0]
            assert pixels.shape == (112, 112)
            rows, columns = (np.flatnonzero((pixels >= 32).any(axis)) for axis in (1, 0))
            assert frame.box == (columns[0], rows[0], columns[-1] + 1, rows[-1] + 1)


def test_a_clip_follows_from_its_settings_alone() -> None:
    few, many = moving(",count=5,seed=1"), moving(",count=32,seed=1")
    assert few.samples == many.samples[:5]
    assert few.samples[3].frames[1].read().tobytes() == many.samples[3].frames[1].read().tobytes()
    one = few.samples[3].frames[1].read().tobytes()
    for other in (moving(",count=5"), moving(",count=5,seed=1,split=test")):
        assert other.samples[3].frames[1].read().tobytes() != one


def test_classes_are_equally_many_and_keep_their_numbers() -> None:
    data = moving(",count=8,motions=right-up+left-left")
    assert data.labels == MOTIONS
    assert [shot.label for shot in data.samples] == [3, 10] * 4
    assert {shot.label for shot in moving(",count=32,motions=0+6+11-13").samples} == {0, 6, 11, 12, 13}


def test_noise_is_another_in_every_frame_and_below_the_digit() -> None:
    (shot,) = moving(",count=1,noise=50").samples
    first, second = (np.asarray(frame.read())[:, :, 0] for frame in shot.frames[:2])
    corner = np.s_[:3, :3] if middles(shot)[0].min() > 40 else np.s_[-3:, -3:]
    assert (first[corner] != second[corner]).any()
    assert first[corner].max() <= 50
    assert first.max() > 200


def test_one_frame_tells_next_to_nothing() -> None:
    """A motion's mean place in the middle frame is off by less than a fifth of the room, over which places spread."""
    data = moving(",count=800")
    labels = np.array([shot.label for shot in data.samples])
    frames = [frame for shot in data.samples for frame in shot.frames[1:2] if isinstance(frame, MovedFrame)]
    places = np.array([frame.motion.corners[1] for frame in frames])
    means = np.stack([places[labels == i].mean(0) for i in range(16)])
    assert np.abs(means - places.mean(0)).max() < 0.2 * 72
    assert places.std() > 0.2 * 72


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("moving:source=digits,frames=2", "frames= is 3 to 1,000; got 2"),
        ("moving:source=digits,count=0", "count= is 1 to 1,000,000; got 0"),
        ("moving:source=digits,noise=300", "noise= is 0 to 255; got 300"),
        ("moving:source=digits,canvas=60", "no room for two steps of 14 on a canvas of 60 x 60"),
        ("moving:source=digits,motions=0-16", "numbered 0 to 15; got 16"),
        ("moving:source=digits,motions=right-upp", "did you mean 'right-up'"),
        ("moving:source=digits,split=val", "no split 'val'"),
        ("moving:sources=digits", "did you mean 'source'"),
        ("moving:source=nowhere", "source=digits takes those that come with scikit-learn"),
        ("movin", "did you mean 'moving'"),
    ],
)
def test_bad_choices_are_refused(given: str, said: str) -> None:
    refused(said, open_clips, given)


def test_in_python_it_is_the_same() -> None:
    assert make_moving(source="digits", count=2) == moving(",count=2")
