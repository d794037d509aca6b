"""What a network costs: parameters, multiplications, time and memory."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity, profile
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from fovea.basics import BadChoice
from fovea.networks.checking import refusing
from fovea.networks.network import Network, as_found
from fovea.networks.stream import blank
from fovea.networks.threads import alone

ATTENTION = (nn.MultiheadAttention, nn.TransformerEncoderLayer)


Call = Callable[[], Any]


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def statistics(module: nn.Module) -> int:
    """Running means and variances, which TensorFlow, and so TNet's paper, counts with the parameters."""
    kept = ("running_mean", "running_var", "statistics.mean", "statistics.var")  # the latter are of several levels
    return sum(buffer.numel() for name, buffer in module.named_buffers() if f".{name}".endswith(kept))


def answered(network: Network, pixels: Tensor, glimpses: int | None = None) -> Any:
    """What the network makes of prepared pictures; of so many glimpses of each, where a number is given. Two streams
    without a patch source, as they are before training, are given the whole picture as every patch."""
    module: Any = network.module
    if glimpses is None and network.can("streams") and not module.needs:
        return module.on_whole(pixels)
    if glimpses is None:
        return network.answer(pixels)
    if not network.can("glimpses"):
        mend = "leave the number of locations out, or name a network that reads glimpses, as tnet-b0"
        raise BadChoice(f"{network.name or 'the network'} reads whole pictures: {mend}")
    with refusing(module, pixels, network.name):
        return module(pixels, glimpses)


def macs(network: Network, pixels: Tensor, glimpses: int | None = None) -> int:
    """Multiplications of a forward: of a convolution (C_in k^2) (H_out W_out C_out), Eq. 11, C_in that of one group. A
    linear layer is k = 1. Products of two activations, as in attention, are counted alike, though Eq. 11 has none."""
    if getattr(network.module, "needs", ""):
        answered(network, pixels, glimpses)  # a patch source finds out once where its network is to be looked at
    counter = FlopCounterMode(display=False)
    counter.mod_tracker = _Nowhere()  # type: ignore[assignment]
    with alone(network.device), as_found(network) as parts, torch.no_grad(), _step_by_step(parts), counter:
        answered(network, pixels, glimpses)
    return int(counter.get_total_flops()) // 2  # torch counts the additions too


class _Nowhere(nullcontext[None]):
    """Which module is running is not asked: torch would listen to the modules of all threads for it."""

    parents = ("Global",)


@contextmanager
def _step_by_step(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Attention and recurrent layers as the matrix products they are: fused into one, they are counted as nothing. How
    torch runs them is one setting for all threads, so it is left as it is where no layer asks for another."""
    recurrent, attentive = (any(isinstance(part, kind) for part in parts) for kind in (nn.RNNBase, ATTENTION))
    counted = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu in flop_registry  # else it is taken apart
    fast = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as settings:
        if attentive or not counted:
            settings.enter_context(sdpa_kernel(SDPBackend.MATH))
            settings.callback(torch.backends.mha.set_fastpath_enabled, fast)
            torch.backends.mha.set_fastpath_enabled(False)
        if recurrent:
            settings.enter_context(warnings.catch_warnings())
            warnings.simplefilter("ignore")  # setting the flags speaks of other processors
            settings.enter_context(torch.backends.mkldnn.flags(enabled=False))
        yield


def peak_mb(call: Call, device: torch.device) -> float:
    """The most that tensors made during a call take up at once, in MB of 2**20 bytes."""
    if device.type != "cuda":
        return peak_megabytes(call)
    torch.cuda.synchronize(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    torch.cuda.synchronize(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def input_shape(network: Network, size: int | None) -> tuple[int, ...]:
    """C,H,W of what the network takes: as its transform gives it, or `size` x `size`."""
    if size is not None and size < 1:
        raise BadChoice(f"an input has at least one pixel a side; got {size}")
    if network.can("texts") or network.can("sounds"):
        mend = "fovea measure text and fovea measure sounds tell of it"
        raise BadChoice(f"{network.name or 'the network'} takes no pictures: {mend}")
    if network.transform is not None:
        channels, *own = blank(network).shape[1:]
        return (channels, *(own if size is None else (size, size)))
    if size is None:
        raise BadChoice("this network has no transform that says what it takes: give the side of its input, size=224")
    first = next((layer for layer in network.module.modules() if isinstance(layer, nn.Conv2d)), None)
    return 3 if first is None else first.in_channels, size, size


def peak_megabytes(call: Call) -> float:
    """The most that tensors made during a call take up at once, summed from the profiler's record of allocations."""
    call()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, acc_events=True) as record:
        call()
    events = [event for event in record.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = np.cumsum([event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())])
    return float(held.max()) / 2**20
