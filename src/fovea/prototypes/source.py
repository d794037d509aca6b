"""Where the most active prototypes of a ProtoPNet are seen, as patches."""

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fovea.basics import BadChoice, Bound, bounded
from fovea.basics import boxes as regions
from fovea.networks import Network, as_found, groups
from fovea.patches import Finder, PatchCount, Scored, patch_source
from fovea.pictures import Placement, box_on_pixels

Maps = NDArray[np.float32]
ALIKE = 0.7  # a prototype's box is left out where its IoU with an earlier one is above this


@patch_source("prototypes", about="where a ProtoPNet's most active prototypes are seen; scores are similarities")
@bounded
def prototypes(
    network: Network,
    count: PatchCount = 5,
    percentile: Annotated[float, Bound(0.001, 99.999, real=True)] = 95.0,
    among: PatchCount = 100,
) -> Finder:
    """Each is a box around its map's top percentiles; one much like an earlier box is left out. Only so many prototypes
    are looked `among`."""
    if among < count:
        raise BadChoice(f"among is how many prototypes are looked at, at least count={count}; got {among}")
    if not network.can("prototypes"):
        why = f"{network.name} has none (a source for any classifier: l2caf:{network.name})"
        raise BadChoice(f"prototypes needs a network with prototypes, a ProtoPNet; {why}")

    def finder(images: Sequence[Image.Image]) -> list[Scored]:
        found: list[Scored] = []
        for group in groups(network, list(images), len(images)):
            assert group.batch is not None
            with as_found(network), torch.no_grad():
                out: Any = network.answer(group.batch.to(network.device, network.dtype))
            similarity, order = out.similarity.float().sort(dim=1, descending=True, stable=True)  # N,P  N,P
            order = order[:, :among]
            every = torch.arange(len(order), device=order.device)[:, None]
            maps = out.maps[every, order].float().cpu().numpy()  # N,among,h,w
            for values, scores, shown in zip(maps, similarity.tolist(), group.shown, strict=True):
                assert shown.placement is not None
                found.append(_boxes(values, scores, shown.placement, count, percentile))
        return found

    return finder


def _boxes(maps: Maps, similarity: Sequence[float], place: Placement, count: int, percentile: float) -> Scored:
    found: list[tuple[Sequence[float], float]] = []
    for values, score in zip(maps, similarity, strict=False):
        box = box_on_pixels(values, place, lambda pixels: regions.percentile_box(pixels, percentile)).tolist()
        if box[2] > box[0] and regions.best_iou(box, [earlier for earlier, _ in found]) <= ALIKE:
            found.append((box, score))
            if len(found) == count:
                break
    return found
