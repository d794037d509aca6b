"""Where a classifier looks for its answer, for the runner-up, and for the one rather than the other: one pass for all.

`share` is what each cell adds to a score: exactly so where the head is affine in the features, as CAM is; elsewhere to
first order (Draelos and Carin's HiResCAM before its ReLU)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from fovea.basics import BadChoice, BadNetwork
from fovea.glimpses import zoom_steps
from fovea.heatmaps import L2CAF, Aim, Finding, HeatMaps, Look, Method, MethodLike, Versus, find, look_at, score_of
from fovea.heatmaps.exact import is_affine
from fovea.networks import Network, as_found, predictions
from fovea.pictures import Shown
from fovea.streams import Streams

EXACT, GLIMPSES = "exact", "glimpses"  # how maps came about
STRIDE = 8  # pixels of a cell that tells what was read


def share(look: Look, aim: Aim) -> Finding:
    score, key = score_of(aim)
    slope = look.slope(score, key)
    values = slope * slope.shape[1]
    return Finding(values, values, EXACT if is_affine(look, {key: (score, slope)}) else "first order")


SHARE = find(share)
OTHERS = tuple(replace(find(method), optional=True) for method in ("gradcam", "layercam", L2CAF(solver="exact")))


@dataclass(frozen=True)
class Seen:
    """A batch after one pass. Maps are of the answer, of the runner-up, and of the one rather than the other; of a
    network that reads glimpses, of what was read."""

    output: Tensor  # N,classes
    classes: Tensor  # N,2: the answer and the runner-up
    maps: HeatMaps  # N,3 (N,1) by the method that was asked for
    shares: HeatMaps  # N,3 (N,1)
    others: dict[str, HeatMaps]  # by other methods, where they apply


def see(network: Network, tensors: Tensor, shown: Sequence[Shown], method: MethodLike | None) -> Seen:
    """The main method is `share` unless another is asked for."""
    demand_labels(network)
    chosen = SHARE if method is None else find(method)
    if network.can("streams"):
        return _by_streams(network, tensors, shown, chosen)
    if network.can("glimpses"):
        return _by_glimpses(network, tensors, shown)
    methods = [SHARE, *(other for other in (chosen, *OTHERS) if other.name != SHARE.name)]
    named = {found.name: found for found in methods}
    maps, output = look_at(network, tensors, shown, list(named.values()), ["top2", "contrast"])
    others = {name: found for name, found in maps.items() if name not in (chosen.name, SHARE.name)}
    return Seen(output, demand_classes(network, output), maps[chosen.name], maps[SHARE.name], others)


def again(network: Network, tensors: Tensor, shown: Sequence[Shown], classes: Tensor) -> tuple[HeatMaps, Tensor]:
    """Maps by `share` of one class per picture (N), and the output: of pictures that were changed, or by a network that
    was."""
    if network.can("streams"):
        streams = Streams.of(network)
        with as_found(network):
            read = streams.read(tensors)
            return streams.whole_map(read, SHARE, classes, shown), read.out.logits
    maps, output = look_at(network, tensors, shown, [SHARE], classes.unsqueeze(1))
    return maps[SHARE.name], output


def _by_streams(network: Network, tensors: Tensor, shown: Sequence[Shown], method: Method) -> Seen:
    """Of the global stream, for the answer of both."""
    streams = Streams.of(network)
    with as_found(network):
        read = streams.read(tensors)
        classes = demand_classes(network, read.out.logits)

        def maps(by: Method) -> HeatMaps:
            both = streams.whole_map(read, by, classes, shown)
            contrast = streams.whole_map(read, by, Versus(classes), shown)
            targets = [one + other for one, other in zip(both.targets, contrast.targets, strict=True)]
            indices = [one + other for one, other in zip(both.classes, contrast.classes, strict=True)]
            cells = torch.cat([both.values, contrast.values], 1)
            return replace(both, cells=cells, targets=targets, classes=indices, diagnosis=[])

        return Seen(read.out.logits, classes, maps(method), maps(SHARE), {})


def _by_glimpses(network: Network, tensors: Tensor, shown: Sequence[Shown]) -> Seen:
    """What was read of a picture, the closer the hotter: such a network has no map that its answer depends on."""
    with torch.no_grad():
        output = network(tensors)
    answers = [answer for step in zoom_steps(network, tensors) for answer in step.results]
    height, width = tensors.shape[2:]
    cells = torch.zeros(len(tensors), 1, -(-height // STRIDE), -(-width // STRIDE))
    for row, answer in zip(cells, answers, strict=True):
        for glimpse in answer.glimpses:
            x0, y0, x1, y1 = (side // STRIDE for side in glimpse.visible)
            row[0, y0 : max(y1, y0 + 1), x0 : max(x1, x0 + 1)] += glimpse.level - 1
    classes = demand_classes(network, output)
    names = [(network.label(int(best)),) for best in classes[:, 0]]
    places = [
        replace(picture, predictions=best) for picture, best in zip(shown, predictions(network, output), strict=True)
    ]
    indices = [(best,) for best in classes[:, 0].tolist()]
    maps = HeatMaps(cells, places, names, "glimpses", "input", GLIMPSES, classes=indices)
    return Seen(output, classes, maps, maps, {})


def demand_labels(network: Network) -> None:
    """Before anything runs."""
    if network.labels is None or len(network.labels) < 2:
        raise BadChoice(
            f"{network.name or 'this network'} has no classes to tell apart, so there is no answer to look at: name a "
            "classifier, or wrap yours with labels=[...]; fovea.explain shows where any network looks"
        )


def demand_classes(network: Network, output: Tensor) -> Tensor:
    """The best two of every picture, N,2."""
    if not bool(output.isfinite().all()):
        raise BadNetwork(f"{network.name or 'the network'} gives an output that is not a number")
    return output.detach().topk(2, 1).indices
