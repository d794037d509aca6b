"""fovea.zoom: a network that reads only a few regions of a picture answers, and tells what it read."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from PIL import Image
from torch import Tensor, nn

from fovea.basics import BadChoice, bounded, clipped, demand_kinds
from fovea.glimpses.answer import After, Glimpse, WalkCost, ZoomAnswer
from fovea.glimpses.reading import Blank, Counted, PictureScene
from fovea.models.glimpsing import Glimpsing, Pixels, Scene, Walk
from fovea.networks import Inputs, Network, NetworkLike, as_found, as_network, groups, macs, predictions, wrap
from fovea.pictures import MAX_PIXELS, Decoded, Given, Picture, Placement, Prepare, Shown, decoded, gather
from fovea.results import Results, Step

# counting takes as long as a walk, so a network that zooms again and again is counted once; it is not kept alive by it
_known: WeakKeyDictionary[nn.Module, dict[Any, int]] = WeakKeyDictionary()


def zoom(
    net: NetworkLike,
    pictures: Inputs,
    *,
    glimpses: int | None = None,
    batch: int = 16,
    device: str | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Results[ZoomAnswer]:
    """What pictures are taken for by a network that reads `glimpses` regions of each, and which; as many as it usually
    does unless given. 0 glimpses of a TNet is its overview alone.

    `net` is a TNet, Saccader or DRAM. Pictures are read window by window at their own size. Tensors, N,C,H,W, are taken
    as already prepared, `batch` of them at a time, and boxes are in their pixels.
    """
    demand_kinds(zoom, locals())
    network = as_network(net, device)
    steps = zoom_steps(network, pictures, glimpses, batch, max_pixels)
    return Results.of(steps, "zoom", network.settings(glimpses=glimpses))


@bounded
def zoom_steps(
    network: Network, pictures: Inputs, glimpses: int | None = None, batch: int = 16, max_pixels: int = MAX_PIXELS
) -> Iterator[Step[ZoomAnswer]]:
    """Picture after picture, so that a folder of any size needs the memory of one; tensors batch after batch."""
    module = glimpsing(network)
    least, most = module.least, module.most
    if glimpses is not None and (not isinstance(glimpses, int) or not least <= glimpses <= most):
        raise BadChoice(f"{_name(network)} reads {least} to {most} glimpses of a picture; got {glimpses}")
    listed = pictures if isinstance(pictures, (list, tuple)) and pictures else [pictures]
    if all(isinstance(item, Tensor) for item in listed):
        for group in groups(network, pictures, batch, max_pixels):
            tensors = cast(Tensor, group.batch).to(network.device, network.dtype)
            if tensors.ndim != 4:
                raise BadChoice(f"zoom takes pictures, N,C,H,W; got a tensor of shape {tuple(tensors.shape)}")
            scene = Pixels(tensors, _antialias(network))
            answers = _walked(network, scene, tensors.shape[1], group.shown, glimpses)
            yield Step(answers, group.skipped, group.done, group.total)
        return
    prepare, given, skipped = _prepare(network), gather(cast(Iterable[Given], pictures)), list[tuple[str, str]]()

    def walked(image: Image.Image) -> ZoomAnswer:  # the picture, which may be large, is let go of with it
        source = Decoded(image, prepare.resampling)
        scene = PictureScene(source, prepare, network.device, network.dtype, _antialias(network))
        shown = Shown("", Placement.identity(*image.size), given[0])
        return _walked(network, scene, len(prepare.mean), [shown], glimpses)[0]

    for place, answer in decoded(given, walked, skipped, read=lambda source: cast(Picture, source).read(max_pixels)):
        shown = replace(answer.shown, name=given[place].name, picture=given[place])
        yield Step([replace(answer, shown=shown)], skipped[:], place + 1, len(given))
        skipped.clear()
    if skipped:
        yield Step([], skipped, len(given), len(given))


def _walked(
    network: Network, scene: Scene, channels: int, shown: Sequence[Shown], glimpses: int | None
) -> list[ZoomAnswer]:
    counted = Counted(scene)
    with as_found(network), torch.no_grad():
        walk = glimpsing(network).walk(counted, glimpses)
    return _answers(network, walk, counted, shown, _macs_of_walk(network, counted, channels, glimpses))


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


def _macs_of_walk(network: Network, read: Counted, channels: int, glimpses: int | None) -> int:
    """Of one picture that was read so. What is on it does not matter, so a blank one is walked through."""
    counts = _known.setdefault(network.module, {})
    key = (read.windows, channels, glimpses)
    if key not in counts:
        like = torch.zeros(1, channels, 1, 1, device=network.device, dtype=network.dtype)
        counts[key] = macs(wrap(_Walking(network.module, read.size, glimpses)), like)
    return counts[key]


class _Walking(nn.Module):
    """A walk through a blank picture of a size, as a module that takes pictures."""

    def __init__(self, module: nn.Module, size: tuple[int, int], glimpses: int | None) -> None:
        super().__init__()
        self.module, self.size, self.glimpses = module, size, glimpses

    def forward(self, like: Tensor) -> Tensor:
        return cast(Glimpsing, self.module).walk(Blank(self.size, like), self.glimpses).logits


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
    share, label = walk.logits.float().softmax(1).max(1)  # N  N
    after = walk.after.float().softmax(2)  # N,V,classes
    each_share, each_label = walk.each.float().softmax(2).max(2)  # N,V  N,V
    best = predictions(network, walk.logits)
    first = 0 if walk.levels[0] == 1 else 1  # what is read first is the overview, number 0, where there is one
    note = _note(counted)
    found = []
    for i, picture in enumerate(shown):
        chosen = [None] * (1 - first) + _chosen(walk, i)
        read = []
        for place, box in enumerate(map(tuple, walk.boxes[i].round().long().tolist())):
            parent = None if walk.parents[place] < 0 else walk.parents[place] + first
            where = walk.levels[place], box, clipped(box, counted.size[::-1]), parent, chosen[place]
            said = network.label(int(each_label[i, place])), float(each_share[i, place])
            read.append(Glimpse(place + first, *where, *said))
        then = [
            After(place + first, network.label(int(row.argmax())), float(row.max()), float(row[label[i]]))
            for place, row in enumerate(after[i])
        ]
        pixels = counted.size[0] * counted.size[1]
        cost = WalkCost(work, counted.pixels(i), pixels, counted.share(i), counted.resolution)
        named, overview = replace(picture, predictions=best[i]), None if first else read[0]
        answer = network.label(int(label[i])), float(share[i])
        found.append(ZoomAnswer(named, *answer, tuple(then), overview, tuple(read[1 - first :]), cost, note))
    return found


def _chosen(walk: Walk, picture: int) -> list[float | None]:
    """The probability of each glimpse's place, where the network chose among places: a density is none."""
    logs = walk.log_probability[picture].float().tolist()
    if walk.density or len(logs) != walk.glimpses:
        return [None] * walk.glimpses
    return [math.exp(log) for log in logs]


def _note(counted: Counted) -> str:
    """Said where the last windows are smaller than what they are read at."""
    last = counted.reads[-1]
    height, width = last.extent
    if max(height, width) >= last.side:
        return ""
    return (
        f"the last windows are {width} x {height} pixels, enlarged to {last.side} x {last.side}: "
        "the picture has less detail than the network could take"
    )
