"""An index opened: the pictures nearest to any picture, by one product with all embeddings."""

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice, BadNetwork, BadPicture, FoveaError, nearest
from fovea.networks.network import Network
from fovea.pictures import MAX_PIXELS, Given, Picture, gather
from fovea.retrieval import records
from fovea.retrieval.contents import Contents, file_of, replayed
from fovea.retrieval.found import Found, Neighbour
from fovea.retrieval.indexing import embeddings
from fovea.retrieval.knowing import Known, known, readable, refuse_another

COUNT = 8  # neighbours, where nothing is asked for


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
    labelled: bool  # the folders that pictures lie in differ, so that they may name classes

    def __len__(self) -> int:
        return len(self.names)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The pictures' own paths, absolute."""
        return tuple(self.folder / name for name in self.names)

    def search(self, picture: Given | Picture, count: int | None = None, max_pixels: int = MAX_PIXELS) -> Found:
        """The `count` pictures whose embeddings have the largest cosine with the picture's: 8, or all where there are
        fewer, unless given. The picture itself is none of them, unless it is all there is."""
        if count is not None and not 1 <= count <= len(self):
            raise BadChoice(f"count is 1 to {len(self)}, as many pictures as {self.file} holds; got {count}")
        one = picture if isinstance(picture, Picture) else _only(picture)
        start = time.perf_counter()
        tensor, _ = self.known.network.prepare(one.read(max_pixels))
        query = embeddings(self.known.network, tensor.unsqueeze(0))[0]  # D
        if not bool(query.isfinite().all()):
            raise BadPicture(f"{one.name}: {self.known.name} gives values that are not numbers for it")
        similarity = (self.vectors @ query).clamp(-1, 1)  # N
        order, own, most = similarity.argsort(descending=True, stable=True), self._row(one), count or COUNT
        rows = [row for row in order[: most + 1].tolist() if row != own][:most] or [own]
        near = tuple(self._neighbour(row, float(similarity[row]), row == own) for row in rows)
        itself = None if own is None else self._neighbour(own, float(similarity[own]), True)
        return Found(readable(one.name), near, itself, time.perf_counter() - start, one, self)

    def _neighbour(self, row: int, similarity: float, itself: bool) -> Neighbour:
        name = self.names[row]
        label = readable(os.path.basename(os.path.dirname(name))) or None
        return Neighbour(readable(name), self.folder / name, similarity, label if self.labelled else None, itself)

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
    net: str | Path | Network | None = None,
    folder: str | os.PathLike[str] | None = None,
    device: str | None = None,
) -> Index:
    """The index in a file, or in a folder, with its network, which is loaded by its name unless given.

    `folder` is where the pictures are now, if that is neither where they were nor the same place beside the index.
    """
    file = file_of(path)
    held = _read(file)
    if not held.kept:
        raise FoveaError(f"{file} holds no picture yet: run 'fovea index' to the end")
    own = _known(held, file, net, device)
    refuse_another(own, held.identity, file, held.place["net"])
    names = tuple(sorted(held.kept))
    lost = tuple((readable(name), readable(one.reason)) for name, one in sorted(held.lost.items()))
    where = _folder(held, file) if folder is None else Path(os.path.abspath(Path(folder).expanduser()))
    if folder is not None and not where.is_dir():
        raise BadPicture(f"no folder {str(folder)!r}: name the one that was indexed")
    labelled = len({os.path.dirname(name) for name in names} - {""}) > 1
    vectors = torch.from_numpy(held.embeddings(names))
    return Index(file, where, names, vectors, own, lost, held.wanted, labelled)


def _read(file: Path) -> Contents:
    if not file.is_file():
        near = [one.name for one in file.parent.iterdir()] if file.parent.is_dir() else []
        raise BadChoice(f"no index {str(file)!r}{nearest(file.name, near)}; 'fovea index DIR --out {file}' makes one")
    with open(file, "rb") as stream:  # one that is being added to is read as far as it is finished
        return replayed(records.read(stream, file)[0])


def _known(held: Contents, file: Path, net: str | Path | Network | None, device: str | None) -> Known:
    name, weights = held.place["net"], held.place["weights"]
    if net is not None:
        return known(net, None, held.identity["features"], device)
    if name is None:
        raise BadNetwork(f"{file} was made with a network of your own: open_index({str(file)!r}, net=that_network)")
    return known(name, weights, held.identity["features"], device)


def _folder(held: Contents, file: Path) -> Path:
    """Where the pictures were, or the same place beside the index where both were moved."""
    there, beside = Path(held.folder), Path(os.path.abspath(file.parent / held.place["beside"]))
    return beside if beside.is_dir() and not there.is_dir() else there


def _only(given: Given) -> Picture:
    found = gather(given)
    if len(found) != 1:
        raise BadChoice(f"search takes one picture; got {len(found)}: search for one after the other")
    return found[0]
