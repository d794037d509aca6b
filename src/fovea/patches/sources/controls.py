"""Controls: patches that no network had a say in."""

import hashlib
from collections.abc import Sequence

import numpy as np
from PIL import Image

from fovea.basics import BadChoice
from fovea.patches.sources import Finder, Scored, patch_source


def at_least_one(count: int) -> None:
    if count < 1:
        raise BadChoice(f"count is the most patches of a picture, at least 1; got {count}")


@patch_source("whole", about="the picture itself: a control")
def whole() -> Finder:
    return lambda images: [[((0, 0, *image.size), 1.0)] for image in images]


@patch_source("random", about="squares anywhere in the picture: a control")
def random_squares(count: int = 5, seed: int = 0, side: float = 0.5) -> Finder:
    """Each has `side` of the picture's shorter side. The same picture has the same ones."""
    at_least_one(count)
    if not 0 < side <= 1:
        raise BadChoice(f"side is a share of the picture's shorter side, above 0 and at most 1; got {side}")

    def squares(image: Image.Image) -> Scored:
        content = hashlib.sha256(f"{seed} {image.size} ".encode() + image.tobytes()).digest()
        length = side * min(image.size)
        room = np.array(image.size) - length
        corners = np.random.default_rng(int.from_bytes(content[:16])).random((count, 2)) * room
        return [((x, y, x + length, y + length), 0.0) for x, y in corners.tolist()]

    def finder(images: Sequence[Image.Image]) -> list[Scored]:
        return [squares(image) for image in images]

    return finder
