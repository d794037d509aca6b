import gc
import weakref
from collections.abc import Iterator

import pytest

from fovea.basics import uncollected
from fovea.basics.collecting import MANY


class Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    gc.collect()
    yield
    gc.enable()


def test_nothing_is_searched_inside_and_everything_after() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()


def test_what_the_caller_has_switched_off_stays_off() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()


@pytest.mark.parametrize(("count", "generation"), [(MANY + 100, 2), (100, 0)])
def test_much_counts_as_old_and_is_collected_all_the_same(count: int, generation: int) -> None:
    with uncollected():
        made = [Node() for _ in range(count)]
        gone = weakref.ref(Node())
    gc.disable()
    assert any(thing is made[0] for thing in gc.get_objects(generation=generation))
    assert gone() is not None  # garbage, though nobody has searched for it yet
    gc.collect()
    assert gone() is None


def test_what_the_caller_has_frozen_stays_frozen() -> None:
    gc.freeze()
    try:
        before = gc.get_freeze_count()
        with uncollected():
            made = [[Node()] for _ in range(MANY + 100)]
        assert made
        assert gc.get_freeze_count() == before
    finally:
        gc.unfreeze()


def test_an_error_goes_through() -> None:
    with pytest.raises(ValueError, match="inside"), uncollected():
        raise ValueError("inside")
    assert gc.isenabled()
