"""fovea.watch: where a network looks in a clip, frame by frame."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from warnings import warn

import numpy as np
import torch
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadNetwork, BadPicture, FoveaError
from fovea.heatmaps.explain import Method, Target, find, look_at
from fovea.heatmaps.heatmap import HeatMap, concat
from fovea.heatmaps.targets import Each, check
from fovea.networks.classes import predictions
from fovea.networks.network import Network, as_found, wrap
from fovea.pictures import MAX_PIXELS
from fovea.pictures.clips import Clip, Frames, Taken, choose, take
from fovea.pictures.footage import MEND, Frame, lost, survey
from fovea.pictures.placement import Placement
from fovea.pictures.shown import Shown
from fovea.video.watched import Watched

__all__ = ["FRAMES", "Reel", "Watched", "reel_of", "takes_clips", "watch", "watch_reel"]

FRAMES = 3  # explained unless another number is asked for
Advance = Callable[[int, int], object]  # so many of so many are done


@dataclass(frozen=True)
class Reel:
    """The frames to explain, all those of the same stretch, when the last is over, and what is to be said of them."""

    frames: Frames
    film: Frames
    end: float
    notes: tuple[str, ...] = ()


def watch(
    net: Network | nn.Module,
    clip: str | PathLike[str] | Clip,
    frames: int | None = None,
    every: int | None = None,
    method: str | Method = "l2caf",
    target: Target = None,
    *,
    start: float = 0.0,
    stop: float | None = None,
    layer: str | nn.Module | None = None,
    batch: int = 16,
    clip_network: bool = False,
    crop: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Watched:
    """Where the network looks in frames of a clip (a file, or a `Clip`): so many evenly spread, 3 unless told, or every
    k-th.

    A network over frames (N,T,C,H,W; `clip_network`, or `takes_frames = True` on the module) sees them together, each
    explained while the others pass unfiltered. To any other network every frame is a picture. `target` is the whole
    output unless given; 'top1' is the class that the mean of all frames' logits puts first, so that one class is
    followed through the clip. Frames are squashed whole into the network's input; `crop` keeps its own crop, which of
    a wide frame leaves out the sides.
    """
    network = net if isinstance(net, Network) else wrap(net)
    network = network if crop else network.squashed()
    if isinstance(clip, Clip):
        if (frames, every, start, stop) != (None, None, 0.0, None):
            raise BadChoice(
                "every frame of a Clip is explained: choose frames as it is read, with fovea.pictures.clips.read_clip"
            )
        if not clip.frames or not clip.rate > 0:
            raise BadChoice(f"a Clip has frames, and a rate above 0; got {len(clip.frames)} and {clip.rate:g}")
        reel = Reel(clip, clip, clip.times[-1] + 1 / clip.rate)
    else:
        reel = reel_of(clip, frames, every, start, stop, max_pixels)
    (found,) = watch_reel(network, reel, [find(method)], target, layer, batch, clip_network)
    for note in found.notes:
        warn(note, stacklevel=2)
    return found


def reel_of(
    path: str | PathLike[str],
    frames: int | None = None,
    every: int | None = None,
    start: float = 0.0,
    stop: float | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Reel:
    """Frames of a file; those that are too many for the memory stay there until they are looked at."""
    footage = survey(path, max_pixels)
    wanted = min(FRAMES, len(footage.times)) if frames is None and every is None else frames
    choice = choose(footage, wanted, every, start, stop)
    taken, notes = take(footage, choice, max_pixels)
    after = choice.among.stop
    end = footage.times[after] if after < len(footage.times) else footage.end
    return Reel(taken, Taken(footage, tuple(choice.among)), end, tuple(notes))


def takes_clips(network: Network) -> bool:
    """Whether it says that it takes frames together."""
    return bool(getattr(network.module, "takes_frames", False))


def watch_reel(
    network: Network,
    reel: Reel,
    methods: Sequence[Method],
    target: Target = None,
    layer: str | nn.Module | None = None,
    batch: int = 16,
    clip_network: bool = False,
    advance: Advance = lambda done, total: None,
) -> list[Watched]:
    """The same with several methods, one Watched each."""
    if isinstance(target, (Each, Tensor, np.ndarray)) or target == "pair":
        raise BadChoice("a clip has targets for all its frames: a class or several, 'top1', 'output' or a callable")
    if batch < 1:
        raise BadChoice(f"a batch holds at least one frame; got {batch}")
    target = "output" if target is None else target  # a class that was trained for may be nowhere in a clip
    check(target, network)
    if clip_network or takes_clips(network):
        return _together(network, reel, methods, target, layer, advance)
    return _one_by_one(network, reel, methods, target, layer, batch, advance)


def _together(
    network: Network,
    reel: Reel,
    methods: Sequence[Method],
    target: Target,
    layer: str | nn.Module | None,
    advance: Advance,
) -> list[Watched]:
    total = len(reel.frames.numbers)
    got = [(frame, *_prepared(network, frame, reel)) for frame in reel.frames.read()]
    reel = _without_lost(reel, [frame.number for frame, *_ in got])
    clip = torch.stack([tensor for _, tensor, _ in got]).unsqueeze(0)  # 1,T,C,H,W
    shown = Shown(reel.frames.name, got[0][2], reel.frames)
    maps, output = look_at(network, clip.to(network.device, network.dtype), [shown], methods, target, layer)
    advance(total, total)
    found = []
    for one in maps.values():
        if not one.frames:
            raise BadNetwork(
                f"layer {one.layer!r} has no map of each frame, since the network mixes them before it: name an "
                "earlier layer, or explain the clip as a tensor (fovea.explain)"
            )
        found.append(_watched(network, one, reel, _shares(network, output, one), ()))
    return found


def _one_by_one(
    network: Network,
    reel: Reel,
    methods: Sequence[Method],
    target: Target,
    layer: str | nn.Module | None,
    batch: int,
    advance: Advance,
) -> list[Watched]:
    total = len(reel.frames.numbers)
    own, before = target, 0
    if _asks_for_best(target) and not all(getattr(one, "oblivious", False) for one in methods):
        own, before = _followed(network, reel, target, batch, lambda done: advance(done, 2 * total)), total
    parts: list[dict[str, HeatMap]] = []
    numbers: list[int] = []
    shares: dict[str, list[tuple[float, ...]]] = {one.name: [] for one in methods}
    summed: Tensor | None = None
    for group, tensors, placement in _batches(network, reel, batch):
        shown = [Shown(reel.frames.name, placement, reel.frames)] * len(group)
        with _as_pictures():
            maps, output = look_at(network, tensors, shown, methods, own, layer)
        parts.append(maps)
        numbers += [frame.number for frame in group]
        for name, one in maps.items():
            shares[name] += [_shares(network, row.unsqueeze(0), one) for row in output]
        summed = output.float().sum(0) if summed is None else summed + output.float().sum(0)
        advance(before + len(numbers), before + total)
    reel = _without_lost(reel, numbers)
    assert summed is not None
    mean = (summed / len(numbers)).unsqueeze(0)  # 1,C
    found = []
    for name in parts[0]:
        seen = _as_clip(concat([part[name] for part in parts]), reel, predictions(network, mean)[0])
        found.append(_watched(network, seen, reel, _shares(network, mean, seen), tuple(shares[name])))
    return found


def _asks_for_best(target: Target) -> bool:
    listed = target if isinstance(target, (list, tuple)) else [target]
    return any(_top(one) is not None for one in listed)


def _top(target: object) -> int | None:
    """The k of 'top k'."""
    found = re.fullmatch(r"top-?(\d+)", target) if isinstance(target, str) else None
    return int(found[1]) if found else None


def _followed(
    network: Network, reel: Reel, target: Target, batch: int, advance: Callable[[int], object]
) -> list[object]:
    """The targets with 'top k' as the classes that the mean of all frames' logits puts first."""
    summed, done = None, 0
    for group, tensors, _ in _batches(network, reel, batch):
        with _as_pictures(), as_found(network), torch.no_grad():
            own = network(tensors).float()
        summed = own.sum(0) if summed is None else summed + own.sum(0)
        done += len(group)
        advance(done)
    if summed is None:
        raise BadPicture(f"{reel.frames.name} is damaged: none of its frames can be decoded; {MEND}")
    found: list[object] = []
    for one in target if isinstance(target, (list, tuple)) else [target]:
        k = _top(one)
        if k is not None and (summed.ndim != 1 or not 1 <= k <= len(summed)):
            raise BadChoice(f"{one} needs an output of at least {k} classes; this network gives {tuple(summed.shape)}")
        found += [one] if k is None else summed.topk(k).indices.tolist()
    return found


def _batches(network: Network, reel: Reel, size: int) -> Iterator[tuple[list[Frame], Tensor, Placement]]:
    """Frames as the network takes pictures, n,C,H,W."""
    group: list[Frame] = []
    tensors: list[Tensor] = []
    placement: Placement | None = None
    for frame in reel.frames.read():
        tensor, placement = _prepared(network, frame, reel)
        group.append(frame)
        tensors.append(tensor)
        if len(group) == size:
            yield group, torch.stack(tensors).to(network.device, network.dtype), placement
            group, tensors = [], []
    if group and placement is not None:
        yield group, torch.stack(tensors).to(network.device, network.dtype), placement


def _prepared(network: Network, frame: Frame, reel: Reel) -> tuple[Tensor, Placement]:
    try:
        return network.prepare(frame.image)
    except FoveaError:
        raise
    except Exception as error:  # the user's own transform
        raise BadPicture(f"frame {frame.number} of {reel.frames.name}: the transform failed: {error}") from None


@contextmanager
def _as_pictures() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        if isinstance(error, (FoveaError, torch.OutOfMemoryError)):
            raise
        raise BadNetwork(
            f"the network failed on frames given as pictures, N,C,H,W ({error}); one that takes clips, N,T,C,H,W, "
            "is told by clip_network=True, or by takes_frames = True on the module"
        ) from error


def _without_lost(reel: Reel, numbers: Sequence[int]) -> Reel:
    """What could be decoded of frames that were read from the file as they were looked at."""
    count = len(reel.frames.numbers)
    if not numbers:
        raise BadPicture(f"{reel.frames.name} is damaged: none of its frames can be decoded; {MEND}")
    if len(numbers) == count or not isinstance(reel.frames, Taken):
        return reel
    note = lost(reel.frames.name, count - len(numbers), count)
    return replace(reel, frames=replace(reel.frames, numbers=tuple(numbers)), notes=(*reel.notes, note))


def _as_clip(seen: HeatMap, reel: Reel, best: tuple[tuple[str, float], ...]) -> HeatMap:
    """Maps of T pictures as those of one clip: 1,T,K,h,w."""
    shown = replace(seen.shown[0], picture=reel.frames, predictions=best)
    words = [next((f"frame {t}: {row[k]}" for t, row in enumerate(seen.diagnosis) if row[k]), None)
             for k in range(seen.values.shape[1])]  # fmt: skip
    return replace(
        seen,
        values=seen.values.unsqueeze(0),
        shown=(shown,),
        targets=seen.targets[:1],
        loss=None if seen.loss is None else seen.loss.unsqueeze(0),
        diagnosis=(tuple(words),),
        classes=seen.classes[:1],
        frames=True,
    )


def _shares(network: Network, output: Tensor, seen: HeatMap) -> tuple[float, ...]:
    """The probability of each target in one row of output, where all of them are classes that have one."""
    classes = seen.classes[0]
    if network.labels is None or output.ndim != 2 or output.shape[1] < 2 or None in classes:
        return ()
    own = output[0].detach().float().softmax(0)
    return tuple(float(own[one]) for one in classes if one is not None)


def _watched(
    network: Network, seen: HeatMap, reel: Reel, share: tuple[float, ...], shares: tuple[tuple[float, ...], ...]
) -> Watched:
    frames = reel.frames
    return Watched(
        seen, frames.times, frames.numbers, frames.rate, network.name, share, shares, reel.film, reel.end, reel.notes
    )
