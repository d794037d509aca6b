"""The boxes of heatmaps: every explaining method is a source, without being declared as one."""

from collections.abc import Iterable, Sequence
from typing import Annotated, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import SHARE, BadChoice, BadNetwork
from fovea.basics import boxes as regions
from fovea.heatmaps import find, look_at
from fovea.networks import Network, groups
from fovea.patches.sources import Finder, Opening, Scored, opening_of
from fovea.pictures import FINE, Placement, enlarged, on_pixels


def boxes_of_map(method: str) -> Opening:
    """The map of an explaining method for the class that the network itself predicts: one box per threshold. In the
    order of the thresholds; a low one is coarse. The score is the share of the map's evidence in the box."""
    explaining = find(method)

    def opening(network: Network, thresholds: Annotated[tuple[float, ...], SHARE] = (regions.THRESHOLD,)) -> Finder:
        for threshold in thresholds:
            if not 0 < threshold < 1:
                raise BadChoice(f"{method}: a threshold is a share of the map's range, from 0 to 1; got {threshold:g}")

        def finder(images: Sequence[Image.Image]) -> list[Scored]:
            found: list[Scored] = []
            for group in groups(network, list(images), len(images)):
                assert group.batch is not None  # pictures that are decoded can be read
                tensors = group.batch.to(network.device, network.dtype)
                (heatmap,) = look_at(network, tensors, group.shown, [explaining], None)[0].values()
                if len(heatmap.grid) != 2 or heatmap.frames:
                    raise BadNetwork(f"boxes are drawn on maps of rows and columns; {heatmap.layer} has {heatmap.grid}")
                cells = (heatmap.smoothed(i) for i in range(len(tensors)))
                pairs = zip(cells, group.shown, strict=True)
                found += [_boxes(each, cast(Placement, shown.placement), thresholds) for each, shown in pairs]
            return found

        return finder

    return opening_of(method, opening)


def _boxes(cells: NDArray[np.float32], placement: Placement, thresholds: Iterable[float]) -> Scored:
    found: list[tuple[Sequence[float], float]] = []
    fine = placement.at_most(FINE)
    values = on_pixels(cells, fine)
    total = float(values.sum(dtype=np.float64))
    for threshold in thresholds:
        box = regions.box_of(values, threshold)
        x0, y0, x1, y1 = box.tolist()
        if x1 > x0:
            share = float(values[y0:y1, x0:x1].sum(dtype=np.float64)) / total
            found.append((enlarged(box, fine, placement).tolist(), share))
    return found
