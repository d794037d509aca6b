"""Changed files through every reader: each is refused in one line, or read for what it is, in little memory and time.
Disks that fail at any call: what was there stays, nothing is there by halves, and the next run does the rest.

`pytest -m slow tests/hostile -s` is the long form, which prints the count by reader.
"""

from random import Random

import pytest
from faults import FAULTS, OPERATIONS
from fuzz import asked, fuzzed, told
from mutators import BYTES, mutated
from worst import WORST

EACH, MANY = 2, 60  # files of every reader


def check(cases: list[str]) -> None:
    rows = fuzzed(cases)
    print(told(rows))
    wrong = [row for row in rows if row["verdict"]]
    assert not wrong, told(wrong)


def worst(slow: bool) -> list[str]:
    return [f"{worst.reader}:{name}" for name, worst in WORST.items() if worst.slow is slow]


def test_a_few_of_everything() -> None:
    """In one process, since what takes longest is to start it."""
    faults = [f"fault {name}:{kind} {calls}" for name in OPERATIONS for kind, calls in (("mixed", 3), ("full", 1))]
    check([*asked(EACH), *worst(slow=False), *faults])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_changed_files() -> None:
    check(asked(MANY, start=EACH))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", OPERATIONS)
def test_a_fault_at_every_call(name: str) -> None:
    check([f"fault {name}:{kind} 999" for kind in FAULTS])


@pytest.mark.slow
def test_the_worst_that_take_a_while() -> None:
    check(worst(slow=True))


@pytest.mark.parametrize("how", BYTES)
def test_a_change_follows_from_its_seed_and_changes_something(how: str) -> None:
    data = bytes(range(256)) * 8
    made = {BYTES[how](data, Random(seed)) for seed in range(9)}
    assert made == {BYTES[how](data, Random(seed)) for seed in range(9)}
    assert made != {data}
    assert mutated(data, "a.jpg", Random(3)) == mutated(data, "a.jpg", Random(3))
