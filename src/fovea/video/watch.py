"""fovea.watch: where a network looks in a clip, frame by frame."""

import os
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TypeAlias
from warnings import warn

import numpy as np
import torch
from torch import Tensor

from fovea import networks, pictures
from fovea.basics import BadChoice, BadNetwork, BadPicture, FoveaError, demand_bounds, demand_kinds
from fovea.heatmaps import DEFAULT, Each, Explained, HeatMaps, Layer, MethodLike, Target, check, concat, look_at
from fovea.heatmaps.methods import Method, find
from fovea.networks import DoesNotRun, Network, NetworkLike, as_found, as_network, input_of, labeled, predictions
from fovea.pictures import MAX_PIXELS, Clip, Frame, Frames, Placement, Shown, Taken, batched
from fovea.results import Results, Step
from fovea.video.watched import Watched

__all__ = ["Reel", "Watched", "Watching", "reel_of", "takes_clips", "watch", "watch_batches", "watch_reel"]

FRAMES = 3  # explained unless another number is asked for
OneClip: TypeAlias = str | os.PathLike[str] | Clip
Working: TypeAlias = Generator[Step[Explained], None, list[Watched]]  # how far it is, as it goes
Following: TypeAlias = Generator[Step[Explained], None, list[object]]
Shares: TypeAlias = tuple[float, ...]  # probabilities


@dataclass(frozen=True)
class Watching:
    """Which frames of a clip are explained, and how."""

    frames: int | None = None  # so many, evenly spread
    every: int | None = None  # or every k-th
    start: float = 0.0  # seconds
    stop: float | None = None
    layer: Layer = None
    batch: int = 16
    clip_network: bool = False  # frames are seen together
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        demand_bounds(vars(self))


@dataclass(frozen=True)
class Reel:
    """The frames to explain, all those of the same stretch, when the last is over, and what is to be said of them."""

    frames: Frames
    film: Frames
    end: float
    notes: tuple[str, ...] = ()


def watch(  # a public door: what may be asked for is all here
    net: NetworkLike,
    clips: OneClip | Iterable[OneClip],
    *,
    frames: int | None = None,
    every: int | None = None,
    method: MethodLike = DEFAULT,
    target: Target = None,
    start: float = 0.0,
    stop: float | None = None,
    layer: Layer = None,
    batch: int = 16,
    device: str | torch.device | None = None,
    fit: str | None = None,
    clip_network: bool = False,
    max_pixels: int = MAX_PIXELS,
) -> Results[Watched]:
    """Where the network looks in frames of clips (files, folders, globs, a `Clip`): so many evenly spread, 3 unless
    given, or every k-th.

    A network over frames (N,T,C,H,W; `clip_network`, or `takes_frames = True` on the module) sees them together, each
    explained while the others pass unfiltered. To any other network every frame is a picture. `target` is the whole
    output unless given; 'top1' is the class that the mean of all frames' logits puts first, so that one class is
    followed through the clip. `fit` is as for `explain`: of a wide frame, 'crop' leaves out the sides. A clip that
    cannot be read is left out, as a picture is by `explain`."""
    demand_kinds(watch, locals(), but="method")
    network = as_network(net, device).fitted(fit)
    how = Watching(frames, every, start, stop, layer, batch, clip_network, max_pixels)
    watched, skipped = list[Watched](), list[tuple[str, str]]()
    for step in watch_batches(network, clips, [find(method)], target, how):
        watched += [part for result in step.results for part in result.parts if isinstance(part, Watched)]
        skipped += step.skipped
    pictures.tell_skipped(bool(watched), skipped)
    for note in (note for clip in watched for note in clip.notes):
        warn(note, stacklevel=2)
    settings = {"net": network.name, "method": find(method).name, "input": input_of(network)}
    return Results[Watched](watched, skipped, "watch", settings)


def watch_batches(
    network: Network, clips: OneClip | Iterable[OneClip], methods: Sequence[Method], target: Target, how: Watching
) -> Iterator[Step[Explained]]:
    """Clip after clip, and how far it is in each."""
    given = _gathered(clips)
    for number, clip in enumerate(given, 1):
        try:
            watched = yield from watch_reel(network, _reel(clip, how), methods, target, how)
        except BadPicture as reason:
            name = clip.name if isinstance(clip, Clip) else str(clip)
            yield Step([], [(name, str(reason))], number, len(given))
            continue
        yield Step([Explained(tuple(watched))], [], number, len(given))


def _gathered(clips: OneClip | Iterable[OneClip]) -> list[OneClip]:
    if isinstance(clips, Clip):
        return [clips]
    if isinstance(clips, (str, os.PathLike)):
        return list(pictures.expand_clips(clips)) or [clips]  # no clip by its name is tried, and refused in words
    if isinstance(clips, (bytes, Tensor, np.ndarray)) or not isinstance(clips, Iterable):
        raise BadChoice(f"a clip is a file, a folder, a glob or a Clip; got {type(clips).__name__}")
    return [clip for item in clips for clip in _gathered(item)]


def _reel(clip: OneClip, how: Watching) -> Reel:
    if not isinstance(clip, Clip):
        return reel_of(clip, how)
    if (how.frames, how.every, how.start, how.stop) != (None, None, 0.0, None):
        raise BadChoice("every frame of a Clip is explained: choose as it is read, with fovea.pictures.clips.read_clip")
    if not clip.frames or not clip.rate > 0:
        raise BadChoice(f"a Clip has frames, and a rate above 0; got {len(clip.frames)} and {clip.rate:g}")
    return Reel(clip, clip, clip.times[-1] + 1 / clip.rate)


def reel_of(path: str | os.PathLike[str], how: Watching) -> Reel:
    """Frames of a file; those that are too many for the memory stay there until they are looked at."""
    footage = pictures.survey(path, how.max_pixels)
    wanted = min(FRAMES, len(footage.times)) if how.frames is None and how.every is None else how.frames
    choice = pictures.choose(footage, wanted, how.every, how.start, how.stop)
    taken, notes = pictures.take(footage, choice, how.max_pixels)
    after = choice.among.stop
    end = footage.times[after] if after < len(footage.times) else footage.end
    return Reel(taken, Taken(footage, tuple(choice.among)), end, tuple(notes))


def takes_clips(network: Network) -> bool:
    """Whether it says that it takes frames together."""
    return network.can("frames") or bool(getattr(network.module, "takes_frames", False))


def watch_reel(network: Network, reel: Reel, methods: Sequence[MethodLike], target: Target, how: Watching) -> Working:
    """The same with several methods, one Watched each."""
    if isinstance(target, (Each, Tensor, np.ndarray)) or target == "pair":
        raise BadChoice("a clip has targets for all its frames: a class or several, 'top1', 'output' or a callable")
    target = "output" if target is None else target  # a class that was trained for may be nowhere in a clip
    check(target, network)
    looked = _together if how.clip_network or takes_clips(network) else _one_by_one
    watched = yield from looked(network, reel, list(map(find, methods)), target, how)
    return [replace(part, alone=len(watched) == 1) for part in watched]


def _together(network: Network, reel: Reel, methods: Sequence[Method], target: Target, how: Watching) -> Working:
    total = len(reel.frames.numbers)
    taken = [(frame, *_prepared(network, frame, reel)) for frame in reel.frames.read()]
    reel = _without_lost(reel, [frame.number for frame, *_ in taken])
    clip = torch.stack([tensor for _, tensor, _ in taken]).unsqueeze(0)  # 1,T,C,H,W
    shown = Shown(reel.frames.name, taken[0][2], reel.frames)
    maps, output = look_at(network, clip.to(network.device, network.dtype), [shown], methods, target, how.layer)
    yield Step([], [], total, total)
    for heatmaps in maps.values():
        if not heatmaps.frames:
            raise BadNetwork(
                f"layer {heatmaps.layer!r} has no map of each frame, since the network mixes them before it: name an "
                "earlier layer, or explain the clip as a tensor (fovea.explain)"
            )
    return [_watched(network, heatmaps, reel, _shares(network, output, heatmaps), ()) for heatmaps in maps.values()]


def _one_by_one(network: Network, reel: Reel, methods: Sequence[Method], target: Target, how: Watching) -> Working:
    total, before = len(reel.frames.numbers), 0
    if any(k is not None for _, k in _tops(target)) and not all(method.oblivious for method in methods):
        target, before = (yield from _followed(network, reel, target, how.batch)), total
    parts: list[dict[str, HeatMaps]] = []
    numbers: list[int] = []
    shares: dict[str, list[tuple[float, ...]]] = {method.name: [] for method in methods}
    summed: Tensor | None = None
    for group, tensors, placement in _batches(network, reel, how.batch):
        shown = [Shown(reel.frames.name, placement, reel.frames)] * len(group)
        with _as_pictures():
            network = labeled(network, tensors)
            maps, output = look_at(network, tensors, shown, methods, target, how.layer)
        parts.append(maps)
        numbers += [frame.number for frame in group]
        for name, heatmaps in maps.items():
            shares[name] += [_shares(network, row.unsqueeze(0), heatmaps) for row in output]
        summed = output.float().sum(0) if summed is None else summed + output.float().sum(0)
        yield Step([], [], before + len(numbers), before + total)
    reel = _without_lost(reel, numbers)
    assert summed is not None
    mean = (summed / len(numbers)).unsqueeze(0)  # 1,C
    watched = []
    for name in parts[0]:
        each = concat([part[name] for part in parts])
        heatmaps = _as_clip(each, reel, predictions(network, mean)[0])
        answers = tuple(best for shown in each.shown for best in shown.predictions[:1])
        clip = _watched(network, heatmaps, reel, _shares(network, mean, heatmaps), tuple(shares[name]))
        watched.append(replace(clip, answers=answers))
    return watched


def _tops(target: Target) -> list[tuple[object, int | None]]:
    """Every target, with the k of one that is 'top k'."""
    listed = target if isinstance(target, (list, tuple)) else [target]
    matches = [re.fullmatch(r"top-?([0-9]{1,9})", item) if isinstance(item, str) else None for item in listed]
    return [(item, int(match[1]) if match else None) for item, match in zip(listed, matches, strict=True)]


def _followed(network: Network, reel: Reel, target: Target, batch: int) -> Following:
    """The targets with 'top k' as the classes that the mean of all frames' logits puts first."""
    summed, done, total = None, 0, len(reel.frames.numbers)
    for group, tensors, _ in _batches(network, reel, batch):
        with _as_pictures(), as_found(network), torch.no_grad():
            logits = network(tensors).float()
        summed = logits.sum(0) if summed is None else summed + logits.sum(0)
        done += len(group)
        yield Step([], [], done, 2 * total)
    if summed is None:
        raise BadPicture(f"{reel.frames.name} is damaged: none of its frames can be decoded; {pictures.MEND}")
    targets: list[object] = []
    for item, k in _tops(target):
        if k is not None and (summed.ndim != 1 or not 1 <= k <= len(summed)):
            raise BadChoice(f"{item} needs an output of at least {k} classes; this network gives {tuple(summed.shape)}")
        targets += [item] if k is None else summed.topk(k).indices.tolist()
    return targets


def _batches(network: Network, reel: Reel, size: int) -> Iterator[tuple[list[Frame], Tensor, Placement]]:
    """Frames as the network takes pictures, n,C,H,W."""
    for group in batched(reel.frames.read(), size):
        tensors, placements = zip(*(_prepared(network, frame, reel) for frame in group), strict=True)
        yield group, torch.stack(tensors).to(network.device, network.dtype), placements[0]


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
        if isinstance(error, (FoveaError, torch.OutOfMemoryError)) and not isinstance(error, DoesNotRun):
            raise
        why = "one that takes clips, N,T,C,H,W, is told by clip_network=True, or by takes_frames = True on the module"
        raise BadNetwork(f"the network failed on frames given as pictures, N,C,H,W ({error}); {why}") from error


def _without_lost(reel: Reel, numbers: Sequence[int]) -> Reel:
    """What could be decoded of frames that were read from the file as they were looked at."""
    count = len(reel.frames.numbers)
    if not numbers:
        raise BadPicture(f"{reel.frames.name} is damaged: none of its frames can be decoded; {pictures.MEND}")
    if len(numbers) == count or not isinstance(reel.frames, Taken):
        return reel
    note = pictures.lost(reel.frames.name, count - len(numbers), count)
    return replace(reel, frames=replace(reel.frames, numbers=tuple(numbers)), notes=(*reel.notes, note))


def _as_clip(heatmaps: HeatMaps, reel: Reel, best: tuple[tuple[str, float], ...]) -> HeatMaps:
    """Maps of T pictures as those of one clip: 1,T,K,h,w."""
    shown = replace(heatmaps.shown[0], picture=reel.frames, predictions=best)
    words = [next((f"frame {t}: {row[k]}" for t, row in enumerate(heatmaps.diagnosis) if row[k]), None)
             for k in range(heatmaps.values.shape[1])]  # fmt: skip
    return replace(
        heatmaps,
        cells=heatmaps.values.unsqueeze(0),
        shown=(shown,),
        targets=heatmaps.targets[:1],
        loss=None if heatmaps.loss is None else heatmaps.loss.unsqueeze(0),
        diagnosis=(tuple(words),),
        classes=heatmaps.classes[:1],
        frames=True,
    )


def _shares(network: Network, output: Tensor, heatmaps: HeatMaps) -> tuple[float, ...]:
    """The probability of each target in one row of output, where all of them are classes that have one."""
    classes = heatmaps.classes[0]
    if not heatmaps.shown[0].predictions or output.ndim != 2 or output.shape[1] < 2 or None in classes:
        return ()
    shares = networks.shares_of(network, output[0])
    return tuple(float(shares[index]) for index in classes if index is not None)


def _watched(network: Network, heatmaps: HeatMaps, reel: Reel, share: Shares, shares: tuple[Shares, ...]) -> Watched:
    frames, name = reel.frames, network.name
    played = (frames.times, frames.numbers, frames.rate)
    return Watched(heatmaps, *played, name, share, shares, reel.film, reel.end, reel.notes)
