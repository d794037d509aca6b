"""Weakly supervised localisation: are the boxes of a network's heatmaps right? (L2-CAF 4.1; Choe et al. 2020)."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from fovea.errors import BadChoice, BadPicture
from fovea.explaining import Method, find, look_at
from fovea.heatmap import Shown
from fovea.measure.boxes import Localised, ious_of, scores
from fovea.network import Network
from fovea.pictures import Picture
from fovea.placement import Placement
from fovea.train.packs import Box, Pack, Sample

Job = tuple[NDArray[np.float32], Placement, tuple[Box, ...]]  # a map's cells, where they lie, the true boxes


def measure(
    network: Network,
    pack: Pack,
    methods: Sequence[str | Method],
    batch: int = 16,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[list[dict[str, Any]], list[tuple[str, str]]]:
    """One row of figures a method, and the pictures left out with their reasons.

    Maps are of the true class, as the boxes of GT-known and of a right prediction are; the class counts for top-1/5.
    """
    own = [find(one) for one in methods]
    with_boxes = Pack(pack.name, tuple(sample for sample in pack.samples if sample.boxes))
    if not len(with_boxes):
        raise BadChoice(f"{pack.name} has no boxes to measure against (a folder takes them from boxes.csv: file,boxes)")
    total = 2 * len(with_boxes)  # every picture is looked at, then its boxes are drawn
    skipped: list[tuple[str, str]] = []
    ranks: list[NDArray[np.int64]] = []
    maps: dict[str, list[Job]] = {one.name: [] for one in own}
    for samples, images in _batches(with_boxes, batch, skipped):
        tensors, shown, places = _prepared(network, samples, images)
        labels = torch.tensor([sample.label for sample in samples])
        seen, output = look_at(network, tensors, shown, own, labels)
        ranks.append(_rank(output, labels))
        for name, found in seen.items():
            maps[name] += [(found.map(i), places[i], sample.boxes) for i, sample in enumerate(samples)]
        progress(sum(map(len, ranks)) + len(skipped), total)
    if not ranks:
        raise BadPicture(f"no picture of {pack.name} could be read: {skipped[0][1]}")
    rank, rows = np.concatenate(ranks), []
    pool = ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn"))
    try:
        for i, (name, jobs) in enumerate(maps.items()):
            results = []
            for one in pool.map(ious_of, *zip(*jobs, strict=True), chunksize=16):
                results.append(one)
                progress(total // 2 + (i * len(jobs) + len(results)) * total // 2 // (len(own) * len(jobs)), total)
            rows.append(_row(network, name, results, rank))
    finally:
        pool.shutdown(cancel_futures=True)  # whoever stops this does not wait for maps no longer wanted
    return rows, skipped


def _row(
    network: Network, name: str, results: Sequence[tuple[NDArray[np.float64], ...]], rank: NDArray[np.int64]
) -> dict[str, Any]:
    found = Localised(np.stack([one for one, _ in results]), np.stack([two for _, two in results]))
    figures = scores(found, rank < 1, rank < 5)
    return {"net": network.name or "network", "method": name, "images": len(rank), **figures}


def _batches(pack: Pack, size: int, skipped: list[tuple[str, str]]) -> Iterator[tuple[list[Sample], list[Image.Image]]]:
    def good() -> Iterator[tuple[Sample, Image.Image]]:
        for sample, image in pack.read():
            if isinstance(image, BadPicture):
                skipped.append((sample.name, str(image)))
            else:
                yield sample, image

    stream = good()
    while chunk := list(islice(stream, size)):
        yield [sample for sample, _ in chunk], [image for _, image in chunk]


def _prepared(
    network: Network, samples: Sequence[Sample], images: Sequence[Image.Image]
) -> tuple[torch.Tensor, list[Shown], list[Placement]]:
    ready = [network.prepare(image) for image in images]
    shown = [
        Shown(sample.name, placement, Picture(sample.name, image))
        for sample, image, (_, placement) in zip(samples, images, ready, strict=True)
    ]
    tensors = torch.stack([tensor for tensor, _ in ready]).to(network.device, network.dtype)
    return tensors, shown, [placement for _, placement in ready]


def _rank(output: torch.Tensor, labels: torch.Tensor) -> NDArray[np.int64]:
    """How many other classes score no lower than the true one: a tie is not a hit."""
    own = output.gather(1, labels.to(output.device).unsqueeze(1))
    ranked: NDArray[np.int64] = ((~(output < own)).sum(1) - 1).cpu().numpy()
    return ranked
