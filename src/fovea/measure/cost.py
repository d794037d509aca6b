"""What a network costs: parameters, multiplications, time, memory, and what it reads."""

import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fovea.errors import BadChoice, BadNetwork, FoveaError
from fovea.measure.figures import Figures
from fovea.measure.speed import peak_megabytes
from fovea.measure.stream import blank
from fovea.nets.anchornet_sound import Spectrogram
from fovea.nets.glimpsing import Glimpsing, Pixels, Walk
from fovea.nets.norms import Statistics
from fovea.nets.twostream import TwoStream, Views
from fovea.network import Network, as_found
from fovea.pictures import read
from fovea.texts import Reading
from fovea.windows import middle

WARM_UP = 3
Call = Callable[[], Any]


@dataclass(frozen=True)
class Told:
    """What a paper says of a network."""

    paper: str
    classes: int
    params: float  # with batch norm's statistics
    macs: Mapping[int | None, float] = field(default_factory=dict)  # by the number of locations


PAPERS = {
    "bagnet77": (Told("TNet, Table 1", 1000, 20.55e6, {None: 18.42e9}),),
    "tnet-bagnet77": (Told("TNet, Table 1", 1000, 21.86e6, {0: 1.82e9, 1: 3.63e9, 2: 5.43e9, 3: 7.24e9, 5: 10.84e9}),),
    "tnet-b0": (Told("TNet, Table 2", 62, 4.56e6, {0: 0.39e9, 1: 0.77e9, 2: 1.16e9, 3: 1.55e9, 4: 1.94e9, 6: 2.71e9}),),
    "saccader": (
        Told("TNet, Table 1", 1000, 35.58e6, {2: 19.5e9, 6: 19.5e9, 20: 19.51e9, 30: 19.51e9}),
        Told("Saccader, supplement", 1001, 35_583_913),
    ),
    "dram": (
        Told("TNet, Table 1", 1000, 45.61e6, {2: 1.86e9, 4: 3.1e9, 8: 5.58e9, 20: 13.03e9}),
        Told("Saccader, supplement", 1001, 45_610_219),
    ),
}


def measure(
    network: Network,
    size: int | None = None,
    batch: int = 1,
    rounds: int = 11,
    picture: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
    locations: int | None = None,
) -> Figures:
    """One row for pictures of `size` x `size`, or of the size that the network takes. Weights do not matter.

    `picture` is a file whose pixels and bytes are told beside those of the network's input. `locations` is how many
    glimpses are read by a network that reads glimpses; as it usually does if not given.
    """
    if batch < 1 or rounds < 1:
        raise BadChoice(f"a batch and the rounds are at least 1; got {batch} and {rounds}")
    read_of_file = {} if picture is None else of_file(picture)
    shape = input_shape(network, size)
    pixels = torch.rand(batch, *shape, generator=torch.Generator().manual_seed(0)).to(network.device, network.dtype)

    def forward() -> Any:
        with torch.no_grad():
            return answered(network, pixels, locations)

    with as_found(network):
        multiplications = _refused_clearly(network, shape, lambda: macs(network, pixels[:1], locations))
        with torch.no_grad():
            one = answered(network, pixels[:1], locations)
        taken = seconds(forward, network.device, rounds, progress)
        peak = peak_mb(forward, network.device)
    side = shape[-1] if shape[-1] == shape[-2] else f"{shape[-2]} x {shape[-1]}"
    row = {
        "net": network.name or "network",
        "params": parameters(network.module),
        "buffers_params": parameters(network.module) + statistics(network.module),
        "macs": multiplications,
        "size": side,
        **({"locations": one.glimpses} if isinstance(one, Walk) else {}),
        "batch": batch,
        "ms_per_picture": round(taken / batch * 1e3, 3),
        "peak_mb": round(peak, 1),
        "pixels": shape[-2] * shape[-1],
        "bytes": pixels[0].nbytes,
        **seen_by_cells(network, (shape[-2], shape[-1])),
        **read_of_file,
    }
    settings = {
        "device": network.device.type,
        "threads": torch.get_num_threads(),
        "rounds": rounds,
        "params": "trained values; buffers_params counts the running statistics of batch norm with them",
        "macs": "multiplications a picture (TNet, Eq. 11), those between activations in attention included",
        "ms_per_picture": f"median of {rounds} forwards of the batch after {WARM_UP} to warm up, by the batch",
        "peak_mb": "the most that the tensors of one forward of the batch take up at once, weights not counted",
        "pixels": "that the network takes of each picture, and their bytes as a tensor",
    }
    return Figures("cost", settings, [row])


def seen_by_cells(network: Network, size: tuple[int, int]) -> dict[str, str]:
    """The patches of a network with branches: their sides, and how many there are; nothing of another network."""
    from fovea.localizing.scales import Anchored

    if not isinstance(network.module, Anchored):
        return {}
    found = network.module.geometries(size)
    return {
        "receptive_fields": "/".join(f"{one.size[0]:g}" for one in found),
        "grids": "/".join(" x ".join(map(str, one.grid)) for one in found),
        "patches": "cells see their own patch" if network.module.proven else "cells see the whole picture",
    }


def placed(network: Network, device: str) -> Network:
    """The network on a device that there is."""
    if device not in ("cpu", "cuda"):
        raise BadChoice(f"a device is cpu or cuda; got {device!r}")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadChoice("there is no GPU that torch can use here: leave the device out, or name cpu")
    network.module.to(device)
    return network


def parameters(module: nn.Module) -> int:
    return sum(one.numel() for one in module.parameters())


def statistics(module: nn.Module) -> int:
    """Running means and variances, which TensorFlow, and so TNet's paper, counts with the parameters."""
    kept = ("running_mean", "running_var")
    shared = sum(one.numel() for name, one in module.named_buffers() if name.rpartition(".")[2] in kept)
    by_level = [one for one in module.modules() if isinstance(one, Statistics)]
    return shared + sum(one.mean.numel() + one.var.numel() for one in by_level)


def answered(network: Network, pixels: Tensor, glimpses: int | None = None) -> Any:
    """What the network makes of prepared pictures; of so many glimpses of each, where a number is given.

    Two streams without a patch source, as they are before training, are given the whole picture as every patch.
    """
    if glimpses is None and isinstance(network.module, TwoStream) and network.module.waits_for_boxes:
        whole = middle(len(pixels), 1.0, pixels).unsqueeze(1).expand(-1, network.module.patches, -1)
        return network.module(Views(pixels, whole))
    if glimpses is None:
        return network.module(pixels)
    if not isinstance(network.module, Glimpsing):
        raise BadChoice(
            f"{network.name or 'the network'} reads whole pictures: leave the number of locations out, "
            "or name a network that reads glimpses, as tnet-b0"
        )
    # windows are shrunk as the network's own forward does it
    return network.module.walk(Pixels(pixels, bool(getattr(network.module, "antialias", True))), glimpses)


def macs(network: Network, pixels: Tensor, glimpses: int | None = None) -> int:
    """Multiplications of a forward: of a convolution (C_in k^2) (H_out W_out C_out), Eq. 11, C_in that of one group.

    A linear layer is k = 1. Products of two activations, as in attention, are counted alike, though Eq. 11 has none.
    """
    if isinstance(network.module, TwoStream):
        answered(network, pixels, glimpses)  # a patch source finds out once where its network is to be looked at
    counter = FlopCounterMode(display=False)
    with as_found(network) as parts, torch.no_grad(), _step_by_step(parts), counter:
        answered(network, pixels, glimpses)
    return int(counter.get_total_flops()) // 2  # torch counts the additions too


@contextmanager
def _step_by_step(parts: Sequence[nn.Module]) -> Iterator[None]:
    """Attention and recurrent layers as the matrix products they are: fused into one, they are counted as nothing."""
    before = torch.backends.mha.get_fastpath_enabled()
    recurrent = any(isinstance(one, nn.RNNBase) for one in parts)
    onednn = torch.backends.mkldnn.enabled
    with warnings.catch_warnings(), sdpa_kernel(SDPBackend.MATH):
        warnings.simplefilter("ignore")  # setting the flags speaks of other processors
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            with torch.backends.mkldnn.flags(enabled=onednn and not recurrent):
                yield
        finally:
            torch.backends.mha.set_fastpath_enabled(before)


def seconds(
    call: Call, device: torch.device, rounds: int, progress: Callable[[int, int], None] = lambda done, total: None
) -> float:
    """The median time of a call, after some to warm up."""
    taken = []
    for turn in range(WARM_UP + rounds):
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        taken.append(time.perf_counter() - start)
        progress(turn + 1, WARM_UP + rounds)
    return median(taken[WARM_UP:])


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def peak_mb(call: Call, device: torch.device) -> float:
    """The most that tensors made during a call take up at once, in MB of 2**20 bytes."""
    if device.type != "cuda":
        return peak_megabytes(call)
    _wait(device)
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    call()
    _wait(device)
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def input_shape(network: Network, size: int | None) -> tuple[int, ...]:
    """C,H,W of what the network takes: as its transform gives it, or `size` x `size`."""
    if size is not None and size < 1:
        raise BadChoice(f"an input has at least one pixel a side; got {size}")
    if isinstance(network.transform, (Reading, Spectrogram)):
        raise BadChoice(
            f"{network.name or 'the network'} takes no pictures: fovea measure text and fovea measure sounds tell of it"
        )
    if network.transform is not None:
        channels, *own = blank(network).shape[1:]
        return (channels, *(own if size is None else (size, size)))
    if size is None:
        raise BadChoice("this network has no transform that says what it takes: give the side of its input, size=224")
    first = next((one for one in network.module.modules() if isinstance(one, nn.Conv2d)), None)
    return 3 if first is None else first.in_channels, size, size


def of_file(path: Path) -> dict[str, int]:
    """What decoding a picture's file reads."""
    image = read(path)
    return {"picture_pixels": image.width * image.height, "picture_bytes": path.stat().st_size}


def _refused_clearly(network: Network, shape: tuple[int, ...], call: Callable[[], int]) -> int:
    try:
        return call()
    except FoveaError:  # says what is wrong itself
        raise
    except Exception as error:
        said = str(error).partition("\n")[0]
        raise BadNetwork(
            f"{network.name or 'the network'} does not take {' x '.join(map(str, shape))} (channels, height, width): "
            f"{said}"
        ) from error


def readable(row: Mapping[str, Any]) -> list[dict[str, str]]:
    """A row as lines for people."""
    lines = {
        "parameters": f"{_short(row['params'])} ({_short(row['buffers_params'])} with batch norm's statistics)",
        "multiplications a picture": f"{_giga(row['macs'])}MACs",
        "time a picture": f"{row['ms_per_picture']:,.3g} ms",
        "peak memory of a batch": f"{row['peak_mb']:,.1f} MB beside the weights",
        "read of a picture": f"{row['pixels']:,} pixels, {row['bytes']:,} bytes as a tensor",
    }
    if "locations" in row:
        lines["locations read"] = str(row["locations"])
    if "receptive_fields" in row:
        lines["receptive fields"] = f"{row['receptive_fields']} pixels; {row['patches']}"
        lines["grids"] = row["grids"]
    for told in PAPERS.get(row["net"], ()):
        count = told.macs.get(row.get("locations"))
        shown = f"{_short(round(told.params))} parameters" + ("" if count is None else f", {_giga(round(count))}MACs")
        lines[f"{told.paper}, says"] = f"{shown}, with {told.classes:,} classes"
    if "picture_pixels" in row:
        lines["in the file given"] = f"{row['picture_pixels']:,} pixels, {row['picture_bytes']:,} bytes"
    return [{"what": what, "figure": figure} for what, figure in lines.items()]


def _giga(number: int) -> str:
    """As papers write it: 492,015,256 as 0.492 G."""
    return f"{number / 1e9:.3f} G" if 1e8 <= number < 1e9 else _short(number)


def _short(number: int) -> str:
    """25,557,032 as 25.56 M."""
    for power, unit in ((9, "G"), (6, "M"), (3, "k")):
        if number >= 10**power:
            return f"{number / 10**power:.2f} {unit}"
    return f"{number} "
