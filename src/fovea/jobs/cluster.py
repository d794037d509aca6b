"""Ray Data as an engine: workers hold what does the work, items stream to them, and one that dies is replaced."""

import logging
import os
import pickle
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import Any, TypeVar

import torch

from fovea.basics import BadChoice, FoveaError, by_itself

NEEDS = "--engine ray needs packages that are not installed: pip install 'fovea[cluster]'"
MEMORY = 256 << 20  # bytes of the object store of a cluster that is started here: items are small
PATIENCE = 10.0  # seconds for a cluster to be reached
WATCH = 3.0  # seconds without news after which it is asked whether the head is there
WAITING = 64  # results that wait to be asked for
BLOCKS = 4096  # that items travel in, at most
S = TypeVar("S")
T = TypeVar("T")


@dataclass(frozen=True)
class Cluster:
    """A Ray cluster at an address, or one that is started here for as long as the work takes."""

    address: str | None = None
    workers: int | None = None
    device: str | None = None
    here: bool = False

    def map(self, make: Callable[[], Callable[[S], T]], items: Sequence[S]) -> Iterator[T]:
        if not items:
            return
        with joined(self.address, self.workers) as ray, _in_words(ray):
            made = ray.put(make)
            data = ray.data.from_items(
                [{"item": pickle.dumps(item)} for item in items], override_num_blocks=min(len(items), BLOCKS)
            )
            size, needs = self._share(ray)
            done = data.map_batches(
                Actor,
                fn_constructor_args=(made, [os.path.abspath(path) for path in sys.path]),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=min(size, len(items)), max_tasks_in_flight_per_actor=2),
                **needs,
            )
            for row in _while_there(ray, done.iter_rows()):
                found = pickle.loads(row["done"])
                if isinstance(found, FoveaError):  # what was refused there, in its words
                    raise found
                yield found

    def _share(self, ray: Any) -> tuple[int, dict[str, Any]]:
        """How many workers, and what each takes of the cluster. Some of it stays free: where workers hold every
        processor, what brings them their items would wait for ever."""
        there = ray.cluster_resources()
        processors, gpus = int(there.get("CPU", 1)), int(there.get("GPU", 0))
        if gpus and self.device in (None, "auto", "cuda"):
            size = self.workers or gpus
            return size, {"num_gpus": min(1.0, gpus / size), "num_cpus": max((processors - 1) / size, 0.5)}
        size = self.workers or max(processors - 1, 1)
        return size, {"num_cpus": 1 if size < processors else 0.9 * processors / size}


class Actor:
    """One worker."""

    def __init__(self, made: Any, paths: Sequence[str]) -> None:
        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))  # Ray's word for its share of processors
        sys.path += [path for path in paths if path not in sys.path]  # what is imported here is imported there
        self.made = made
        self.work: Callable[[Any], Any] | None = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"done": [pickle.dumps(self._done(item)) for item in batch["item"]]}

    def _done(self, item: bytes) -> Any:
        import ray

        try:
            self.work = self.work or ray.get(self.made)()
            with by_itself() if torch.get_num_threads() == 1 else nullcontext():
                return self.work(pickle.loads(item))
        except FoveaError as reason:
            return reason


def before_ray(address: str | None) -> None:
    """What Ray reads when it is imported. A cluster of our own listens on ports of this machine: nobody talks to it who
    has not its token. One that is joined is told the user's, if there is one, and is not waited for a quarter of an
    hour. Nothing is told to Ray's makers."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"  # a thread that outlives our cluster would join anybody's
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ["RAY_NUM_REDIS_GET_RETRIES"] = "20" if address is None else "1"
    if "RAY_AUTH_MODE" in os.environ or "ray" in sys.modules:  # which has read it, and makes a token itself
        return
    if address is None:
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    elif {"RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"} & {*os.environ} or (Path.home() / ".ray/auth_token").is_file():
        os.environ["RAY_AUTH_MODE"] = "token"


def _knock(address: str) -> None:
    """Ray itself tries for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()


@contextmanager
def joined(address: str | None, workers: int | None = None) -> Iterator[Any]:
    """Ray, connected; a cluster that was started for this ends with it."""
    before_ray(address)
    try:
        import ray
        import ray.data
    except ImportError:
        raise BadChoice(NEEDS) from None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    before = bool(ray.is_initialized())
    if not before:
        try:
            if address is None:
                here = workers or os.cpu_count() or 1
                ray.init(
                    address="local", num_cpus=here + 1, include_dashboard=False, object_store_memory=MEMORY, **quiet
                )
            else:
                _knock(address)
                ray.init(address=address, **quiet)
        except (OSError, RuntimeError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            words = (
                "no Ray cluster starts here"
                if address is None
                else f"--address {address}: no Ray cluster answers there"
            )
            raise BadChoice(f"{words} ({first})") from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        if not before:
            with suppress(OSError):  # one that is gone cannot be left, and would be waited for
                _knock(ray.get_runtime_context().gcs_address)
                ray.shutdown()


def _while_there(ray: Any, rows: Iterable[T]) -> Iterator[T]:
    """What comes, for as long as the cluster is there: Ray would wait a minute for its head, and then end the process
    without a word."""
    head, came = ray.get_runtime_context().gcs_address, Queue[tuple[T | None, BaseException | None]](WAITING)

    def listen() -> None:
        try:
            for row in rows:
                came.put((row, None))
            came.put((None, None))
        except BaseException as error:
            came.put((None, error))

    Thread(target=listen, name="fovea_cluster", daemon=True).start()
    while True:
        try:
            row, error = came.get(timeout=WATCH)
        except Empty:
            _knock(head)
            continue
        if error is not None:
            raise error
        if row is None:
            return
        yield row


@contextmanager
def _in_words(ray: Any) -> Iterator[None]:
    """A cluster that is gone is said to be."""
    try:
        yield
    except ray.exceptions.RayTaskError:  # a fault of fovea's own, with where it happened
        raise
    except (ray.exceptions.RayError, OSError) as error:
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        again = "the same command goes on with what is left"
        raise FoveaError(f"the Ray cluster is gone, or lost its workers ({words}): {again}") from error
