"""What the user gives, as batches of tensors: pictures prepared by the network, or tensors taken as they are."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadPicture, FoveaError
from fovea.networks.network import Network
from fovea.pictures import Given, Picture, gather, read_all
from fovea.pictures.placement import Placement
from fovea.pictures.shown import Shown

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


def groups(network: Network, given: Inputs, size: int, max_pixels: int) -> Iterator[Group]:
    """At most `size` inputs at a time; pictures of different shapes after the transform come one by one."""
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
    for start in range(0, len(pictures), size):
        own_pictures = pictures[start : start + size]
        yield from _prepared(network, own_pictures, start, len(pictures), max_pixels)


def _prepared(network: Network, pictures: list[Picture], start: int, total: int, max_pixels: int) -> Iterator[Group]:
    tensors: list[Tensor] = []
    shown: list[Shown] = []
    places: list[int] = []
    skipped: list[tuple[str, str]] = []
    done = start + len(pictures)
    for i, (picture, image) in enumerate(zip(pictures, read_all(pictures, max_pixels), strict=True)):
        if isinstance(image, BadPicture):
            skipped.append((picture.name, str(image)))
            continue
        try:
            tensor, placement = network.prepare(image)
        except FoveaError:
            raise
        except Exception as error:  # the user's own transform, on this picture
            skipped.append((picture.name, f"{picture.name}: the transform failed: {error}"))
            continue
        tensors.append(tensor)
        shown.append(Shown(picture.name, placement, picture))
        places.append(start + i)
    if len({one.shape for one in tensors}) < 2:
        yield Group(torch.stack(tensors) if tensors else None, shown, places, skipped, done, total)
        return
    for i, tensor in enumerate(tensors):
        yield Group(tensor.unsqueeze(0), [shown[i]], [places[i]], skipped if i == 0 else [], done, total)


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
