"""Sanity checks (Adebayo et al. 2018; L2-CAF paper 4.4, Figs. 10 and S6): a map must change when the weights do."""

import copy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from PIL import Image
from torch import nn

from fovea.basics import BadChoice, BadNetwork, BadPicture, Progress, quiet
from fovea.heatmaps.explain import explain
from fovea.heatmaps.heatmap import HeatMaps
from fovea.heatmaps.methods import DEFAULT, MethodLike, find
from fovea.networks import Inputs, Network, NetworkLike, as_network, classes, groups
from fovea.pictures import Given, Picture
from fovea.results import drawing, spaced, write_picture

COPIES = (("logits", 0), ("logits", 1), ("all layers", 0), ("all layers", 1))  # the columns of Fig. 10
SIDE = 400  # pixels of a map's longer side


@dataclass(frozen=True)
class Sanity:
    """Maps of the network and of copies with random weights, and how alike they are."""

    true: HeatMaps
    randomized: tuple[tuple[str, int, HeatMaps], ...]  # what was randomized, seed, maps

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row per picture and copy: Spearman's rank correlation and SSIM against the true map (1: did not
        change)."""
        return [
            {
                "picture": heatmap.name,
                "method": heatmap.method,
                "randomised": what,
                "seed": seed,
                "rank_correlation": rank_correlation(heatmap.map(), other.map()),
                "ssim": ssim(heatmap.map(), other.map()),
            }
            for what, seed, maps in self.randomized
            for heatmap, other in zip(self.true, maps, strict=True)
        ]

    def mean(self, what: str, measure: str = "rank_correlation") -> float:
        return float(np.nanmean([row[measure] for row in self.rows if row["randomised"] == what]))

    @property
    def passed(self) -> bool:
        """The maps depend on the weights: with all layers random, they no longer rank the cells as before."""
        return self.mean("all layers") < 0.5

    def __str__(self) -> str:
        parts = ", ".join(
            f"{what} random: rank correlation {self.mean(what):.2f}, SSIM {self.mean(what, 'ssim'):.2f}"
            for what in dict.fromkeys(what for what, *_ in self.randomized)
        )
        return f"{self.true.method}: {parts} ({'depends' if self.passed else 'does NOT depend'} on the weights)"

    def figure(self) -> Image.Image:
        """The picture of Fig. 10: one row per picture, the true map first, then each randomized copy's."""
        rows = []
        for i, heatmap in enumerate(self.true):
            cells = [drawing.titled(heatmap.over(box=False, size=SIDE), "as trained", spaced(heatmap.title()))]
            for what, seed, maps in self.randomized:
                drawn = maps[i].over(box=False, size=SIDE)
                alike = rank_correlation(heatmap.map(), maps[i].map())
                cells.append(drawing.titled(drawn, f"{what} random {seed + 1}", f"rank correlation {alike:.2f}"))
            rows.append(cells)
        return drawing.grid(rows)

    def save(self, path: str | Path) -> None:
        write_picture(Path(path), self.figure())


def sanity(
    net: NetworkLike,
    pictures: Inputs,
    method: MethodLike = DEFAULT,
    progress: Progress = quiet,
    *,
    device: str | torch.device | None = None,
    fit: str | None = None,
) -> Sanity:
    """Randomize the logits layer, then all layers, of copies of the network (never the network itself), and compare.

    The class explained is the one that the network as trained puts first, in every copy."""
    network, method = as_network(net, device).fitted(fit), find(method)
    if isinstance(pictures, Iterator):
        pictures = list(pictures)
    true, total = explain(network, pictures, method=method), len(COPIES) + 1
    if large := [shown.name for shown in true.shown if shown.big is not None]:
        why = "is read in the windows that its map leads to, which are others for every copy"
        raise BadChoice(f"{large[0]} {why}: maps of smaller pictures, or of a smaller copy, can be compared")
    progress(1, total)
    target: Any = "output" if true.classes[0][0] is None else torch.tensor([row[0] for row in true.classes])
    good = _readable(true) if true.skipped else pictures  # what was skipped once need not be tried again
    copies, last = [], last_to_run(network, good)
    for what, seed in COPIES:
        other = randomized_copy(network, what, seed, last)
        copies.append((what, seed, explain(other, good, method=method, target=target)))
        progress(len(copies) + 1, total)
    return Sanity(true, tuple(copies))


def _readable(true: HeatMaps) -> list[Given]:
    pictures = [shown.picture for shown in true.shown]
    sources = (picture.source for picture in pictures if isinstance(picture, Picture))
    return [cast(Given, source) for source in sources if not isinstance(source, BadPicture)]


def randomized_copy(network: Network, what: str, seed: int, last: str | Sequence[str] | None) -> Network:
    """A copy of the network with `what` drawn anew, looked at at the same layer."""
    layer = network.layer
    if isinstance(layer, nn.Module):
        layer = next(str(name) for name, module in network.module.named_modules() if module is layer)
    drawn = randomized(network.module, what, seed, last)
    return replace(network, module=drawn, layer=layer, labels=network.labels, _cuts={}, _classes={})


def randomized(module: nn.Module, what: str, seed: int, last: str | Sequence[str] | None = None) -> nn.Module:
    """A copy with the layer or layers `last` (the last that is registered, if none is named), or every one, drawn anew.
    Matrices are drawn from a normal distribution of their own spread; vectors (biases, norms) are shuffled."""
    other = copy.deepcopy(module)
    named = {name: layer for name, layer in other.named_modules() if classes.has_weights(layer, 2)}
    if not named:
        raise BadNetwork("the network has no weights to randomize")
    names = [last or list(named)[-1]] if isinstance(last, str) or not last else last
    chosen = [named[name] for name in names] if what == "logits" else list(other.modules())
    generators = {str(p.device): torch.Generator(p.device).manual_seed(seed) for p in other.parameters()}
    order = generators.get("cpu") or torch.Generator().manual_seed(seed)
    for parameter in (p for layer in chosen for p in layer.parameters(recurse=False)):
        if parameter.ndim > 1:
            spread = float(parameter.detach().float().std())
            spread = spread if np.isfinite(spread) and spread > 0 else 0.02
            parameter.data.normal_(0, spread, generator=generators[str(parameter.device)])
        else:
            flat = parameter.data.view(-1)
            mixed = flat[torch.randperm(len(flat), generator=order).to(flat.device)]
            parameter.data.copy_(mixed.view_as(parameter))
    return other


def last_to_run(network: Network, pictures: Inputs) -> str | None:
    """The name of the last layer with a matrix of weights that runs: the logits layer."""
    for group in groups(network, pictures, 1, sys.maxsize):
        if group.batch is not None:
            return classes.last_to_run(network, group.batch, partial(classes.has_weights, axes=2))[0]
    return None


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Spearman's; 0 when one of the maps is constant and so ranks nothing."""
    from scipy.stats import spearmanr

    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return 0.0
    return float(spearmanr(a.ravel(), b.ravel()).statistic)


def ssim(a: np.ndarray, b: np.ndarray) -> float:
    """Structural similarity of the two maps, each stretched to 0..1."""
    from skimage.metrics import structural_similarity

    x, y = (np.asarray((m - m.min()) / (np.ptp(m) or 1), dtype=np.float64) for m in (a, b))
    smallest = min(x.shape)
    if smallest < 3:
        return float(np.corrcoef(x.ravel(), y.ravel())[0, 1]) if x.size > 1 else 1.0
    window = min(7, smallest - (smallest + 1) % 2)
    return float(structural_similarity(x, y, data_range=1.0, win_size=window))
