"""Why a map is blank, in words."""

import torch
from torch import Tensor

from fovea.heatmaps.look import Finding
from fovea.networks import Network
from fovea.networks.cutting import Opened


def diagnose(network: Network, findings: list[Finding], opened: Opened) -> tuple[tuple[str | None, ...], ...]:
    """N of K: None for maps that show something, else the reason why one does not."""
    steps, columns = opened.frames or 1, []
    for finding in findings:
        values = finding.values.detach()  # B,P
        low, high = values.amin(1), values.amax(1)
        blank = ~((high - low) > 1e-6 * torch.maximum(high.abs(), low.abs()))  # also where they are not numbers
        words: list[str | None] = [None] * (len(values) // steps)
        for row in reversed(blank.nonzero().flatten().tolist()):  # the first blank frame has the last word
            features = None if finding.grid else opened.features[row].detach()
            reason = _why(network, finding.raw[row].detach(), features)
            words[row // steps] = f"frame {row % steps}: {reason}" if steps > 1 else reason
        columns.append(words)
    return tuple(zip(*columns, strict=True))


def _why(network: Network, raw: Tensor, features: Tensor | None) -> str:
    """Of one map; `features` are those of its cells, where it is not on a grid of its own."""
    if not bool(raw.isfinite().all()):
        return _not_a_number(network)
    if raw.numel() == 1:
        return "the layer has a single cell, so there is nowhere else to look: cut at an earlier layer"
    if float(raw.amax()) <= 0 and float(raw.amin()) < 0:
        return (
            "every cell's contribution is negative: nothing here speaks for this target (gradcam-abs and l2caf show it)"
        )
    if float(raw.abs().amax()) == 0:
        if features is not None and not bool(features.any()):
            return (
                "the layer's features are all zero for this picture: cut at another layer, or check the input's scale"
            )
        return (
            "the target does not change when the cells change (its gradient is zero): the score is saturated, "
            "as a probability near 1 is, or does not depend on this layer; explain the logit, or cut elsewhere"
        )
    return "the map is the same everywhere: every cell counts alike for this target at this layer"


def _not_a_number(network: Network) -> str:
    for name, value in [*network.module.named_parameters(), *network.module.named_buffers()]:
        if value.is_floating_point() and not bool(value.isfinite().all()):
            return f"the network's weights hold values that are not numbers (first in {name!r}): load good weights"
    return (
        "the network's output for this picture is not a number although its weights are: "
        "check the picture's values, or use float32"
    )
