"""How patches are chosen, as whoever localizes asks for it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from torch import Tensor

from fovea.basics import BadChoice, demand_bounds, nearest
from fovea.heatmaps import find
from fovea.networks import Network
from fovea.patches.crops import look_by_crops
from fovea.patches.lip import Settings, for_test
from fovea.patches.scales import Choice, Look, look
from fovea.pictures import Shown

Evidence = Literal["map", "crops", "few-crops"]
EVIDENCE: tuple[str, ...] = get_args(Evidence)


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
    evidence: str | None = None

    def __post_init__(self) -> None:
        demand_bounds(vars(self))
        if self.evidence is not None and self.evidence not in EVIDENCE:
            known = f"{' or '.join(EVIDENCE)}; got {self.evidence!r}{nearest(self.evidence, EVIDENCE)}"
            raise BadChoice(f"evidence is {known}")
        if self.by_crops and self.method is not None:
            raise BadChoice("method names a map, and evidence is of crops: leave one of them out")
        self.settings(1, (1, 1))  # which refuses what is out of range
        if self.method is not None:
            find(self.method)

    def demand(self, network: Network) -> None:
        """Refuses what is for other networks."""
        asked = "evidence" if self.by_crops else "method" if self.method is not None else None
        if asked is not None and network.can("branches"):
            raise BadChoice(
                f"{asked} is for networks without branches; {network.name or 'this one'} has its own evidence"
            )

    @property
    def by_crops(self) -> bool:
        return self.evidence in EVIDENCE[1:]

    def look(
        self, network: Network, batch: Tensor, label: Tensor | None, branch: int | None, shown: Sequence[Shown]
    ) -> Look:
        """A batch as the network sees it; `branch` localizes, if it is not for the network to choose."""
        if self.by_crops:
            side = branch if self.side is None else self.side
            return look_by_crops(network, batch, label, side, self.evidence == "few-crops")
        return look(network, batch, label, branch, self.method or "l2caf", self.side, shown)

    def settings(self, side: int, size: Sequence[int]) -> Settings:
        """LIP's, for patches of this side in an input of this size."""
        given: dict[str, Any] = {"count": self.count, "overlap": self.overlap, "share": self.share}
        return replace(for_test(side, size), **{key: value for key, value in given.items() if value is not None})


def choice(count: int | None, overlap: float | None, share: float | None) -> Choice:
    """LIP's settings as asked for, and as in the paper where nothing was."""
    return LocalizeOptions(count, overlap, share).settings
