"""What the user gives, as batches of tensors: pictures prepared by the network, or tensors taken as they are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import torch
from PIL import Image
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadPicture, FoveaError
from fovea.data.samples import DataSet
from fovea.networks.network import Network
from fovea.pictures import MAX_PIXELS, Given, Picture, gather
from fovea.pictures.placement import Placement
from fovea.pictures.reading import Readable, decoded
from fovea.pictures.shown import Shown

THREADS = 4  # that decode a data set
Inputs = Given | Tensor | Iterable[Given | Tensor]


@dataclass(frozen=True)
class Group:
    """A batch of inputs, their places among all that were given, and what had to be left out beside them."""

    batch: Tensor | None  # None when all were left out
    shown: list[Shown]
    places: list[int]
    skipped: list[tuple[str, str]]
    done: int
    total: int


def groups(network: Network, given: "Inputs | DataSet", size: int, max_pixels: int = MAX_PIXELS) -> Iterator[Group]:
    """At most `size` inputs at a time; pictures of different shapes after the transform come one by one.

    Of a data set, `places` tell which samples they are; its pictures are decoded in threads and kept in `shown`.
    """
    if size < 1:
        raise BadChoice(f"a batch holds at least one picture; got {size}")
    if isinstance(given, DataSet):
        yield from _prepared(network, given.samples, size, THREADS, lambda one: one.read())
        return
    if isinstance(given, (list, tuple)) and given and all(isinstance(one, Tensor) for one in given):
        parts = [_with_batch_axis(one, network) for one in given if isinstance(one, Tensor)]
        if len({one.shape[1:] for one in parts}) > 1:
            raise BadChoice("tensors of different sizes cannot be one batch: explain them one by one")
        given = torch.cat(parts)
    if isinstance(given, Tensor):
        whole = _with_batch_axis(given, network)
        for start in range(0, len(whole), size):
            own = whole[start : start + size]
            places = list(range(start, start + len(own)))
            shown = [_tensor_shown(one, place) for one, place in zip(own, places, strict=True)]
            yield Group(own, shown, places, [], start + len(own), len(whole))
        return
    pictures = gather(cast(Iterable[Given], given))
    yield from _prepared(network, pictures, size, 1, lambda one: cast(Picture, one).read(max_pixels))


def _prepared(
    network: Network,
    sources: Sequence[Readable],
    size: int,
    threads: int,
    read: Callable[[Readable], Image.Image],
) -> Iterator[Group]:
    for start in range(0, len(sources), size):
        own, skipped = sources[start : start + size], list[tuple[str, str]]()
        rows = list(decoded(own, lambda image: (image, *_as_taken(network, image)), skipped, threads, read))
        shown = [
            Shown(own[i].name, placement, one if isinstance(one := own[i], Picture) else Picture(one.name, image))
            for i, (image, _, placement) in rows
        ]
        places, tensors, done = [start + i for i, _ in rows], [tensor for _, (_, tensor, _) in rows], start + len(own)
        if len({one.shape for one in tensors}) < 2:
            batch = torch.stack(tensors) if tensors else None
            yield Group(batch, shown, places, skipped, done, len(sources))
            continue
        for i, tensor in enumerate(tensors):
            left = skipped if i == 0 else []
            yield Group(tensor.unsqueeze(0), [shown[i]], [places[i]], left, done, len(sources))


def _as_taken(network: Network, image: Image.Image) -> tuple[Tensor, Placement]:
    try:
        return network.prepare(image)
    except FoveaError:
        raise
    except Exception as error:  # the user's own transform, on this picture
        raise BadPicture(f"the transform failed: {error}") from None


def _with_batch_axis(given: Tensor, network: Network) -> Tensor:
    """Add the batch axis when one sample was given."""
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    convolutions = (i for one in network.module.modules() for i, kind in enumerate(kinds) if isinstance(one, kind))
    axes = 3 + next(convolutions, 1)
    if not given.is_floating_point():
        raise BadChoice(
            f"a tensor is taken as already transformed, so it holds floats; got {given.dtype} (give arrays for pixels)"
        )
    if given.ndim == axes - 1:
        return given.unsqueeze(0)
    if given.ndim == axes or (given.ndim == 5 and axes == 4):
        return given
    raise BadChoice(
        f"this network takes tensors of {axes} axes (N first), or {axes - 1} for one; got shape {tuple(given.shape)}"
    )


def _tensor_shown(one: Tensor, place: int) -> Shown:
    flat = one.ndim == 3 or (one.ndim == 4 and one.shape[1] in (1, 3))  # C,H,W or T,C,H,W
    placement = Placement.identity(one.shape[-1], one.shape[-2]) if flat else None
    return Shown(f"picture-{place}", placement, one)
