"""fovea.bulk: a verb on any number of pictures, by this process or by a cluster, into Parquet; gone on with after a
stop at any moment.

Pictures come in chunks, and each chunk leaves one file, which is whole or not there. So nothing is lost and nothing is
there twice, whoever is killed when: what has its file is done, the rest is done again."""

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, fields
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch

from fovea import __version__
from fovea.basics import (
    BadChoice,
    BadPicture,
    Engine,
    Listener,
    Progress,
    ahead,
    announce,
    by_itself,
    demand_bounds,
    keep_flat,
    listening,
    locked,
    nearest,
    plain,
    quiet,
)
from fovea.jobs.chunks import Chunk, Shard, chunked
from fovea.jobs.cluster import Cluster
from fovea.jobs.parts import END, FILES, Folder, Note, Row, demand_parquet, demand_same, table_of
from fovea.jobs.tasks import Taking, Task, task
from fovea.networks import Network, NetworkLike, as_network, at_once, device_of, hash_of, placed
from fovea.pictures import Picture
from fovea.results import Size

CHUNK = 64  # pictures, about, that are done together and again after a stop
FEW = 64  # shards that are cut before the work begins, so that all workers have some of each
AHEAD = 4  # chunks per thread that may be done before one that takes longer
TURNS = 2  # chunks at a time of a network that is run by one thread at a time
ENGINES = ("local", "ray")
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class How:
    """Who does the work: the cores of this machine, or so many workers of a Ray cluster; `files` asks for pictures
    beside the rows, `fresh` forgets what the folder holds; about `chunk` pictures are one file of rows."""

    engine: Literal["local", "ray"] = "local"
    address: str | None = None
    workers: int | None = None
    files: bool | Literal["full"] = False
    fresh: bool = False
    fit: str | None = None
    device: str | None = None
    chunk: int = CHUNK

    def __post_init__(self) -> None:
        demand_bounds({"workers": self.workers, "count": self.chunk})
        if self.engine not in ENGINES:
            raise BadChoice(
                f"engine is {' or '.join(ENGINES)}; got {self.engine!r}{nearest(str(self.engine), ENGINES)}"
            )
        if self.engine == "local" and (self.address or self.workers):
            raise BadChoice("address and workers are of a cluster: engine='ray'")


@dataclass(frozen=True)
class Done:
    """A chunk whose part is written: of how many pictures, which could not be read, what was said meanwhile, and when
    (by the clock on the wall, which machines share)."""

    id: str
    pictures: int
    skipped: Sequence[tuple[str, str]] = ()
    said: Sequence[str] = ()
    time: tuple[float, float] | None = None  # from, until


@dataclass(frozen=True)
class Bulk:
    """What a job left in its folder; `pictures` are those with rows, `already` how many were done before, `seconds` the
    time from the first chunk's beginning to the last one's end, without what starting took."""

    folder: Folder
    what: str
    settings: Mapping[str, Any]
    pictures: int
    already: int
    seconds: float
    skipped: tuple[tuple[str, str], ...] = field(repr=False)

    def rows(self) -> Iterator[Row]:
        """Of every picture: `.row` as results.json has it, `.maps`, or the `.reason` why there is none."""
        return self.folder.rows()


@dataclass(frozen=True)
class Worker:
    """Makes what does a chunk, wherever it is: the network goes along."""

    network: Network
    verb: str
    taking: Taking
    options: Mapping[str, Any]
    folder: Folder
    files: bool | Literal["full"] = False
    device: str | None = None

    def task(self) -> Task:
        return task.get(self.verb)(self.network, self.taking, **self.options)

    def __call__(self) -> "Callable[[Chunk | Shard], list[Done]]":
        if self.device is not None:
            placed(self.network, device_of(self.device))
        doing, done = self.task(), self.folder.parts()

        def work(given: Chunk | Shard) -> list[Done]:
            try:
                chunks = given.chunks() if isinstance(given, Shard) else [given]
            except BadPicture as reason:
                return [Done("", 0, [(given.where, str(reason))])]
            return [self.before(chunk) if chunk.id in done else self.do(doing, chunk) for chunk in chunks]

        return work

    def before(self, chunk: Chunk) -> Done:
        """Of a chunk whose part is there."""
        skipped = self.folder.skipped(chunk.id)
        return Done(chunk.id, len(chunk) - len(skipped), skipped)

    def do(self, doing: Task, chunk: Chunk) -> Done:
        rows, said, size, began = list[Row](), list[str](), self.taking.usual_batch * 4, time.time()
        with listening(Listener(said.append)):
            pictures = iter(chunk.pictures(self.taking.max_pixels))
            try:
                while part := list(islice(pictures, max(size, CHUNK))):
                    rows += self._rows(doing, part, chunk.id, len(rows))
            except BadPicture as reason:  # the shard itself, from here on
                rows.append(Row(chunk.where, reason=str(reason)))
        self.folder.write(f"{chunk.id}{END}", table_of(rows))
        skipped = [(row.name, row.reason) for row in rows if row.reason is not None]
        return Done(chunk.id, len(rows) - len(skipped), skipped, said, (began, time.time()))

    def _rows(self, doing: Task, pictures: Sequence[Picture], id: str, before: int) -> Iterator[Row]:
        for step in doing.steps(pictures):
            for result in step.results:
                before += 1
                row = {"name": result.name, **result.to_dict()}
                if self.files:
                    row["files"] = self._drawn(result, f"{plain(Path(result.name).stem)}-{id[:8]}{before:04}")
                yield Row(result.name, row, doing.maps(result))
            yield from (Row(name, reason=reason) for name, reason in step.skipped)

    def _drawn(self, result: Any, stem: str) -> dict[str, Any]:
        """A result's pictures and values, beside the rows."""
        size: Size = "full" if self.files == "full" else None
        if self.folder.local is not None:
            folder = self.folder.local / FILES
            folder.mkdir(parents=True, exist_ok=True)
            return dict(result.files(folder, stem, size))
        with tempfile.TemporaryDirectory() as made:
            names = dict(result.files(Path(made), stem, size))
            self.folder.put(Path(made), FILES)
        return names


@dataclass(frozen=True)
class Cores:
    """This process: several chunks at a time, so that one is decoded while another is looked at. `apart`: each is
    looked at by one thread by itself; otherwise they take turns, with all of torch's threads or on a GPU."""

    threads: int
    apart: bool
    here: bool = True

    def map(self, make: Callable[[], Callable[[S], T]], items: Sequence[S]) -> Iterator[T]:
        work, before = make(), torch.get_num_threads()
        if self.threads < 2 or len(items) < 2:
            yield from map(work, items)
            return

        def alone(item: S) -> T:
            with by_itself():
                return work(item)

        keep_flat()
        torch.set_num_threads(1 if self.apart else before)
        try:
            yield from ahead(alone if self.apart else work, items, self.threads, AHEAD * self.threads)
        finally:
            torch.set_num_threads(before)


def engine_of(how: How, network: Network) -> Engine:
    if how.engine == "ray":
        return Cluster(how.address, how.workers, how.device)
    threads = at_once(network)
    return Cores(max(threads, TURNS), apart=threads > 0) if threads != 1 else Cores(1, apart=True)


def bulk(
    net: NetworkLike,
    pictures: str | Path | Sequence[str | Path],
    out: str | Path,
    *,
    verb: str = "explain",
    progress: Progress = quiet,
    **options: Any,
) -> Bulk:
    """A verb on any number of pictures: rows and maps as Parquet in the folder `out`, one file per chunk.

    `pictures`: folders, globs, files, tar shards (packs, WebDataset), Parquet files with pictures in a column, or
    addresses of all these in an object store (s3://…), as of `out`. `verb`: explain, localize, zoom, predict, or
    `package.module:name` of your own. `engine="ray"` asks a cluster, at `address`, or one that is started here, with
    so many `workers`. Asked again after a stop, it does what is left; `fresh` forgets what the folder holds. About
    `chunk` pictures are one file, and done again after a stop. `files`: pictures, too. `fit`, `device`, `batch`,
    `max_pixels` and the verb's own options are as for the verb."""
    demand_parquet()
    how, taking, words = _sorted_out(options)
    network = as_network(net, how.device if how.engine == "local" else None).fitted(how.fit)
    folder = Folder.at(out)
    device = how.device or "auto" if how.engine == "ray" else None
    worker = Worker(network, verb, taking, words, folder, how.files, device)
    doing = worker.task()
    items, missing = chunked(
        [str(given) for given in ([pictures] if isinstance(pictures, (str, Path)) else pictures)], how.chunk
    )
    few = len([item for item in items if isinstance(item, Shard)]) <= FEW
    todo = list(chain(*map(_cut, items))) if few else items
    todo.sort(key=lambda item: -len(item) if isinstance(item, Chunk) else 0)  # so that all end at about the same time
    with ExitStack() as held:
        folder.make()
        if folder.local is not None:
            held.enter_context(locked(folder.local, wait=False))
        settings = json.loads(json.dumps(doing.settings, default=str))
        note = Note(what=doing.what, settings=settings, asked=_known_by(worker, settings), version=__version__)
        demand_same(folder, note, how.fresh)
        return _done(worker, doing, engine_of(how, network), todo, missing, progress)


def _cut(item: Chunk | Shard) -> Sequence[Chunk | Shard]:
    """A shard as its chunks; as it is where it cannot be read, which its worker tells."""
    try:
        return item.chunks() if isinstance(item, Shard) else [item]
    except BadPicture:
        return [item]


def _done(
    worker: Worker,
    doing: Task,
    engine: Engine,
    todo: Sequence[Chunk | Shard],
    missing: list[tuple[str, str]],
    progress: Progress,
) -> Bulk:
    total = sum(len(item) for item in todo if isinstance(item, Chunk))
    ids, skipped, pictures, already, before = set[str](), list(missing), 0, 0, worker.folder.parts()
    times = list[tuple[float, float]]()
    progress(0, total)
    for done in chain.from_iterable(engine.map(worker, todo)):
        ids.add(done.id)
        pictures += done.pictures
        already += done.pictures if done.id in before else 0
        skipped += done.skipped
        times += [] if done.time is None else [done.time]
        for words in done.said:
            announce(words)
        progress(pictures + len(skipped) - len(missing), max(total, pictures))
    known = (
        not missing and "" not in ids
    )  # all that was given was found: a store that is away for a moment drops nothing
    for part in worker.folder.parts() - ids if known else ():  # of pictures that changed or are gone
        worker.folder.drop(f"{part}{END}")
    if not pictures:
        raise BadPicture("; ".join(reason for _, reason in skipped[:3]) or "no pictures were given")
    seconds = max(until for _, until in times) - min(began for began, _ in times) if times else 0.0
    return Bulk(worker.folder, doing.what, doing.settings, pictures, already, seconds, tuple(skipped))


def _sorted_out(options: Mapping[str, Any]) -> tuple[How, Taking, dict[str, Any]]:
    """Whose an option is: the engine's, every verb's, or the verb's own."""
    kinds = [{each.name for each in fields(kind)} for kind in (How, Taking)]
    how, asked = ({name: value for name, value in options.items() if name in kind} for kind in kinds)
    rest = {name: value for name, value in options.items() if not any(name in kind for kind in kinds)}
    return How(**how), Taking(**asked), rest


def _known_by(worker: Worker, settings: Mapping[str, Any]) -> str:
    """What tells one job from another: the question, the network bit by bit, and how pictures come in."""
    network, state = worker.network, worker.network.module.state_dict()
    weights = hash_of({key: value for key, value in state.items() if hasattr(value, "dtype")})
    question = [worker.verb, worker.options, settings, worker.files, worker.taking.max_pixels, __version__]
    known = [*question, weights, network.temperature, repr(network.transform)]
    return sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()
