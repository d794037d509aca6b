"""Why a map is blank, in words."""

import torch
from torch import Tensor

from fovea.cutting import Opened
from fovea.explaining.look import Found
from fovea.network import Network


def diagnose(network: Network, found: list[Found], opened: Opened) -> tuple[tuple[str | None, ...], ...]:
    """N of K: None for a map that shows something, else the reason why it does not."""
    steps = opened.frames or 1
    columns: list[list[str | None]] = []
    for one in found:
        flat = one.values.detach().reshape(-1, steps * one.values.shape[1])  # N,T*P
        low, high = flat.amin(1), flat.amax(1)
        blank = ~((high - low) > 1e-6 * torch.maximum(high.abs(), low.abs()))  # also where they are not numbers
        if not bool(blank.any()):
            columns.append([None] * len(flat))
            continue
        raw = one.raw.detach().reshape(flat.shape)
        columns.append([_why(network, raw[i], opened, steps) if bad else None for i, bad in enumerate(blank.tolist())])
    return tuple(zip(*columns, strict=True))


def _why(network: Network, raw: Tensor, opened: Opened, steps: int) -> str:
    if not bool(raw.isfinite().all()):
        return _not_a_number(network, opened)
    if opened.layout.cells * steps == 1:
        return "the layer has a single cell, so there is nowhere else to look: cut at an earlier layer"
    if float(raw.amax()) <= 0 and float(raw.amin()) < 0:
        return (
            "every cell's contribution is negative: nothing here speaks for this target (gradcam-abs and l2caf show it)"
        )
    if float(raw.abs().amax()) == 0:
        if not bool(opened.features.detach().any()):
            return (
                "the layer's features are all zero for this picture: cut at another layer, or check the input's scale"
            )
        return (
            "the target does not change when the cells change (its gradient is zero): the score is saturated, "
            "as a probability near 1 is, or does not depend on this layer; explain the logit, or cut elsewhere"
        )
    return "the map is the same everywhere: every cell counts alike for this target at this layer"


def _not_a_number(network: Network, opened: Opened) -> str:
    for name, value in [*network.module.named_parameters(), *network.module.named_buffers()]:
        if value.is_floating_point() and not bool(value.isfinite().all()):
            return f"the network's weights hold values that are not numbers (first in {name!r}): load good weights"
    if not bool(opened.features.detach().isfinite().all()):
        return "the features are not numbers although the weights are: check the input's values, or use float32"
    return "the output is not a number for this picture: check the head, or use float32"
