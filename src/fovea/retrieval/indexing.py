"""The index of a folder: every picture's embedding, computed once, and again when the picture changes."""

import glob
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from fovea import basics
from fovea.basics import LOCAL, BadChoice, BadNetwork, BadPicture, Engine, Progress, demand_bounds, demand_kinds
from fovea.networks import Network, NetworkLike, as_found, as_taken, device_of, placed
from fovea.pictures import MAX_PIXELS, batched, decoded, expand, read
from fovea.retrieval.knowing import Known, known, refuse_another
from fovea.retrieval.store import About, Held, Row, Stamp, file_of, writing

PART = 64  # pictures that a worker is given at a time
AGAIN = (-2, 0)  # the stamp of no picture, so that it is tried again the next time
Files = str | os.PathLike[str]


@dataclass(frozen=True)
class Indexed:
    """What became of an index: pictures that are new in it, changed, dropped and left as they were; `skipped` are those
    that could not be read, and why."""

    file: Path
    pictures: int
    added: int
    changed: int
    dropped: int
    already: int
    skipped: tuple[tuple[str, str], ...]


# a door: what is indexed, where to, and how the network looks at it
def index(
    net: NetworkLike,
    pictures: Files | Iterable[Files],
    out: Files = "out/index.fovea",
    *,
    weights: str | Path | None = None,
    features: str | None = None,
    batch: int = 16,
    fresh: bool = False,
    device: str | None = None,
    max_pixels: int = MAX_PIXELS,
    fit: str | None = None,
    progress: Progress = basics.quiet,
    engine: Engine = LOCAL,
) -> Indexed:
    """Embeddings of every picture of folders, globs and files, in one file that `open_index` opens.

    Of a classifier they are its pooled features, of any other network its output (`features` says otherwise), scaled
    to unit length. `fit` is as for `explain`, with all inputs of one size; unless given, as before where the index is
    there. Run again, it adds new pictures, drops those that are gone or were not given, and looks again at those that
    changed; stopped at any moment, it goes on from the last finished batch. `out` may be a folder. `fresh` forgets what
    the file holds. `engine` says who looks at the pictures, as fovea.jobs.Cluster() does; they must be where its
    workers find them. A picture that cannot be read is told in `.skipped`, and tried again when it changes, or the next
    time where the reason may have passed."""
    demand_bounds({"batch": batch, "max_pixels": max_pixels})
    demand_kinds(index, locals())
    path = file_of(out)
    folder, names = files_of(pictures)
    network = known(net, weights, features, device, fit)
    with writing(path, fresh) as store:
        held = store.read()
        if held.about is not None:
            network = network.taking(held.about.identity.transform) if fit is None else network
            refuse_another(network, held.about, path)
        moved = _moved(held, folder, names)
        todo = [file for name in names if (file := File(name, folder, max_pixels)).differs(moved.rows.get(name))]
        about = _about(network, folder, path, len(names) if todo else None)  # a run that did not finish is known by it
        after = Held(about, {name: moved.rows[name] for name in names if name in moved.rows})
        dropped = held.rows.keys() - after.rows.keys()
        if dropped or held.about != about:
            store.write(about, after.rows if moved is not held else {}, dropped)
        done = len(names) - len(todo)
        progress(done, len(names))
        for rows in _spread(network, todo, batch, engine):
            store.write(about, rows)
            after.rows |= rows
            done += len(rows)
            progress(done, len(names))
        if todo:
            store.write(_about(network, folder, path, None), {})
    before, kept = moved.kept.keys(), after.kept.keys()
    skipped = tuple((name, row.reason) for name, row in sorted(after.lost.items()))
    if not kept:
        raise BadPicture(f"no picture of {folder} could be read: {skipped[0][1]}")
    looked_at = kept & {file.name for file in todo}
    added, changed = len(looked_at - before), len(looked_at & before)
    return Indexed(path, len(kept), added, changed, len(before - set(names)), len(kept) - len(looked_at), skipped)


def files_of(given: Files | Iterable[Files]) -> tuple[str, list[str]]:
    """The folder that all the pictures given lie in, and their names below it, each once."""
    each = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    if not each:
        raise BadChoice("name at least one folder, glob or picture to index")
    found = dict.fromkeys(os.path.abspath(path) for item in each for path in expand(item))
    folder = os.path.commonpath([_root(item) for item in each])
    return folder, [os.path.relpath(path, folder) for path in found]


def _root(given: Files) -> str:
    """The folder itself, that of a file, or that before the first wildcard of a glob."""
    path = Path(os.path.abspath(os.path.expanduser(given)))
    if path.is_dir():
        return str(path)
    if path.exists() or path.is_symlink():
        return str(path.parent)
    return str(next(above for above in path.parents if not glob.has_magic(str(above))))


def _about(network: Known, folder: str, path: Path, wanted: int | None) -> About:
    return About(
        identity=network.identity,
        net=network.net,
        weights=network.weights,
        folder=folder,
        beside=os.path.relpath(folder, path.parent.absolute()),  # for an index that is moved with its folder
        wanted=wanted,
    )


def _moved(held: Held, folder: str, names: Sequence[str]) -> Held:
    """Pictures that stayed where they were have other names below another folder; those that moved with theirs have the
    same."""
    before = folder if held.about is None else held.about.folder
    there = {os.path.join(before, name) for name in held.rows}
    if before == folder or not any(os.path.join(folder, name) in there for name in names):
        return held
    rows = {os.path.relpath(os.path.join(before, name), folder): row for name, row in held.rows.items()}
    return Held(held.about, rows)


@dataclass
class File:
    """A picture of the folder; its stamp is taken as it is read."""

    name: str
    folder: str
    max_pixels: int
    stamp: Stamp = field(default=())

    def read(self) -> Image.Image:
        self.stamp = self.stamped()  # before reading: written meanwhile, it is read again
        try:
            return read(Path(self.folder, self.name), self.max_pixels)
        except BadPicture as reason:
            self.stamp = AGAIN if reason.passing else self.stamp
            raise

    def stamped(self) -> Stamp:
        """Size, time of writing; then what else may let a picture be read that could not be: permissions, our limit."""
        try:
            found = os.stat(os.path.join(self.folder, self.name))
        except OSError:
            return -1, 0, 0, self.max_pixels
        return found.st_size, found.st_mtime_ns, found.st_ctime_ns, self.max_pixels

    def differs(self, row: Row | None) -> bool:
        return row is None or row.stamp != self.stamped()[: len(row.stamp)]


def _spread(network: Known, files: Sequence[File], batch: int, engine: Engine) -> Iterator[dict[str, Row]]:
    """The rows of every batch, or of what a worker does at once."""
    if engine.here:
        return _embedded(network, files, batch)

    def make() -> Callable[[list[File]], dict[str, Row]]:
        placed(network.network, device_of("auto"))
        return lambda part: {name: row for rows in _embedded(network, part, batch) for name, row in rows.items()}

    return engine.map(make, list(batched(files, PART)))


def _embedded(network: Known, files: Sequence[File], batch: int) -> Iterator[dict[str, Row]]:
    """The rows of every batch."""
    skipped, by_name = list[tuple[str, str]](), {file.name: file for file in files}
    ready = decoded(files, lambda image: as_taken(network.network, image)[0], skipped, basics.processors())
    for group in chain(batched(ready, batch), [[]]):  # the last for those at the end that could not be read
        vectors = embeddings(network.network, [tensor for _, tensor in group])
        widths = {len(vector) for vector in vectors} - {network.identity.dimensions}
        if widths:
            given = f"{widths.pop()} numbers for some pictures and {network.identity.dimensions} for others"
            raise BadNetwork(f"{network.name} gives embeddings of {given}: use a transform with a fixed size")
        rows = {name: Row(by_name[name].stamp, reason=reason) for name, reason in skipped}
        for (place, _), vector in zip(group, vectors, strict=True):
            file = files[place]
            if bool(vector.isfinite().all()):
                rows[file.name] = Row(file.stamp[:2], vector.numpy())
            else:
                reason = f"{file.name}: the network gives values that are not numbers"
                rows[file.name] = Row(file.stamp, reason=reason)
        skipped.clear()
        if rows:
            yield rows


def embeddings(network: Network, pictures: Sequence[Tensor]) -> list[Tensor]:
    """Of unit length, on the CPU (D each); pictures of different sizes pass alone. The network is left as found."""
    alike = len({picture.shape for picture in pictures}) < 2
    found: list[Tensor] = []
    for part in [pictures] if alike and pictures else [[picture] for picture in pictures]:
        with as_found(network), torch.no_grad():
            output = network(torch.stack(list(part)).to(network.device, network.dtype)).flatten(1).float()
        found += normalize(output, dim=1).cpu()
    return found
