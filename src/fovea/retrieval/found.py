"""What a search found: the nearest pictures, and where each is like the query."""

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from fovea.heatmaps.heatmap import HeatMap
from fovea.pictures import Picture

if TYPE_CHECKING:
    from fovea.retrieval.opening import Index


@dataclass(frozen=True)
class Neighbour:
    """A picture of the index; `name` is its path below the indexed folder, `label` the folder that it lies in."""

    name: str
    path: Path
    similarity: float  # cosine, -1 to 1
    label: str | None = None
    itself: bool = False  # the very file that was asked about


@dataclass(frozen=True)
class Maps:
    """`own` is where the network looks at the query. `pairs` holds two maps a neighbour of `told`, in their order:
    what of the query, and what of the neighbour, makes the two alike. `lost` are neighbours without maps, and why: all
    of them, and the query, where the network has no map to look at."""

    own: HeatMap | None
    pairs: HeatMap | None
    told: tuple[Neighbour, ...]
    lost: tuple[tuple[Neighbour, str], ...] = ()


@dataclass(frozen=True, eq=False)
class Found:
    """The neighbours of one picture, the nearest first; `itself` is the picture's own place in the index, if any."""

    name: str
    neighbours: tuple[Neighbour, ...]
    itself: Neighbour | None
    seconds: float  # from the picture to its neighbours
    picture: Picture = field(repr=False)
    index: "Index" = field(repr=False)

    @property
    def label(self) -> str | None:
        return self.itself.label if self.itself else None

    @cached_property
    def maps(self) -> Maps:
        """Made when first asked for, by one pass through the trunk for the query and one for its neighbours."""
        from fovea.retrieval.alike import maps_of

        return maps_of(self)

    def save(self, folder: str | Path) -> Path:
        """index.html, sheet.png and search.json into a folder; the page's path comes back."""
        from fovea.retrieval.page import write

        return write([self], Path(folder))
