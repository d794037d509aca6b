"""fovea.look_longer: what a two-stream network says of a picture, and where it looks at every step."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Integral

import torch
from torch import Tensor

from fovea.basics import BadChoice, bounded, demand_kinds
from fovea.networks import Group, Inputs, Network, NetworkLike, as_found, as_network, groups, predictions, shares_of
from fovea.pictures import MAX_PIXELS
from fovea.results import Results, Step
from fovea.streams.looked import Looked, Said, SeenPatch, SeenStep
from fovea.streams.reading import METHODS, Streams

__all__ = ["METHODS", "Looked", "Said", "SeenPatch", "SeenStep", "look_batches", "look_longer"]

Truth = str | int | Sequence[str | int] | None


def look_longer(
    net: NetworkLike,
    pictures: Inputs,
    *,
    method: str = "gradcam",
    target: str | int | None = None,
    truth: Truth = None,
    batch: int = 16,
    device: str | torch.device | None = None,
    max_pixels: int = MAX_PIXELS,
) -> Results[Looked]:
    """What a two-stream network says of pictures, with the global stream's map and one of each patch at every step.

    `method`: gradcam, l2caf, or self-attention where the network has it. `target`: the class that maps are of, the
    network's answer unless given. `truth`: the class that pictures are of, one for all or one each, so that strips can
    tell right from wrong. Networks and pictures as `fovea.explain` takes them."""
    demand_kinds(look_longer, locals())
    network = as_network(net, device)
    steps = look_batches(network, pictures, method, target, truth, batch, max_pixels)
    return Results.of(steps, "look_longer", network.settings(method=method, target=target))


@bounded
def look_batches(
    network: Network,
    pictures: Inputs,
    method: str = "gradcam",
    target: str | int | None = None,
    truth: Truth = None,
    batch: int = 16,
    max_pixels: int = MAX_PIXELS,
) -> Iterator[Step[Looked]]:
    """Batch after batch, so that a folder of any size needs the memory of one."""
    streams = Streams.of(network, method)
    index = None if target is None or target == "top1" else network.index(target, streams.classes)
    for group in groups(network, pictures, batch, max_pixels):
        truths = _truths(streams, truth, group)
        looks = [] if group.batch is None else _looks(streams, group.batch, group, method, index, truths)
        yield Step(looks, group.skipped, group.done, group.total)


def _truths(streams: Streams, truth: Truth, group: Group) -> list[str | None]:
    """The labels of a group's pictures, by their places among all."""
    if truth is None:
        return [None] * len(group.places)
    if isinstance(truth, (str, int, Integral)):
        given: list[str | int] = [truth] * len(group.places)
    elif len(truth) == group.total:
        given = [truth[place] for place in group.places]
    else:
        raise BadChoice(f"truth is one class for all pictures, or one each; got {len(truth)} for {group.total}")
    network = streams.network
    return [network.label(network.index(label, streams.classes)) for label in given]


def _looks(
    streams: Streams, batch: Tensor, group: Group, method: str, target: int | None, truths: list[str | None]
) -> list[Looked]:
    network = streams.network
    with as_found(network):
        seen = streams.read(batch.to(network.device, network.dtype))
        out = seen.out
        classes = out.logits.argmax(1)  # N
        classes = classes if target is None else torch.full_like(classes, target)
        whole = streams.whole_map(seen, method, classes, group.shown)
        placed = streams.patches(seen, group.shown)
        maps = streams.step_maps(seen, method, classes, placed)
    assert out.local is not None
    answers, wholes, locals_ = (_said(network, logits) for logits in (out.logits, out.whole, out.local))
    patches = _said(network, seen.steps.logits)  # N*K
    steps = [_said(network, logits) for logits in seen.steps.each.unbind(1)]  # T of N*K
    weights = seen.steps.weights.tolist()  # N*K,T
    best = predictions(network, out.logits)
    each = seen.boxes.shape[1]

    def patch(place: int) -> SeenPatch:
        placement = placed[place].placement
        assert placement is not None
        seen = (SeenStep(t + 1, weights[place][t], steps[t][place], own[place]) for t, own in enumerate(maps))
        return SeenPatch(placement.window, patches[place], tuple(seen))

    def looked(i: int) -> Looked:
        shown, target = replace(group.shown[i], predictions=best[i]), network.label(int(classes[i]))
        own = tuple(patch(place) for place in range(i * each, (i + 1) * each))
        return Looked(shown, answers[i], wholes[i], locals_[i], target, method, whole[i], own, truths[i])

    return [looked(i) for i in range(len(group.shown))]


def _said(network: Network, logits: Tensor) -> list[Said]:
    shares, indices = shares_of(network, logits).max(1)
    return [Said(network.label(i), share) for i, share in zip(indices.tolist(), shares.tolist(), strict=True)]
