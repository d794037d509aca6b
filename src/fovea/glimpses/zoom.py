"""fovea.zoom: a network that reads only a few regions of a picture answers, and tells what it read."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from time import perf_counter
from typing import cast

import torch
from torch import Tensor

from fovea.basics import BadChoice, bounded, clipped, demand_bounds, demand_kinds
from fovea.glimpses.answer import After, Glimpse, WalkCost, ZoomAnswer
from fovea.glimpses.certainty import certain
from fovea.glimpses.counting import work
from fovea.glimpses.reading import Counted, PictureScene
from fovea.glimpses.routes import followed, stepping
from fovea.models.glimpsing import Glimpsing, Pixels, Scene, Walk
from fovea.models.glimpsing import Route as Route
from fovea.networks import Inputs, Network, NetworkLike, as_found, as_network, groups, predictions, shares_of
from fovea.pictures import MAX_PIXELS, Given, Picture, Placement, Prepare, Shown, Windows, decoded, gather
from fovea.results import Results, Step

ROUTE = Route()
LARGE = 16_000_000  # pixels of a picture that takes a while to decode
ALL_OF_IT = "most of the file was decoded, since it stores no smaller copies: 'fovea pyramid' makes a file that does"
UNCALIBRATED = "the network is not calibrated ('fovea calibrate'), so its certainty is its raw probability"


def zoom(
    net: NetworkLike,
    pictures: Inputs,
    *,
    glimpses: int | None = None,
    until: float | None = None,
    order: str | None = None,
    budget_ms: float | None = None,
    budget_macs: float | None = None,
    levels: int | None = None,
    batch: int = 16,
    device: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Results[ZoomAnswer]:
    """What pictures are taken for by a network that reads `glimpses` regions of each, and which; as many as it usually
    does unless given. 0 glimpses of a TNet is its overview alone.

    `net` is a TNet, Saccader or DRAM. Pictures are read window by window at their own size. Tensors, N,C,H,W, are taken
    as already prepared, `batch` of them at a time, and boxes are in their pixels.

    A walk ends early when its answer is at least as certain as `until`, or before a glimpse that would go beyond
    `budget_ms` milliseconds, from before the picture is opened, or `budget_macs` multiplications. A TNet then reads
    next the most promising region of any level (`order="best"`), `levels` deep; `order="levels"` is the paper's plan.
    """
    demand_kinds(zoom, locals())
    network, route = as_network(net, device), Route(glimpses, until, order, levels, budget_ms, budget_macs)
    steps = zoom_steps(network, pictures, route, batch, max_pixels)
    return Results.of(steps, "zoom", network.settings(**asked(route)))


def asked(route: Route) -> dict[str, float | str | None]:
    """The settings that results tell: the number of glimpses, and what else was asked for."""
    return {name: value for name, value in asdict(route).items() if value is not None or name == "glimpses"}


def demand_route(route: Route) -> None:
    """Refuses what is out of range, or would change nothing."""
    demand_bounds(asdict(route))
    unused = [name for name in asked(route) if name not in ("glimpses", "levels")]
    if unused and (route.glimpses == 0 or route.levels == 1):
        alone = "glimpses=0" if route.glimpses == 0 else "levels=1"
        raise BadChoice(f"{alone} is the overview alone: {' and '.join(unused)} would change nothing; leave one out")


@bounded
def zoom_steps(
    network: Network, pictures: Inputs, route: Route = ROUTE, batch: int = 16, max_pixels: int = MAX_PIXELS
) -> Iterator[Step[ZoomAnswer]]:
    """Picture after picture, so that a folder of any size needs the memory of one; tensors batch after batch."""
    demand_route(route)
    module, glimpses = glimpsing(network), route.glimpses
    if not route.usual or route.order is not None:
        stepping(network, route)
    elif glimpses is not None and (not isinstance(glimpses, int) or not module.least <= glimpses <= module.most):
        raise BadChoice(f"{_name(network)} reads {module.least} to {module.most} glimpses of a picture; got {glimpses}")
    listed = pictures if isinstance(pictures, (list, tuple)) and pictures else [pictures]
    if all(isinstance(item, Tensor) for item in listed):
        for group in groups(network, pictures, batch, max_pixels):
            tensors = cast(Tensor, group.batch).to(network.device, network.dtype)
            if tensors.ndim != 4:
                raise BadChoice(f"zoom takes pictures, N,C,H,W; got a tensor of shape {tuple(tensors.shape)}")
            answers = _of_tensors(network, tensors, group.shown, route)
            yield Step(answers, group.skipped, group.done, group.total)
        return
    prepare, skipped = _prepare(network), list[tuple[str, str]]()
    given = [replace(picture, limit=max_pixels) for picture in gather(cast(Iterable[Given], pictures))]
    _count_ahead(network, len(prepare.mean), route)

    def walked(picture: Picture) -> ZoomAnswer:  # what is decoded of it, which may be large, is let go of with it
        started = perf_counter()
        with picture.windows() as source:
            scene = PictureScene(source, prepare, network.device, network.dtype, _antialias(network))
            shown = Shown(picture.name, Placement.identity(*source.size), picture)
            (answer,) = _walked(network, [scene], len(prepare.mean), [shown], route, started)
            return _with_reading(answer, source)

    for place, answer in decoded(given, walked, skipped, read=lambda picture: picture):
        yield Step([answer], skipped[:], place + 1, len(given))
        skipped.clear()
    if skipped:
        yield Step([], skipped, len(given), len(given))


def _with_reading(answer: ZoomAnswer, source: Windows) -> ZoomAnswer:
    """With what was decoded of a big file, beside what reading all of it would have been."""
    counts = source.counts
    if counts is None:
        return answer
    cost = replace(answer.cost, pixels_read=counts.pixels, tiles=counts.tiles, bytes_read=counts.bytes)
    advice = ALL_OF_IT if LARGE < cost.pixels < 2 * counts.pixels else ""
    note = "; ".join(filter(None, (answer.note, advice)))
    return replace(answer, cost=replace(cost, bytes=source.file_bytes), note=note)


def _of_tensors(network: Network, tensors: Tensor, shown: Sequence[Shown], route: Route) -> list[ZoomAnswer]:
    """A clock is each picture's own, so with one they are not walked through together."""
    pictures = [Pixels(picture, _antialias(network)) for picture in tensors.unsqueeze(1)]
    if route.usual:
        return _walked(network, [Pixels(tensors, _antialias(network))], tensors.shape[1], shown, route)
    _count_ahead(network, tensors.shape[1], route)
    if route.budget_ms is None:
        return _walked(network, pictures, tensors.shape[1], shown, route)
    each = zip(pictures, shown, strict=True)
    return [_walked(network, [scene], tensors.shape[1], [its], route, perf_counter())[0] for scene, its in each]


def _walked(
    network: Network, scenes: Sequence[Scene], channels: int, shown: Sequence[Shown], route: Route, started: float = 0.0
) -> list[ZoomAnswer]:
    """Scenes of one picture each, or, of a walk that ends as it is usual, one of several."""
    counted = [Counted(scene) for scene in scenes]
    if route.usual:
        with as_found(network), torch.no_grad():
            walk = glimpsing(network).walk(counted[0], route.glimpses)
        depth = int(getattr(network.module, "levels", 2))
        return _answers(network, walk, counted[0], shown, work(network, channels, walk.levels, depth, together=True))
    module, route = stepping(network, route)
    started = started or perf_counter()
    depth = route.levels or 2
    ended = followed(network, counted, route, partial(work, network, channels, levels=depth), started)
    answers = []
    for end, scene, its in zip(ended, counted, shown, strict=True):
        (answer,) = _answers(network, end.walk, scene, [its], work(network, channels, end.walk.levels, depth))
        uncertain = route.until is not None and not module.certainty.calibrated
        note = "; ".join(filter(None, (answer.note, UNCALIBRATED if uncertain else "")))
        passed = round(1000 * (perf_counter() - started), 1)
        answers.append(replace(answer, stopped=end.why, ms=passed, note=note))
    return answers


def _count_ahead(network: Network, channels: int, route: Route) -> None:
    """So that no picture's clock runs while parts of the network are counted."""
    if not route.usual:
        _, route = stepping(network, route)
        depth = route.levels or 2
        work(network, channels, range(1, depth + 1), depth)


def _name(network: Network) -> str:
    return network.name or type(network.module).__name__


def glimpsing(network: Network) -> Glimpsing:
    """The module, of a network that reads glimpses."""
    if not network.can("glimpses"):
        raise BadChoice(
            f"{_name(network)} reads pictures as a whole and cannot zoom; name a network that reads glimpses: a TNet "
            "that comes with fovea ('fovea models tnet'), or the file of one, of a Saccader or a DRAM that you trained"
        )
    return cast(Glimpsing, network.module)


def _antialias(network: Network) -> bool:
    """How the network's own forward shrinks windows."""
    return bool(getattr(network.module, "antialias", True))


def _prepare(network: Network) -> Prepare:
    if network.transform is None:
        raise BadChoice(
            "this network has no transform, so it takes tensors only; "
            "give fovea.wrap(module, transform=fovea.pictures.transforms.Prepare(...)) to zoom into pictures"
        )
    if not isinstance(network.transform, Prepare):
        raise BadChoice(
            "zoom cuts windows out of pictures itself and needs to know how their values are normalized: "
            "wrap the network with transform=fovea.pictures.transforms.Prepare(...), or give tensors"
        )
    return network.transform


def _answers(network: Network, walk: Walk, counted: Counted, shown: Sequence[Shown], work: int) -> list[ZoomAnswer]:
    share, label = shares_of(network, walk.logits).max(1)  # N  N
    after = shares_of(network, walk.after)  # N,V,classes
    each_share, each_label = shares_of(network, walk.each).max(2)  # N,V  N,V
    best = predictions(network, walk.logits)
    first = 0 if walk.levels[0] == 1 else 1  # what is read first is the overview, number 0, where there is one
    certain = _certain(network, walk)
    note = _note(counted)
    found = []
    for i, picture in enumerate(shown):
        chosen = [None] * (1 - first) + _chosen(walk, i)
        read = []
        for place, box in enumerate(map(tuple, walk.boxes[i].round().long().tolist())):
            parent = None if walk.parents[place] < 0 else walk.parents[place] + first
            visible = clipped(box, counted.size[::-1])
            where = walk.levels[place], box, visible, parent, chosen[place]
            said = network.label(int(each_label[i, place])), float(each_share[i, place])
            read.append(Glimpse(place + first, *where, *said, counted.size_of(i, visible)))
        then = [
            After(place + first, network.label(int(row.argmax())), float(row.max()), float(row[label[i]]), sure)
            for place, (row, sure) in enumerate(zip(after[i], certain[i], strict=True))
        ]
        pixels = counted.size[0] * counted.size[1]
        cost = WalkCost(work, counted.pixels(i), pixels, counted.share(i), counted.resolution, counted.pixels(i))
        named, overview = replace(picture, predictions=best[i]), None if first else read[0]
        answer = network.label(int(label[i])), float(share[i])
        made = ZoomAnswer(named, *answer, tuple(then), overview, tuple(read[1 - first :]), cost, note)
        found.append(replace(made, certainty=then[-1].certainty))
    return found


def _certain(network: Network, walk: Walk) -> list[list[float | None]]:
    """The certainty of each picture's answer after each thing read, of a network that tells it."""
    if not network.can("steps"):
        return [[None] * len(walk.levels)] * len(walk.logits)
    rows: list[list[float | None]] = certain(network, walk).amax(2).tolist()
    return rows


def _chosen(walk: Walk, picture: int) -> list[float | None]:
    """The probability of each glimpse's place, where the network chose among places: a density is none."""
    logs = walk.log_probability[picture].float().tolist()
    if walk.density or len(logs) != walk.glimpses:
        return [None] * walk.glimpses
    return [math.exp(log) for log in logs]


def _note(counted: Counted) -> str:
    """Said where the smallest windows are smaller than what they are read at."""
    last = min(counted.reads, key=lambda read: read.extent)
    height, width = last.extent
    if max(height, width) >= last.side:
        return ""
    return (
        f"the last windows are {width} x {height} pixels, enlarged to {last.side} x {last.side}: "
        "the picture has less detail than the network could take"
    )
