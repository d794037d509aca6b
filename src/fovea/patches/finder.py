"""A patch source that a network carries with it: opened when it is first asked, and no part of the weights."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from PIL import Image

if TYPE_CHECKING:
    from fovea.data.samples import Box
    from fovea.patches.patching import Source


class Finding:
    """`text` is the source's line. Copies of the network share it, as they share the pictures it is asked about."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.opened: dict[torch.device, Source] = {}

    def __call__(self, images: Sequence[Image.Image], device: torch.device) -> "list[Sequence[Box]]":
        from fovea.patches.patching import open_source

        if device not in self.opened:
            self.opened[device] = open_source(self.text, device)
        return [one.boxes for one in self.opened[device](images)]

    def __deepcopy__(self, memo: object) -> "Finding":
        return self
