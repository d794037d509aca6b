"""An index opened: the pictures nearest to any picture, by one product with all embeddings."""

import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice, BadPicture, FoveaError, demand_bounds, demand_kinds
from fovea.networks import NetworkLike
from fovea.pictures import MAX_PIXELS, Given, Picture, gather
from fovea.results import Step
from fovea.retrieval.alike import OWN, PAIR, Neighbor
from fovea.retrieval.indexing import embeddings
from fovea.retrieval.knowing import Known, known, named_by, readable, refuse_another
from fovea.retrieval.search import Search, Searches
from fovea.retrieval.store import demand_index, file_of, read

Pictures = Given | Iterable[Given]
Steps = Iterator[Step[Search]]
COUNT = 8  # neighbors, where nothing is asked for


@dataclass(frozen=True, eq=False)
class Index:
    """`names` are the pictures' paths below `folder`; `skipped` are those that could not be read, and why."""

    file: Path
    folder: Path
    names: tuple[str, ...] = field(repr=False)
    vectors: Tensor = field(repr=False)  # N,D  of unit length
    known: Known = field(repr=False)
    skipped: tuple[tuple[str, str], ...] = field(repr=False)
    unfinished: int | None  # how many pictures the last run was to end with, where it was stopped
    labeled: bool  # the folders that pictures lie in differ, so that they may name classes

    def __len__(self) -> int:
        return len(self.names)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The pictures' own paths, absolute."""
        return tuple(self.folder / name for name in self.names)

    @property
    def settings(self) -> dict[str, Any]:
        """What every search tells about the index."""
        return {
            "net": self.known.name,
            "features": self.known.identity.features,
            "index": self.file.name,
            "pictures": len(self),
            "similarity": "cosine of embeddings",
            "maps": {"own": OWN, "pair": PAIR},
        }

    def search(self, pictures: Pictures, count: int | None = None, max_pixels: int = MAX_PIXELS) -> Searches:
        """Of every picture the `count` pictures whose embeddings have the largest cosine with its own: 8, or all where
        there are fewer, unless given. The picture itself is none of them, unless it is all there is."""
        demand_kinds(Index.search, locals())
        return Searches.of(self.steps(pictures, count, max_pixels), "search", self.settings)

    def steps(
        self, pictures: Pictures, count: int | None = None, max_pixels: int = MAX_PIXELS
    ) -> Iterator[Step[Search]]:
        """The same, one picture after the other."""
        if count is not None and not 1 <= count <= len(self):
            raise BadChoice(f"count is 1 to {len(self)}, as many pictures as {self.file} holds; got {count}")
        demand_bounds({"max_pixels": max_pixels})
        given = gather(pictures)
        for done, picture in enumerate(given, 1):
            try:
                yield Step([self._nearest(picture, count, max_pixels)], [], done, len(given))
            except BadPicture as reason:
                yield Step([], [(picture.name, str(reason))], done, len(given))

    def _nearest(self, picture: Picture, count: int | None, max_pixels: int) -> Search:
        start, network = time.perf_counter(), self.known.network
        (query,) = embeddings(network, [network.prepare(picture.read(max_pixels))[0]])  # D
        if not bool(query.isfinite().all()):
            raise BadPicture(f"{picture.name}: {self.known.name} gives values that are not numbers for it")
        similarity = (self.vectors @ query).clamp(-1, 1)  # N
        order, itself, most = similarity.argsort(descending=True, stable=True), self._row(picture), count or COUNT
        rows = [row for row in order[: most + 1].tolist() if row != itself][:most] or [itself]
        near = tuple(self._neighbor(row, float(similarity[row]), row == itself) for row in rows)
        place = None if itself is None else self._neighbor(itself, float(similarity[itself]), True)
        return Search(picture.name, near, place, time.perf_counter() - start, picture, network, max_pixels)

    def _neighbor(self, row: int, similarity: float, itself: bool) -> Neighbor:
        name = self.names[row]
        label = readable(os.path.basename(os.path.dirname(name))) or None
        return Neighbor(readable(name), self.folder / name, similarity, label if self.labeled else None, itself)

    def _row(self, picture: Picture) -> int | None:
        """Where a picture that is a file stands in the index, if it does."""
        if not isinstance(picture.source, Path):
            return None
        given, real = os.path.abspath(picture.source), os.path.realpath(picture.source)
        for name in (os.path.relpath(given, self.folder), os.path.relpath(real, os.path.realpath(self.folder))):
            if name in self.names:
                return self.names.index(name)
        return None


def open_index(
    path: str | os.PathLike[str],
    net: NetworkLike | None = None,
    folder: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> Index:
    """The index in a file, or in a folder, with its network, which is loaded by its name unless given.

    `folder` is where the pictures are now, if that is neither where they were nor the same place beside the index."""
    file = file_of(path)
    demand_index(file)
    held = read(file)
    kept = held.kept
    if not kept:
        raise FoveaError(f"{file} holds no picture yet: run 'fovea index' to the end")
    assert held.about is not None  # where pictures are
    identity = held.about.identity
    network = named_by(held.about, file, device) if net is None else known(net, None, identity.features, device)
    network = network.taking(identity.transform)
    refuse_another(network, held.about, file)
    names = tuple(sorted(kept))
    lost = tuple((name, row.reason) for name, row in sorted(held.lost.items()))
    there, beside = Path(held.about.folder), Path(os.path.abspath(file.parent / held.about.beside))
    where = beside if beside.is_dir() and not there.is_dir() else there  # both may have been moved
    where = where if folder is None else Path(os.path.abspath(os.path.expanduser(folder)))
    if folder is not None and not where.is_dir():
        raise BadPicture(f"no folder {str(folder)!r}: name the one that was indexed")
    labeled = len({os.path.dirname(name) for name in names} - {""}) > 1
    return Index(file, where, names, torch.from_numpy(held.vectors), network, lost, held.about.wanted, labeled)
