"""A trunk on a GPU, recorded for a shape of batch and played again: nothing is launched step by step, which is most of
the time that a small batch takes."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fovea.networks.running import Runnable
from fovea.networks.threads import hooked, plain

First = Callable[[Tensor], tuple[Tensor, Sequence[Any]]]  # a batch to features, and what else is read of the trunk
MOST = 4  # recordings that are kept; they share the memory that the largest of them takes
OFTEN = 3  # batches of a shape that run as they are before one is recorded
SMALL = 32 * 3 * 224 * 224  # numbers of a batch whose layers take longer to launch than to run
WARM = 2  # passes beside the main stream before one is recorded, so that libraries have chosen their ways


def first_part(network: Runnable, run: First) -> First:
    """The trunk as it is run: recorded, if nobody listens to its layers and they keep nothing between calls."""
    parts = network.parts
    wanted = plain(set(map(type, parts))) if network.records is None else network.records
    return Recorder(run, parts, network.records or False) if wanted and not hooked(parts) else run


@dataclass(frozen=True)
class Recording:
    """What a trunk did once. It reads and writes the same memory each time, which is kept for it."""

    graph: torch.cuda.CUDAGraph
    given: Tensor
    results: tuple[Tensor, Sequence[Any]]

    def play(self, batch: Tensor) -> tuple[Tensor, Sequence[Any]]:
        self.given.copy_(batch)
        self.graph.replay()
        features, also = self.results
        return features.clone(), [value.clone() if isinstance(value, Tensor) else value for value in also]


class Recorder:
    """Runs the first batches of a shape as they are, records one, and plays what was recorded for every other. Weights
    that are written in place count from the next batch on; where they are moved or replaced, or torch is set otherwise,
    another recording is made. What cannot be recorded, since it waits for the device, runs as it is, and so does a
    batch that is not SMALL, unless `always`."""

    def __init__(self, run: First, parts: Sequence[nn.Module], always: bool) -> None:
        self.run, self.parts, self.always = run, parts, always
        self.weights = list[Tensor]()  # kept, so that nothing else can be where they are
        self.known = dict[Any, Recording | int | None]()  # or how often it was run; None: it cannot be recorded
        self.pools = dict[int, Any]()  # of memory, by the stream that they are used in
        self.turn = threading.Lock()

    def __call__(self, batch: Tensor) -> tuple[Tensor, Sequence[Any]]:
        large = not self.always and batch.numel() > SMALL
        if torch.is_grad_enabled() or large or batch.device.type != "cuda" or hooked(()):  # by hooks on all modules
            return self.run(batch)
        with self.turn, torch.cuda.device(batch.device):
            self._forget_other_weights()
            key = batch.shape, batch.dtype, batch.stride(), *_settings()
            known = self.known.get(key, 0)
            if isinstance(known, int):
                if len(self.known) >= MOST and not known:
                    self.known.clear()
                known = self.known[key] = known + 1 if known < OFTEN else self._recording(batch)
            if isinstance(known, Recording):
                return known.play(batch)
        return self.run(batch)

    def _forget_other_weights(self) -> None:
        own = [(vars(part)["_parameters"], vars(part)["_buffers"]) for part in self.parts]
        weights = [w for pair in own for tensors in pair for w in tensors.values() if w is not None]
        places = [w.data_ptr() for w in weights]
        if places != [w.data_ptr() for w in self.weights]:
            self.weights = [w.detach() for w in weights]
            self.known.clear()

    def _recording(self, batch: Tensor) -> Recording | None:
        given, graph, side = batch.clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream = torch.cuda.current_stream()
        pool = self.pools.setdefault(stream.cuda_stream, torch.cuda.graph_pool_handle())
        try:
            side.wait_stream(stream)
            with torch.cuda.stream(side):
                for _ in range(WARM):
                    self.run(given)
            stream.wait_stream(side)
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                results = self.run(given)
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return Recording(graph, given, results)


def _settings() -> tuple[Any, ...]:
    """What else decides how a pass is made."""
    backends = torch.backends.cudnn
    return (
        torch.cuda.current_stream().cuda_stream,
        torch.is_autocast_enabled("cuda") and torch.get_autocast_dtype("cuda"),
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        backends.enabled,
        backends.allow_tf32,
        backends.deterministic,
        backends.benchmark,
    )
