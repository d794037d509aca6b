"""How a picture was looked at that is too large to load."""

from dataclasses import asdict, dataclass
from typing import Any

from fovea.pictures.big.picture import BigPicture, Counts

Box = tuple[float, float, float, float]  # x0 y0 x1 y1, half open, in full-resolution pixels


@dataclass(frozen=True)
class BigFacts:
    """Where its pixels lie, what was read of it, and how closely: `regions` at `resolution` (1: every pixel).
    `stitched`: the map is that of the whole, though it was read in tiles."""

    size: tuple[int, int]
    crs: str | None  # the coordinate system of x and y
    transform: tuple[float, ...] | None  # a b c d e f: x = a column + b row + c, y = d column + e row + f
    counts: Counts
    resolution: float
    regions: tuple[Box, ...] = ()
    stitched: bool = False

    @staticmethod
    def of(big: BigPicture, resolution: float, regions: tuple[Box, ...] = (), stitched: bool = False) -> "BigFacts":
        return BigFacts(big.size, big.crs, big.transform, big.counts, resolution, regions, stitched)

    def reading(self) -> str:
        """In words: what was read."""
        share = self.counts.pixels / (self.size[0] * self.size[1])
        size = "" if self.counts.bytes is None else f", {self.counts.bytes / 1e6:.3g} MB"
        return f"{self.counts.tiles:,} tiles{size} read: {100 * share:.3g} % of its pixels"

    def to_dict(self) -> dict[str, Any]:
        return {
            "read": asdict(self.counts),
            "resolution": self.resolution,
            "regions": [[round(side, 2) for side in box] for box in self.regions],
            "crs": self.crs,
            "transform": None if self.transform is None else list(self.transform),
            "map": "of the whole" if self.stitched else "put together from windows",
        }
