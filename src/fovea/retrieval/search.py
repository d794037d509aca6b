"""A picture with its nearest in an index, as a result: it draws itself, saves itself and has a page of its own."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from PIL import Image

from fovea.networks import Network
from fovea.pictures import MAX_PIXELS, Picture
from fovea.results import Result, Results, Saved, Shows, Skipped, Writer
from fovea.retrieval import page
from fovea.retrieval.alike import Maps, Neighbor, maps_of
from fovea.retrieval.figure import Drawn, drawn, sheet


@dataclass(frozen=True, eq=False, repr=False)
class Search(Shows):
    """The neighbors of one picture, the nearest first; `itself` is the picture's own place in the index, if any."""

    saved_as = ("sheet", "png")

    name: str
    neighbors: tuple[Neighbor, ...]
    itself: Neighbor | None
    seconds: float  # from the picture to its neighbors
    picture: Picture
    network: Network  # whose output is the embedding
    max_pixels: int = MAX_PIXELS  # of a picture that is looked at

    @property
    def label(self) -> str:
        """The folder that the picture lies in, where it is in the index itself and folders tell classes."""
        return (self.itself.label if self.itself else None) or ""

    @property
    def probability(self) -> None:
        """Neighbors have similarities."""
        return None

    @property
    def boxes(self) -> list[list[float]]:
        """Of the parts of the query that make it like each of `maps.neighbors`."""
        return self._boxes[::2]

    @cached_property
    def _boxes(self) -> list[list[float]]:
        return [] if self.maps.pairs is None else self.maps.pairs.boxes[:, 0].tolist()

    @cached_property
    def maps(self) -> Maps:
        """Made when first asked for, by one pass through the trunk for the query and one for its neighbors."""
        return maps_of(self.network, self.picture, self.neighbors, self.max_pixels)

    @cached_property
    def drawn(self) -> Drawn:
        return drawn(self.picture, self.neighbors, self.maps, self.max_pixels)

    def draw(self) -> Image.Image:
        return sheet(self.drawn, Path(self.name).name, self.label or "the query", self.network.name or "the network")

    def to_dict(self) -> dict[str, Any]:
        """Boxes are in the pictures' own pixels, of the parts that make the two alike."""
        parts = {near.name: self._boxes[2 * k : 2 * k + 2] for k, near in enumerate(self.maps.neighbors)}
        reasons = {neighbor.name: reason for neighbor, reason in self.maps.lost}
        return {
            "itself": self.itself.name if self.itself else None,
            "label": self.label or None,
            "seconds": round(self.seconds, 4),
            "neighbors": [
                {
                    "name": neighbor.name,
                    "similarity": round(neighbor.similarity, 6),
                    "label": neighbor.label,
                    "itself": neighbor.itself,
                    "query_box": parts.get(neighbor.name, [None, None])[0],
                    "box": parts.get(neighbor.name, [None, None])[1],
                    "no_maps": reasons.get(neighbor.name),
                }
                for neighbor in self.neighbors
            ],
        }


class SearchWriter(Writer):
    """Its page shows the searches of this run with their maps, and then the sheets of those before."""

    growing = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.searches: list[Search] = []

    def add(self, results: Iterable[Result], skipped: Skipped = ()) -> None:
        for result in results:
            done = len(self.rows)
            super().add([result])
            self.collect()
            self.searches += [result] if len(self.rows) > done and isinstance(result, Search) else []
        super().add((), skipped)

    def page(self, saved: Saved) -> str:
        return page.whole(self.searches, self.settings, self.others)


class Searches(Results[Search]):
    """One Search per picture."""

    writer = SearchWriter

    def html(self) -> str:
        return page.whole(self.items, self.settings)
