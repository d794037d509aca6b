"""Controls: patches that no network had a say in."""

import hashlib
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from PIL import Image

from fovea.basics import SEED, Bound, bounded
from fovea.patches.sources import Finder, PatchCount, Scored, patch_source

Side = Annotated[float, Bound(0.001, 1, real=True)]


@patch_source("whole", about="the picture itself: a control")
def whole() -> Finder:
    return lambda images: [[((0, 0, *image.size), 1.0)] for image in images]


@patch_source("random", about="squares anywhere in the picture: a control")
@bounded
def random_squares(count: PatchCount = 5, seed: Annotated[int, SEED] = 0, side: Side = 0.5) -> Finder:
    """Each has `side` of the picture's shorter side. The same picture has the same ones."""

    def squares(image: Image.Image) -> Scored:
        content = hashlib.sha256(f"{seed} {image.size} ".encode() + image.tobytes()).digest()
        length = side * min(image.size)
        room = np.array(image.size) - length
        corners = np.random.default_rng(int.from_bytes(content[:16])).random((count, 2)) * room
        return [((x, y, x + length, y + length), 0.0) for x, y in corners.tolist()]

    def finder(images: Sequence[Image.Image]) -> list[Scored]:
        return [squares(image) for image in images]

    return finder
