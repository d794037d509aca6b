"""The least of a picture that keeps an answer by itself, and the least without which it changes.

Both are searched for alike, in batches, within so many passes. First come the hottest patches of a map, fewer and
fewer of them, and the hottest boxes of several sizes; the smallest of these that does is the start. Then parts of it
are left out by turns, and those that matter least are dropped together. What is found does on every background."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fovea.evidence.masked import BACKGROUNDS, Masked, Patches

Box = tuple[float, float, float, float]

LADDER = 0.06, 0.12, 0.2, 0.32, 0.5, 0.7, 0.9  # of all patches, the hottest
SIDES = 0.35, 0.5, 0.65  # of the picture's sides: boxes
PARTS = 8  # that are left out by turns


@dataclass
class LeastSearch:
    """For patches that suffice (`keeps`), or without which the answer changes."""

    masked: Masked
    rank: NDArray[np.float32]  # of every patch: the hottest first
    keeps: bool
    budget: int  # passes

    def __post_init__(self) -> None:
        self.last = self.masked.forwards + self.budget
        self.order: list[int] = np.argsort(-self.rank, kind="stable").tolist()

    def run(self) -> Patches | None:
        """None where nothing less than the whole does, as far as was looked."""
        empty = [frozenset[int]()] * self.keeps  # to which the answer may be the same
        found = self._smallest([*empty, *self._boxes(), *map(self._hottest, self._sizes())])
        if found is not None and found == self._hottest(len(found)):
            found = self._fewer(found)
        return None if found is None else self._pruned(found)

    @property
    def left(self) -> int:
        return self.last - self.masked.forwards

    def _hottest(self, count: int) -> Patches:
        return frozenset(self.order[:count])

    def _sizes(self) -> list[int]:
        return sorted({max(round(share * len(self.order)), 1) for share in LADDER})

    def _boxes(self) -> list[Patches]:
        """Where the map is hottest as a whole, for each size of box: what suffices often hangs together."""
        (rows, columns), found = self.masked.grid, list[Patches]()
        heat = np.pad(self.rank.reshape(rows, columns).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
        for side in SIDES if self.keeps else ():
            high, wide = max(round(side * rows), 1), max(round(side * columns), 1)
            sums = heat[high:, wide:] - heat[:-high, wide:] - heat[high:, :-wide] + heat[:-high, :-wide]
            top, left = divmod(int(sums.argmax()), sums.shape[1])
            places = np.add.outer(np.arange(top, top + high) * columns, np.arange(left, left + wide))
            found.append(frozenset(places.ravel().tolist()))
        return found

    def margins(self, sets: Sequence[Patches], background: str) -> list[float]:
        """Above 0 where a set does on this background."""
        if self.keeps:
            return self.masked.margins(sets, background)
        without = [self.masked.every - patches for patches in sets]
        return [-margin for margin in self.masked.margins(without, background)]

    def _does(self, patches: Patches) -> bool:
        return all(self.margins([patches], background)[0] > 0 for background in BACKGROUNDS)

    def _smallest(self, sets: Sequence[Patches]) -> Patches | None:
        """The smallest that does on every background: all are tried on the first, and those that do on the others."""
        listed = sorted(dict.fromkeys(sets), key=len)
        margins = self.margins(listed, BACKGROUNDS[0]) if len(listed) <= self.left else []
        held = (patches for patches, margin in zip(listed, margins, strict=False) if margin > 0)
        return next((patches for patches in held if self.left > 0 and self._does(patches)), None)

    def _fewer(self, found: Patches) -> Patches:
        """As few of the hottest as do, between the next smaller number that was tried and this one."""
        low, high = max([0, *(size for size in self._sizes() if size < len(found))]), len(found)
        while high - low > 1 and self.left > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._does(self._hottest(middle)) else (middle, high)
        return self._hottest(high)

    def _pruned(self, found: Patches) -> Patches:
        parts = PARTS
        while len(found) > 1 and min(parts, len(found)) + 2 <= self.left:
            ranked = [patch for patch in self.order if patch in found]
            size = -(-len(ranked) // parts)
            pieces = [frozenset(ranked[start : start + size]) for start in range(0, len(ranked), size)]
            smaller = self._without(found, pieces)
            if smaller is None and size == 1:
                break
            found, parts = (found, len(found)) if smaller is None else (smaller, parts)
        return found

    def _without(self, found: Patches, pieces: Sequence[Patches]) -> Patches | None:
        """Without as many of the pieces as can be, as far as was looked; None where not one can be left out.

        What each costs on the background where least is left is taken to add up, to begin with."""
        background = min(BACKGROUNDS, key=lambda each: self.margins([found], each)[0])
        (whole,), each = self.margins([found], background), self.margins([found - part for part in pieces], background)
        order = sorted((part for part in range(len(pieces)) if each[part] > 0), key=lambda part: -each[part])
        lost = np.cumsum([whole - each[part] for part in order])
        count = max(int((lost < whole).sum()), 1)
        best, step = None, 0
        while 0 < count <= len(order) and self.left > 1:
            smaller = found.difference(*(pieces[part] for part in order[:count]))
            does = bool(smaller) and self._does(smaller)
            best = smaller if does else best
            if (step and does != (step > 0)) or (does and count == len(order)):
                break  # the last that does, or the first that does not, was found before
            step = 1 if does else -1
            count += step if does or count == 1 else -max(count // 3, 1)
        return best


def least(masked: Masked, ranks: Sequence[NDArray[np.float32]], keeps: bool, budget: int) -> Patches | None:
    """By the first order of patches; where that finds nothing, by the next one, with the passes that are left."""
    last, found = masked.forwards + budget, None
    for rank in ranks:
        found = LeastSearch(masked, rank, keeps, last - masked.forwards).run() if found is None else found
    return found


@dataclass(frozen=True)
class GroundAnswer:
    """What the network answers on one background."""

    label: str
    probability: float  # of that label
    answer: float  # the probability of the answer to the whole picture


@dataclass(frozen=True)
class Sufficient:
    """Patches that keep the answer by themselves, or without which it changes."""

    patches: Patches
    boxes: tuple[Box, ...]  # of patches that hang together, in the user's pixels
    share: float  # of the pixels that the network was given
    said: Mapping[str, GroundAnswer]  # by background
    alone: Mapping[str, float]  # by background, the share of the least that was seen to do on that one

    def to_dict(self) -> dict[str, Any]:
        boxes = [[round(side, 2) for side in box] for box in self.boxes]
        said = {background: asdict(answer) for background, answer in self.said.items()}
        return {"share": self.share, "boxes": boxes, "backgrounds": said, "on_one_background": dict(self.alone)}
