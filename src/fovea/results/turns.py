"""Pictures in turn, where some are in files too large to load."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, TypeVar

from fovea.basics import BadPicture
from fovea.pictures import BigPicture, Picture, gather, is_big
from fovea.results.results import Step

T = TypeVar("T")


def gathered(given: Any, max_pixels: int) -> tuple[list[Picture], list[bool]]:
    """What was given as pictures, and which of them are too large to load; nothing where it is none of files."""
    named = [given] if isinstance(given, (str, os.PathLike, Picture)) else given
    if not isinstance(named, (list, tuple)) or not any(isinstance(item, (str, os.PathLike, Picture)) for item in named):
        return [], []
    pictures = [replace(picture, limit=max_pixels) for picture in gather(named)]
    return pictures, [*map(_is_large, pictures)]


def _is_large(picture: Picture) -> bool:
    """Also where it is damaged; not where what reads it in parts is missing, and it can be decoded whole."""
    if not isinstance(picture.source, Path) or not is_big(picture.source, picture.limit):
        return False
    with suppress(BadPicture):
        big = picture.big(picture.limit)
        if big is None:
            return False
        big.close()
    return True


def opened(picture: Picture) -> BigPicture:
    """BadPicture where it cannot be, as one that was changed since."""
    big = picture.big(picture.limit)
    if big is None:
        raise BadPicture(f"{picture.name} changed after it was first read: run again on what it is now", passing=True)
    return big


def in_turn(
    given: Any,
    max_pixels: int,
    closely: Callable[[Picture, BigPicture], Any],
    others: Callable[[Any], Iterable[Step[Any]]],
) -> Iterator[Step[Any]]:
    """In the order given: files too large to load one by one, what lies between them as always."""
    pictures, large = gathered(given, max_pixels)
    if not any(large):
        yield from others(pictures or given)  # as they were when they were looked at
        return
    done, total = 0, len(pictures)
    for big, run in groupby(zip(pictures, large, strict=True), key=lambda pair: pair[1]):
        part = [picture for picture, _ in run]
        if not big:
            yield from (replace(step, done=done + step.done, total=total) for step in others(part))
        for number, picture in enumerate(part if big else (), done + 1):
            try:
                with opened(picture) as source:
                    yield Step([closely(picture, source)], [], number, total)
            except BadPicture as reason:
                yield Step([], [(picture.name, str(reason))], number, total)
        done += len(part)
