"""How patches are chosen, as whoever localizes asks for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fovea.basics import demand_bounds
from fovea.heatmaps import find
from fovea.patches.lip import Settings, for_test
from fovea.patches.scales import Choice


@dataclass(frozen=True)
class LocalizeOptions:
    """How patches are chosen; None is as the paper tests. See `localize`."""

    count: int | None = None
    overlap: float | None = None
    share: float | None = None
    branch: int | None = None
    target: str | int | None = None
    method: str | None = None
    side: int | None = None

    def __post_init__(self) -> None:
        demand_bounds(vars(self))
        self.settings(1, (1, 1))  # which refuses what is out of range
        if self.method is not None:
            find(self.method)

    def settings(self, side: int, size: Sequence[int]) -> Settings:
        """LIP's, for patches of this side in an input of this size."""
        given: dict[str, Any] = {"count": self.count, "overlap": self.overlap, "share": self.share}
        return replace(for_test(side, size), **{key: value for key, value in given.items() if value is not None})


def choice(count: int | None, overlap: float | None, share: float | None) -> Choice:
    """LIP's settings as asked for, and as in the paper where nothing was."""
    return LocalizeOptions(count, overlap, share).settings
