"""Sets divided into ten folds by class, the same ones at every opening: `photos:folds=8-9` is a fifth of each class."""

from collections.abc import Collection
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from fovea.basics import within
from fovea.data.samples import DataSet, Sample

FOLDS = 10


def only_folds(data: DataSet, kept: Collection[int], seed: int = 0) -> DataSet:
    """The samples of these folds. Which fold is a picture's follows from the seed, its class and its file's name, not
    from where the folder lies; a picture that is added moves few others."""
    within("a fold", max(kept, default=0), 0, FOLDS - 1)

    def drawn(place: int) -> bytes:
        sample = data.samples[place]
        words = f"{seed}/{data.labels[sample.label]}/{Path(sample.name).name}"
        return sha256(words.encode("utf-8", "surrogateescape")).digest()

    by_class: dict[int, list[int]] = {}
    for place in sorted(range(len(data)), key=drawn):
        by_class.setdefault(data.samples[place].label, []).append(place)
    fold: dict[int, int] = {}
    for places in by_class.values():
        fold |= {place: int((turn + 0.5) * FOLDS / len(places)) for turn, place in enumerate(places)}
    samples: tuple[Sample, ...] = tuple(sample for i, sample in enumerate(data.samples) if fold[i] in kept)
    return replace(data, samples=samples)
