import math

import numpy as np
import pytest
from numpy.typing import NDArray

from fovea.evidence.audit.clusters import AT_MOST, Cluster, clusters_of
from fovea.evidence.audit.table import FAR, PatchTable
from made_audit import cluster, table

EACH, WIDTH = 4, 64  # patches of a picture, of which the first is the planted one
CORNER = np.array([0.88, 0.12])


def unlike(*shape: int, seed: int = 0) -> NDArray[np.float64]:
    """Directions of which no two are alike: the cosine of two is 0 ± 0.125."""
    drawn = np.random.default_rng(seed).normal(size=(*shape, WIDTH))
    return drawn / np.linalg.norm(drawn, axis=-1, keepdims=True)


def anywhere(*shape: int, seed: int = 1) -> NDArray[np.float64]:
    return np.random.default_rng(seed).uniform(0.05, 0.95, (*shape, 2))


class Made:
    """Ten classes of 20 pictures, patches of which no two are alike anywhere; then, in class 0, every picture has one
    like the others' in a corner."""

    def __init__(self, classes: int = 10, count: int = 20, marked: int | None = None) -> None:
        self.answers = np.repeat(np.arange(classes), count)
        self.marked = np.arange(count if marked is None else marked)  # pictures
        self.vectors = unlike(classes * count, EACH)
        self.centers = anywhere(classes * count, EACH)
        self.carries = np.zeros((classes * count, EACH), bool)
        self.inside = np.full((classes * count, EACH), np.nan)
        self.mark = unlike(1, seed=9)[0]
        self.vectors[self.marked, 0] = self.mark + 0.2 * unlike(len(self.marked), seed=2)
        self.vectors /= np.linalg.norm(self.vectors, axis=-1, keepdims=True)
        self.centers[self.marked, 0] = CORNER + 0.02 * (anywhere(len(self.marked), seed=3) - 0.5)

    @property
    def table(self) -> PatchTable:
        return table(self.answers.tolist(), self.vectors, self.centers, self.carries, self.inside)

    def found(self, label: int = 0) -> Cluster:
        (only,) = clusters_of(self.table, label)
        return only


def test_a_planted_cluster_is_found_with_its_figures() -> None:
    made = Made()
    made.carries[:15, 0] = made.carries[:15, 2] = True  # others of its pictures' patches are no matter
    made.vectors[[20, 47, 48], 1] = made.mark  # in 3 of the 180 other pictures; twice in one of them
    made.vectors[20, 3] = made.mark
    found = made.found()
    assert sorted(found.patches) == [EACH * picture for picture in range(20)]
    assert (found.label, found.pictures, found.share, found.carries) == (0, 20, 1, 0.75)
    assert found.place == pytest.approx(CORNER, abs=0.01)
    assert found.there == 1
    others = made.centers[20:]  # 180 pictures, each with its patches
    near = sum(any(abs(x - found.place[0]) < FAR and abs(y - found.place[1]) < FAR for x, y in own) for own in others)
    assert 0 < near < 0.25 * len(others)
    assert found.by_chance == pytest.approx(near / len(others))
    assert found.surprise == pytest.approx(20 * math.log10(found.by_chance))
    assert found.elsewhere == pytest.approx(3 / 180)
    assert found.outside is None
    assert found.same_place
    assert not found.off_object


def test_the_nearest_to_the_middle_come_first() -> None:
    found, made = Made().found(), Made()
    near = made.vectors.reshape(-1, WIDTH)[found.patches] @ made.mark
    assert near[0] > near[-1]
    middle = made.vectors[:20, 0].mean(0)
    falling = made.vectors.reshape(-1, WIDTH)[found.patches] @ middle
    assert (np.diff(falling) < 1e-3).all()  # vectors are kept in half precision


def test_no_cluster_where_no_two_are_alike() -> None:
    assert [clusters_of(Made().table, label) for label in range(1, 10)] == [[]] * 9


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_a_place_is_the_clusters_own_however_few_classes_there_are(classes: int) -> None:
    """Of two classes with four patches a picture, an eighth of all patches is the mark itself."""
    assert Made(classes).found().same_place


def test_alike_at_random_places_is_no_place() -> None:
    made = Made()
    made.centers[:20, 0] = anywhere(20, seed=5)
    found = made.found()
    assert found.there < 0.3
    assert not found.same_place


def test_most_of_a_cluster_at_one_place() -> None:
    made = Made()
    made.centers[:6, 0] = (0.2, 0.8)
    found = made.found()
    assert (found.there, found.place) == (0.7, pytest.approx(CORNER, abs=0.01))
    assert found.same_place
    made.centers[6, 0] = (0.2, 0.8)
    assert (made.found().there, made.found().same_place) == (0.65, False)


def test_in_the_middle_where_all_classes_are_is_no_place() -> None:
    """Photographs have their objects there: of every picture, whatever it is of, one patch in four."""
    made = Made()
    made.centers[:, 0] = (0.5, 0.5)
    found = made.found()
    assert (found.there, found.place) == (1, (0.5, 0.5))
    assert found.by_chance > 0.2
    assert not found.same_place


@pytest.mark.parametrize(("off", "share", "suspect"), [(16, 0.8, True), (14, 0.7, True), (13, 0.65, False)])
def test_outside_the_boxes(off: int, share: float, suspect: bool) -> None:
    made = Made()
    made.inside[:20] = 0.9
    made.inside[:off, 0] = 0.09  # less than a tenth in them
    found = made.found()
    assert found.outside == pytest.approx(share)
    assert found.off_object == suspect


def test_pictures_without_boxes_count_neither_way() -> None:
    made = Made()
    made.inside[:5, 0], made.inside[5, 0] = 0.0, 1.0
    assert made.found().outside == pytest.approx(5 / 6)


def test_more_patches_than_are_joined_pair_by_pair() -> None:
    """1,600 patches: the same cluster as of the first 500, and what is like nothing else is none."""
    made = Made(classes=2, count=400)
    assert len(made.table.of_class(0)) > AT_MOST
    found = made.found()
    assert sorted(found.patches) == [EACH * picture for picture in range(400)]
    assert (found.share, found.there) == (1, 1)
    few = Made(classes=2, count=125).found()
    assert (few.share, few.there) == (found.share, found.there)


def test_too_few_for_a_cluster() -> None:
    assert Made(marked=5).found().pictures == 5
    assert clusters_of(Made(marked=4).table, 0) == []
    made = Made(marked=4)
    made.vectors[:4, 1] = made.vectors[:4, 0]  # eight patches, of four pictures
    assert clusters_of(made.table, 0) == []
    assert Made(classes=2, count=200, marked=10).found().share == 0.05
    assert clusters_of(Made(classes=2, count=200, marked=9).table, 0) == []


def test_classes_with_few_patches_or_none() -> None:
    alone = table([0, 1, 1, 1, 1, 1], unlike(6, 1))
    assert [clusters_of(alone, label) for label in range(3)] == [[], [], []]


def test_patches_that_have_nothing_of_their_own() -> None:
    """As those of black pictures: no direction is theirs, and they are like nothing."""
    made = Made()
    made.vectors[40:60] = 0
    made.vectors[:20, 1:3] = 0
    assert clusters_of(made.table, 2) == []
    assert sorted(made.found().patches) == [EACH * picture for picture in range(20)]
    assert clusters_of(table([0] * 8, np.zeros((8, EACH, WIDTH))), 0) == []


def test_those_that_carry_the_answer_in_most_pictures_come_first() -> None:
    made = Made()
    made.vectors[:20, 1] = unlike(1, seed=7)[0]
    made.vectors[:12, 2] = unlike(1, seed=8)[0]
    made.carries[:12, 2] = True
    made.carries[:4, 1] = True
    found = clusters_of(made.table, 0)
    assert [(one.share, one.carries) for one in found] == [(0.6, 1), (1, 0.2), (1, 0)]


def test_one_class_alone_has_nothing_elsewhere() -> None:
    found = Made(classes=1).found()
    assert (found.elsewhere, found.share) == (0, 1)


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({}, True),
        ({"there": 0.7, "by_chance": 0.25, "surprise": -4.0}, True),
        ({"there": 0.69}, False),
        ({"by_chance": 0.26}, False),
        ({"surprise": -3.9}, False),  # of few patches
    ],
)
def test_a_place_of_its_own_by_hand(changed: dict[str, float], same: bool) -> None:
    assert cluster(**changed).same_place == same
