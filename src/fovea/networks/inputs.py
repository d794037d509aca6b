"""What the user gives, as batches of tensors: pictures prepared by the network, or tensors taken as they are."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, TypeVar, cast

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from fovea import pictures
from fovea.basics import BadChoice, BadPicture, FoveaError, Later, ahead, demand_bounds, processors
from fovea.data import DataSet
from fovea.networks.checking import refuse_tensor
from fovea.networks.running import Runnable, at_once
from fovea.networks.threads import lent
from fovea.pictures import MAX_PIXELS, Given, Kept, Picture, Placement, Prepare, Readable, Shown

AHEAD = 2  # parts per thread that are answered before they are asked for
AT_ONCE = 4 * 3 * 224 * 224  # values of a part, about: layers' outputs of more leave a processor's cache
KEPT = 4_000_000  # pixels of a data set's picture that stays in memory until its batch is done
Inputs = Given | Tensor | Iterable[Given | Tensor]
WINDOW = 4  # batches whose pictures are read before those of one shape come together
Row = tuple[int, Picture, list[tuple[Tensor, Placement]]]
T = TypeVar("T")


@dataclass(frozen=True)
class Group:
    """A batch of inputs, their places among all that were given, and what had to be left out beside them."""

    batch: Tensor | None  # on the network's device, in its precision; None when all were left out
    shown: Sequence[Shown]
    places: list[int]
    skipped: list[tuple[str, str]]
    done: int
    total: int
    last: bool = True  # of its window: all inputs before the next group's have come

    def of(self, items: Sequence[T]) -> list[T]:
        """The items, one for each input given, that belong to this batch: the samples of a data set, say."""
        return [items[place] for place in self.places]

    def without_inputs(self) -> "Group":
        """What a worker sends back of it."""
        return replace(self, batch=None, shown=())

    def moved(self, start: int, total: int) -> "Group":
        """Of a part that begins at this place of all."""
        places = [start + place for place in self.places]
        return replace(self, places=places, done=start + self.done, total=total)


def groups(network: Runnable, given: "Inputs | DataSet", size: int, max_pixels: int = MAX_PIXELS) -> Iterator[Group]:
    """At most `size` inputs at a time, all of one shape after the transform; where shapes differ, those that are alike
    in a window of inputs come together, and `in_order` puts what is made of them in order again. Of a data set,
    `places` tell which samples they are; its pictures are decoded in threads and kept in `shown`."""
    if isinstance(given, DataSet):
        yield from (batches[0] for batches in groups_for([network], given, size))
        return
    demand_bounds({"batch": size})
    if isinstance(given, (list, tuple)) and given and all(isinstance(item, Tensor) for item in given):
        parts = [_with_batch_axis(item, network) for item in given if isinstance(item, Tensor)]
        if len({part.shape[1:] for part in parts}) > 1:
            raise BadChoice("tensors of different sizes cannot be one batch: explain them one by one")
        given = torch.cat(parts)
    if isinstance(given, Tensor):
        whole = _with_batch_axis(given, network)
        for start in range(0, len(whole), size):
            part = whole[start : start + size]
            places = list(range(start, start + len(part)))
            shown = Later(len(part), partial(map, _tensor_shown, part, places))
            yield Group(part.to(network.device, network.dtype), shown, places, [], start + len(part), len(whole))
        return
    found = pictures.gather(cast(Iterable[Given], given))
    for batches in _prepared([network], found, size, lambda picture: cast(Picture, picture).read(max_pixels)):
        yield batches[0]


def groups_for(networks: Sequence[Runnable], data: DataSet, size: int) -> Iterator[list[Group]]:
    """The same pictures for several networks, one Group each: decoded once, and prepared once for those that take them
    alike."""
    demand_bounds({"batch": size})
    return _prepared(networks, data.samples, size, lambda sample: sample.read())


def _prepared(
    networks: Sequence[Runnable], sources: Sequence[Readable], size: int, read: Callable[[Readable], Image.Image]
) -> Iterator[list[Group]]:
    kinds: list[Runnable] = []  # those that take pictures differently
    for network in networks:
        kinds += [] if any(network.transform == kind.transform for kind in kinds) else [network]
    kind_of = [next(i for i, k in enumerate(kinds) if k.transform == network.transform) for network in networks]
    window = size * (WINDOW if any(isinstance(k.transform, Prepare) and k.transform.step for k in kinds) else 1)
    files = all(isinstance(source, Picture) for source in sources)

    def make(image: Image.Image) -> tuple[Image.Image | None, list[tuple[Tensor, Placement]]]:
        small = image if image.width * image.height <= KEPT * size // window else None
        kept = pictures.smaller(image) if files else small
        return kept, [as_taken(kind, image, raw=True) for kind in kinds]

    # pictures in memory, and transforms of the user's own, are for one thread at a time
    held = any(isinstance(getattr(source, "source", None), (Image.Image, np.ndarray)) for source in sources)
    several = all(isinstance(kind.transform, Prepare) for kind in kinds) and not held
    made = pictures.made_of(sources, make, processors() if several else 1, read, window)
    for start in range(0, len(sources), window):
        part, skipped = sources[start : start + window], list[tuple[str, str]]()
        alike: dict[tuple[torch.Size, ...], list[Row]] = {}
        for place, (source, result) in enumerate(zip(part, made, strict=False), start):
            if isinstance(result, BadPicture):
                skipped.append((source.name, str(result)))
            else:
                shapes = tuple(tensor.shape for tensor, _ in result[1])
                alike.setdefault(shapes, []).append((place, _picture(source, result[0]), result[1]))
        batches = [rows[i : i + size] for rows in alike.values() for i in range(0, len(rows), size)] or [[]]
        done = start
        for number, rows in enumerate(batches, 1):
            last = number == len(batches)
            done = start + len(part) if last else done + len(rows)
            yield [
                Group(
                    _joined(network, [taken[i][0] for *_, taken in rows]) if rows else None,
                    [Shown(picture.name, taken[i][1], picture) for _, picture, taken in rows],
                    [place for place, *_ in rows],
                    skipped if number == 1 else [],
                    done,
                    len(sources),
                    last,
                )
                for i, network in zip(kind_of, networks, strict=True)
            ]


def _joined(network: Runnable, rows: Sequence[Tensor]) -> Tensor:
    """A batch as the network takes it."""
    batch, prepare = pictures.sent(torch.stack([*rows]), network.device), network.transform
    return (prepare.normalize(batch) if isinstance(prepare, Prepare) else batch).to(network.dtype)


def run_ahead(
    network: Runnable, found: Iterable[Group], answer: Callable[[Group], T], given: Iterable[Any] = ()
) -> Iterator[tuple[Group, T]]:
    """Every group and what `answer` makes of it, in order, while the pictures of the next are read. On a CPU groups are
    answered in small parts, several of them at a time, where that is known to do no harm (`at_once` says when; `given`
    are functions of the user's that are called as well)."""
    threads = at_once(network, given)
    parts = (part for group in found for part in _parts(group)) if threads else iter(found)
    modes = torch.is_inference_mode_enabled(), torch.is_grad_enabled()  # a thread's own

    def run(group: Group) -> tuple[Group, T]:
        with torch.inference_mode(modes[0]), torch.set_grad_enabled(modes[1]):
            return group, answer(group)

    first = list(islice(parts, 2)) if threads > 1 else []
    if len(first) < 2:  # one part has all of torch's threads
        yield from map(run, chain(first, parts))
        return
    with lent():
        yield run(first[0])  # which makes what is made once, such as cuts
        yield from ahead(run, chain(first[1:], parts), threads, threads * AHEAD)


def _parts(group: Group) -> Iterator[Group]:
    """A few pictures at a time."""
    if group.batch is None:
        yield group
        return
    count = len(group.places)
    size = max(AT_ONCE // group.batch[0].numel() // 2 * 2, 2)  # pairs stay together
    for start in range(0, count, size):
        stop = min(start + size, count)
        part = slice(start, stop)
        yield Group(
            group.batch[part],
            group.shown[part],
            group.places[part],
            [] if start else group.skipped,
            group.done - (count - stop),
            group.total,
            group.last and stop == count,
        )


def in_order(
    network: Runnable,
    found: Iterable[Group],
    answers: Callable[[Group, Tensor], Iterable[T]],
    given: Iterable[Any] = (),
) -> Iterator[tuple[list[T], list[tuple[str, str]], int, int]]:
    """What is made of every group's inputs, one answer each, in the order of the inputs; what was left out, how many
    are done, and of how many."""

    def answer(group: Group) -> list[T]:
        return [] if group.batch is None else list(answers(group, group.batch))

    made, skipped = dict[int, T](), list[tuple[str, str]]()
    for group, rows in run_ahead(network, found, answer, given):
        skipped += group.skipped
        made.update(zip(group.places, rows, strict=True))
        if group.last:
            yield [made[place] for place in sorted(made)], skipped, group.done, group.total
            made, skipped = {}, []


def _picture(source: Readable, image: Image.Image | None) -> Picture:
    """A sample's picture is kept as it was decoded unless it is large; what the user gave is kept for a while, as small
    as pages show it. Otherwise it is decoded again when it is drawn."""
    if not isinstance(source, Picture):
        return Picture(source.name, source.read if image is None else image)
    picture = replace(source, kept=Kept())  # which goes with the result
    if image is not None:
        pictures.recent.keep(picture.kept, image)
    return picture


def as_taken(network: Runnable, image: Image.Image, raw: bool = False) -> tuple[Tensor, Placement]:
    """`network.prepare`, where a transform of the user's own fails on a picture only for that picture."""
    try:
        return network.prepare(image, raw)
    except FoveaError:
        raise
    except Exception as error:  # the user's own transform, on this picture
        memory = isinstance(error, MemoryError)
        said = "there is not enough memory for it" if memory else error
        raise BadPicture(f"the transform failed: {said}", passing=memory) from None


def _with_batch_axis(given: Tensor, network: Runnable) -> Tensor:
    """Add the batch axis when one sample was given."""
    refuse_tensor(given)
    kinds = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    layers = network.module.modules()
    convolutions = (i for layer in layers for i, kind in enumerate(kinds) if isinstance(layer, kind))
    axes = 3 + next(convolutions, 1)
    if not given.is_floating_point():
        mend = f"got {given.dtype} (give arrays for pixels)"
        raise BadChoice(f"a tensor is taken as already transformed, so it holds floats; {mend}")
    given = given.unsqueeze(0) if given.ndim == axes - 1 else given
    if given.ndim == axes or (given.ndim == 5 and axes == 4):
        wanted = len(network.transform.mean) if isinstance(network.transform, Prepare) else given.shape[-3]
        if given.shape[-3] != wanted:
            who = network.name or "this network"
            raise BadChoice(f"{who} takes {wanted} channels, N,C,H,W; got shape {tuple(given.shape)}")
        return given
    got = tuple(given.shape)
    raise BadChoice(f"this network takes tensors of {axes} axes (N first), or {axes - 1} for one; got shape {got}")


def _tensor_shown(row: Tensor, place: int) -> Shown:
    flat = row.ndim == 3 or (row.ndim == 4 and row.shape[1] in (1, 3))  # C,H,W or T,C,H,W
    placement = Placement.identity(row.shape[-1], row.shape[-2]) if flat else None
    return Shown(f"picture-{place}", placement, row)
