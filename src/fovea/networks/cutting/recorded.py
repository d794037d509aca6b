"""A trunk on a GPU, recorded for a shape of batch and played again: nothing is launched step by step, which is most of
the time that a small batch takes."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fovea.networks.running import Runnable, layers
from fovea.networks.threads import hooked

First = Callable[[Tensor], tuple[Tensor, Sequence[Any]]]  # a batch to features, and what else is read of the trunk
MOST = 4  # recordings that are kept, each with the memory that its batch takes in the trunk
WARM = 2  # passes beside the main stream before one is recorded, so that libraries have chosen their ways


def first_part(network: Runnable, run: First) -> First:
    """The trunk as it is run: recorded, if that was asked for and nobody listens to its layers."""
    return Recorder(network, run) if network.records and not hooked(layers(network.module)) else run


@dataclass(frozen=True)
class Recording:
    """What a trunk did once. It reads and writes the same memory each time, which is kept for it."""

    graph: torch.cuda.CUDAGraph
    given: Tensor
    results: tuple[Tensor, Sequence[Any]]
    weights: Sequence[Tensor]

    def play(self, batch: Tensor) -> tuple[Tensor, Sequence[Any]]:
        self.given.copy_(batch)
        self.graph.replay()
        features, also = self.results
        return features.clone(), [value.clone() if isinstance(value, Tensor) else value for value in also]


class Recorder:
    """Runs a batch of a new shape as it is, records the second, and plays what was recorded for every other.

    Weights that are written in place count from the next batch on; where they are moved or replaced, or torch is set
    otherwise, another recording is made. What cannot be recorded, since it waits for the device, runs as it is.
    """

    def __init__(self, network: Runnable, run: First) -> None:
        self.network, self.run = network, run
        self.known: dict[Any, Recording | None] = {}  # None: it was run once, or cannot be recorded
        self.tried = set[Any]()
        self.turn = threading.Lock()

    def __call__(self, batch: Tensor) -> tuple[Tensor, Sequence[Any]]:
        if torch.is_grad_enabled() or batch.device.type != "cuda" or torch.cuda.is_current_stream_capturing():
            return self.run(batch)
        with self.turn, torch.cuda.device(batch.device):
            parts = layers(self.network.module)
            weights = [
                w for part in parts for w in (*part._parameters.values(), *part._buffers.values()) if w is not None
            ]
            key = batch.shape, batch.dtype, batch.stride(), *_settings(), *(weight.data_ptr() for weight in weights)
            recording = self.known.get(key)
            if recording is None and key in self.known and key not in self.tried:
                self.tried.add(key)
                recording = self.known[key] = self._record(batch, [weight.detach() for weight in weights])
            if recording is not None:
                return recording.play(batch)
            if len(self.known) >= MOST and key not in self.known:
                self.known.clear()
                self.tried.clear()
            self.known.setdefault(key, None)
        return self.run(batch)

    def _record(self, batch: Tensor, weights: Sequence[Tensor]) -> Recording | None:
        given, graph, side = batch.clone(), torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        try:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(WARM):
                    self.run(given)
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                results = self.run(given)
        except RuntimeError:
            torch.cuda.synchronize()
            return None
        return Recording(graph, given, results, weights)


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
