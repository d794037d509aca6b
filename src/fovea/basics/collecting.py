"""Imports of large packages without the search for garbage, which takes a fifth of their time and finds hardly any."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

MANY = 50_000  # objects, that is an import of some seconds


@contextmanager
def uncollected() -> Iterator[None]:
    """Much that was made meanwhile counts as old: what comes after it is not searched together with all of it."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MANY and not gc.get_freeze_count():
            gc.freeze()
            gc.unfreeze()  # into the oldest generation
        gc.enable()
