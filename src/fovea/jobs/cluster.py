"""Ray Data as an engine: workers hold what does the work, items stream to them, and one that dies is replaced."""

import logging
import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from fovea.basics import BadChoice, FoveaError

NEEDS = "--engine ray needs packages that are not installed: pip install 'fovea[cluster]'"
MEMORY = 256 << 20  # bytes of the object store of a cluster that is started here: items are small
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
                fn_constructor_args=(made,),
                batch_size=1,
                compute=ray.data.ActorPoolStrategy(size=min(size, len(items)), max_tasks_in_flight_per_actor=2),
                **needs,
            )
            for row in done.iter_rows():
                yield pickle.loads(row["done"])

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

    def __init__(self, made: Any) -> None:
        import ray

        torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or 1))  # Ray's word for its share of processors
        make: Callable[[], Callable[[Any], Any]] = ray.get(made)
        self.work: Callable[[Any], Any] = make()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        return {"done": [pickle.dumps(self.work(pickle.loads(item))) for item in batch["item"]]}


@contextmanager
def joined(address: str | None, workers: int | None = None) -> Iterator[Any]:
    """Ray, connected; a cluster that was started for this ends with it."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody is told what is done here
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what goes wrong is told in words
    try:
        import ray
        import ray.data
    except ImportError:
        raise BadChoice(NEEDS) from None
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    before = ray.is_initialized()
    if not before:
        try:
            if address is None:
                here = workers or os.cpu_count() or 1
                ray.init(
                    address="local", num_cpus=here + 1, include_dashboard=False, object_store_memory=MEMORY, **quiet
                )
            else:
                ray.init(address=address, **quiet)
        except (ConnectionError, RuntimeError, ValueError) as error:
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise BadChoice(f"--address {address}: no Ray cluster answers there ({first})") from None
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    try:
        yield ray
    finally:
        if not before:
            ray.shutdown()


@contextmanager
def _in_words(ray: Any) -> Iterator[None]:
    """What went wrong in a worker, as it would be said here; a cluster that is gone is said to be."""
    try:
        yield
    except ray.exceptions.RayTaskError as error:
        cause: BaseException | None = error
        while cause is not None and not isinstance(cause, FoveaError):
            cause = getattr(cause, "cause", None) or cause.__cause__
        if cause is None:
            raise
        raise cause from None
    except (ray.exceptions.RayError, ConnectionError) as error:
        words = (str(error).strip() or type(error).__name__).splitlines()[0]
        again = "the same command goes on with what is left"
        raise FoveaError(f"the Ray cluster is gone, or lost its workers ({words}): {again}") from error
