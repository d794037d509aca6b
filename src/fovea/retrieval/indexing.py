"""The index of a folder: every picture's embedding, computed once, and again when the picture changes."""

import glob
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from fovea.basics.errors import BadChoice, BadNetwork, BadPicture
from fovea.networks.inputs import Group, groups
from fovea.networks.network import Network, as_found
from fovea.pictures import MAX_PIXELS, expand
from fovea.retrieval import records
from fovea.retrieval.contents import Contents, Stamp, file_of, pictures, replayed
from fovea.retrieval.knowing import Known, known, readable, refuse_another

READERS = 4  # batches decoded at once, ahead of the network
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


@dataclass(frozen=True)
class Work:
    """What is to be done, so that the index holds the files given and no others."""

    folder: str
    todo: list[str]
    gone: list[str]


def index(
    given: Files | Iterable[Files],
    net: str | Path | Network = "efficientnet_lite0",
    out: Files = "out/index.fovea",
    *,
    weights: str | Path | None = None,
    features: str | None = None,
    batch: int = 16,
    fresh: bool = False,
    device: str | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Indexed:
    """Embeddings of every picture of folders, globs and files, in one file that `open_index` opens.

    Of a classifier they are its pooled features, of any other network its output (`features` says otherwise), scaled
    to unit length. Run again, it adds new pictures, drops those that are gone or were not given, and looks again at
    those that changed; stopped at any moment, it goes on from the last finished batch. `out` may be a folder. `fresh`
    forgets what the file holds. A picture that cannot be read is told in `.skipped`, and tried again when it changes.
    """
    if batch < 1:
        raise BadChoice(f"a batch holds at least one picture; got {batch}")
    path = file_of(out)
    folder, names = files_of(given)
    own = known(net, weights, features, device)
    with records.locked(path) as stream:
        held = _held(stream, path, fresh)
        if held.identity:
            refuse_another(own, held.identity, path, held.place.get("net"))
        else:
            records.begin(stream)
            records.append(stream, own.identity)
            held.identity = own.identity
        _move(stream, held, own, folder, names, path)
        work = _work(held, folder, names, max_pixels)
        before = len(names) - len(work.todo)
        if work.gone:
            records.append(stream, {"is": "dropped", "names": work.gone})
        if work.todo:
            records.append(stream, {"is": "begun", "wanted": len(names)})
        progress(before, len(names))
        for done, row in _embedded(own, work, batch, max_pixels):
            records.append(stream, *row)
            progress(before + done, len(names))
        if work.todo or work.gone or held.wanted is not None:
            records.append(stream, {"is": "finished"})
        after = replayed(records.read(stream, path)[0])
        if after.rows > 2 * len(after.kept):
            records.rewrite(path, after.records())
    skipped = tuple((readable(name), readable(one.reason)) for name, one in sorted(after.lost.items()))
    if not after.kept:
        raise BadPicture(f"no picture of {readable(folder)} could be read: {skipped[0][1]}")
    looked_at, dropped = after.kept.keys() & set(work.todo), held.kept.keys() & set(work.gone)
    added, changed = len(looked_at - held.kept.keys()), len(looked_at & held.kept.keys())
    return Indexed(path, len(after.kept), added, changed, len(dropped), len(after.kept) - len(looked_at), skipped)


def files_of(given: Files | Iterable[Files]) -> tuple[str, list[str]]:
    """The folder that all the pictures given lie in, and their names below it, each once."""
    each = [given] if isinstance(given, (str, os.PathLike)) else list(given)
    if not each:
        raise BadChoice("name at least one folder, glob or picture to index")
    found = dict.fromkeys(os.path.abspath(path) for one in each for path in expand(one))
    folder = os.path.commonpath([_root(one) for one in each])
    return folder, [os.path.relpath(path, folder) for path in found]


def _root(given: Files) -> str:
    """The folder itself, that of a file, or that before the first wildcard of a glob."""
    path = Path(os.path.abspath(Path(given).expanduser()))
    if path.is_dir():
        return str(path)
    if path.exists() or path.is_symlink():
        return str(path.parent)
    fixed = [one for one in path.parents if not glob.has_magic(str(one))]
    return str(fixed[0])


def _held(stream: IO[bytes], path: Path, fresh: bool) -> Contents:
    """What the file holds, with what a kill left of another record cut off."""
    stream.seek(0)
    if fresh and stream.read(len(records.FIRST)) == records.FIRST:
        return Contents()
    found, end = records.read(stream, path)
    stream.truncate(end)
    return replayed(found)


def _move(stream: IO[bytes], held: Contents, own: Known, folder: str, names: Sequence[str], path: Path) -> None:
    """Tell the index where the pictures are now, and what loads the network."""
    there = {os.path.join(held.folder, name) for name in (*held.kept, *held.lost)} if held.folder else set()
    stays = any(os.path.join(folder, name) in there for name in names)
    place = {
        "is": "place",
        "net": own.net,
        "weights": own.weights,
        "folder": folder,
        "beside": os.path.relpath(folder, path.parent.absolute()),  # for an index that is moved with its folder
        "stays": stays,
    }
    if {**held.place, "stays": stays} != place:
        records.append(stream, place)
        held.take(records.Record(place))


def _work(held: Contents, folder: str, names: Sequence[str], max_pixels: int) -> Work:
    todo = []
    for name in names:
        good, bad = held.kept.get(name), held.lost.get(name)
        now = stamp_of(os.path.join(folder, name), max_pixels)
        if (good is None or good.stamp != now[:2]) and (bad is None or bad.stamp != now):
            todo.append(name)
    wanted = set(names)
    return Work(folder, todo, [name for name in (*held.kept, *held.lost) if name not in wanted])


def stamp_of(path: str, max_pixels: int) -> Stamp:
    """Size and time of writing; then what else may let a picture be read that could not be: permissions, our limit."""
    try:
        found = os.stat(path)
    except OSError:
        return -1, 0, 0, max_pixels
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, max_pixels


def _embedded(
    own: Known, work: Work, batch: int, max_pixels: int
) -> Iterator[tuple[int, tuple[dict[str, Any], bytes]]]:
    """A record for every batch, and how many pictures are done."""

    def prepared(names: list[str]) -> tuple[list[Stamp], list[Group]]:
        paths = [os.path.join(work.folder, name) for name in names]
        stamps = [stamp_of(path, max_pixels) for path in paths]  # before reading: written meanwhile, it is read again
        return stamps, list(groups(own.network, paths, len(paths), max_pixels))

    parts = [work.todo[start : start + batch] for start in range(0, len(work.todo), batch)]
    done = 0
    for names, (stamps, found) in _ahead(prepared, parts):
        good: dict[int, Tensor] = {}
        reasons = iter([reason for group in found for _, reason in group.skipped])
        for group in found:
            if group.batch is not None:
                good.update(zip(group.places, embeddings(own.network, group.batch), strict=True))
        _refuse_other_width(own, good.values())
        kept, lost = [], []
        for i, name in enumerate(names):
            if i not in good:
                lost.append([name, next(reasons), *stamps[i]])
            elif not bool(good[i].isfinite().all()):
                lost.append([name, f"{readable(name)}: the network gives values that are not numbers", *stamps[i]])
            else:
                kept.append((i, [name, *stamps[i][:2]]))
        values = b"".join(good[i].numpy().astype("<f4").tobytes() for i, _ in kept)
        done += len(names)
        yield done, (pictures([row for _, row in kept], lost), values)


def embeddings(network: Network, batch: Tensor) -> Tensor:
    """N,D of unit length, on the CPU; the network is left as found."""
    with as_found(network), torch.no_grad():
        output = network(batch.to(network.device, network.dtype)).flatten(1).float()
    return normalize(output, dim=1).cpu()


def _refuse_other_width(own: Known, found: Iterable[Tensor]) -> None:
    widths = {len(one) for one in found} - {own.identity["dimensions"]}
    if widths:
        raise BadNetwork(
            f"{own.name} gives embeddings of {widths.pop()} numbers for some pictures and "
            f"{own.identity['dimensions']} for others: use a transform with a fixed size"
        )


def _ahead(
    prepared: Callable[[list[str]], tuple[list[Stamp], list[Group]]], parts: Sequence[list[str]]
) -> Iterator[tuple[list[str], tuple[list[Stamp], list[Group]]]]:
    """The parts in their order, a few of them prepared while the network works."""
    waiting: deque[tuple[list[str], Future[tuple[list[Stamp], list[Group]]]]] = deque()
    with ThreadPoolExecutor(READERS) as readers:
        for part in parts:
            waiting.append((part, readers.submit(prepared, part)))
            if len(waiting) > READERS:
                names, future = waiting.popleft()
                yield names, future.result()
        while waiting:
            names, future = waiting.popleft()
            yield names, future.result()
