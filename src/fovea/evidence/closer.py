"""What a classifier says of a few parts of a picture closely, where it was given the whole at less: at full resolution,
or as closely as a quarter of a larger picture fits into its input."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch

from fovea.basics import union, whole_pixels
from fovea.heatmaps import HeatMap, Viewed, apart, closer_regions
from fovea.networks import Network, shares_of
from fovea.pictures import BigPicture, Picture, Shown

Box = tuple[float, float, float, float]
LARGER = 1.5  # times as many pixels along a side as the network took: below it there is nothing to look closer at
GLIMPSES = 4


@dataclass(frozen=True)
class Closely:
    """A window of the picture, and what it is taken for by itself."""

    box: Box  # in the user's pixels
    label: str
    probability: float


@dataclass(frozen=True)
class CloserLook:
    """What a few windows say, and what they say together with the whole: the mean of all probabilities."""

    windows: tuple[Closely, ...]
    label: str
    probability: float
    pixels: int  # of the picture, in the windows
    share: float  # of the picture's pixels
    forwards: int
    resolution: float = 1.0  # at which they were looked at, as a share of the picture's own

    def to_dict(self) -> dict[str, Any]:
        windows = [asdict(window) | {"box": [round(side, 2) for side in window.box]} for window in self.windows]
        about = {"label": self.label, "probability": self.probability, "pixels": self.pixels, "share": self.share}
        return {"windows": windows, **about, "forwards": self.forwards, "resolution": self.resolution}


def look_closer(network: Network, heatmap: HeatMap, whole: torch.Tensor, count: int = GLIMPSES) -> CloserLook | None:
    """Where the map is hottest. `whole` are the probabilities for the whole picture. None where the network took all
    the pixels that there are, or windows of its own."""
    shown, placement = heatmap.shown, heatmap.shown.placement
    if not isinstance(shown.picture, Picture) or placement is None or not count or network.can("streams"):
        return None
    if min(map(abs, placement.scale)) < LARGER:
        return None
    regions = apart(closer_regions(heatmap.maps.smoothed(heatmap.place), placement), most=count)
    with shown.windows() as source:
        viewed = Viewed(network, shown.picture, cast(BigPicture, source))  # windows are read of either alike
        boxes = list(dict.fromkeys(viewed.windows(regions)))[:count]
        with torch.no_grad():
            shares = [shares_of(network, network(batch)).cpu() for batch, _ in viewed.taken(boxes, count)]
    if not shares:
        return None
    each = torch.cat(shares)
    windows = [
        Closely(box, network.label(int(row.argmax())), float(row.max())) for box, row in zip(boxes, each, strict=True)
    ]
    together = torch.cat([each, whole[None]]).mean(0)
    finest = max(viewed.input[1] / (box[2] - box[0]) for box in boxes)
    return _closer(network, windows, together, shown, min(finest, 1.0))


def _closer(
    network: Network, windows: Sequence[Closely], together: torch.Tensor, shown: Shown, resolution: float
) -> CloserLook:
    assert shown.placement is not None
    size = shown.placement.picture
    pixels = round(union([whole_pixels(window.box, size) for window in windows]))
    answer = network.label(int(together.argmax())), float(together.max())
    return CloserLook(tuple(windows), *answer, pixels, pixels / (size[0] * size[1]), len(windows), resolution)
