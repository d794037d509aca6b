"""What to explain: a class, the top k, one class rather than another, the whole output (an embedding), a pair of
pictures, any score."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from fovea.basics import BadChoice, Later, nearest
from fovea.networks import Network, Reader
from fovea.pictures import Shown, sent

Score = Callable[[Tensor], Tensor]
TOP = re.compile(r"top-?([0-9]{1,9})")
WORDS = ("top1", "top5", "contrast", "output", "embedding", "pair")
VERSUS = " vs "  # between two classes: the first rather than the second


@dataclass(frozen=True, eq=False)
class Weighted:
    """A score that is a weighted sum of the outputs, so that its gradient needs no graph of its own."""

    make: Callable[[], Tensor]  # N,C, once they are needed

    @cached_property
    def weights(self) -> Tensor:
        return self.make()

    def __call__(self, output: Tensor) -> Tensor:
        return (output * self.weights).sum(1)


@dataclass(frozen=True)
class Aim:
    """One thing to explain for every picture of a batch: a score of the output, or (no score) the output as a whole.
    `names` say what it is, picture by picture; `score` takes the output (N,C) to one number per picture."""

    names: Sequence[str]
    score: Score | None  # output -> N
    classes: Tensor | None = None  # N, when the score is a class's logit
    key: Any = field(default_factory=object)  # the same for the same score: what a Look keeps gradients by
    indices: Sequence[int | None] = ()  # the classes, on the host: to look at them may be to wait for a device


@dataclass(frozen=True)
class Each:
    """One target, or list of targets, for each picture in turn."""

    targets: tuple[Any, ...]


@dataclass(frozen=True)
class Versus:
    """One class rather than another: the difference of their logits, N,2 classes, one row per picture."""

    pairs: Tensor


Given: TypeAlias = str | int | Score | Tensor | np.ndarray | Sequence[Any] | Versus | None


def each(targets: Sequence[Any]) -> Each:
    """A target of its own for every picture: `target=fovea.each(["tabby", "lynx"])` for two pictures."""
    return Each(tuple(targets))


def toward(network: Network, target: "Given | Each", shown: Sequence[Shown]) -> tuple[Network, "Given | Each"]:
    """Where texts or boxes are asked of a network that takes them: the network whose classes they are."""
    asked = network.asked
    if asked is None or target is None:
        return network, target
    rows = [_items(row, network) for row in (target.targets if isinstance(target, Each) else [target])]
    items = list(dict.fromkeys(item for row in rows for item in row))
    wanted = [item for item in items if _is_asked(item, network)]
    if not wanted:
        return network, target
    classes = {item: network.index(item) for item in items if item not in wanted}
    placements = tuple(picture.placement for picture in shown)
    key = "asked", *wanted, *classes, *(placements if asked.placed else ())
    if key not in network.kept:
        read, beside = asked.read(wanted, placements), list(classes.values())
        network.kept[key] = replace(
            network,
            labels=(*map(asked.name, wanted), *map(network.label, beside)),
            output=lambda out: torch.cat([read(out), network.read(out)[:, beside]], 1) if beside else read(out),
            abilities=network.abilities - {"embedding"},
            asked=None,
            temperature=None,
            _cuts={},
        )
    columns = [[[*wanted, *classes].index(item) for item in row] for row in rows]
    return network.kept[key], Each(tuple(columns)) if isinstance(target, Each) else columns[0]


def _items(target: Any, network: Network) -> list[Any]:
    """As a list; boxes as tuples."""
    if _is_asked(target, network) or not isinstance(target, (list, tuple, Tensor, np.ndarray)) or not len(target):
        return [_plain(target)]
    return [_plain(item) for item in target]


def _is_asked(item: Any, network: Network) -> bool:
    """Whether it is no class, but what this network takes beside classes."""
    if network.asked is None or not network.asked.takes(item):
        return False
    return not isinstance(item, str) or not (TOP.fullmatch(item) or item in WORDS or item in (network.labels or ()))


def _plain(item: Any) -> Any:
    values = item.tolist() if isinstance(item, (Tensor, np.ndarray)) else item
    return tuple(values) if isinstance(values, list) else values


def aims(target: "Given | Each", network: Network, output: Tensor, reader: Reader | None = None) -> list[Aim]:
    """The K things to explain for this batch; the classes that the output itself names come by the reader."""
    if target is None:
        target = "top1" if network.labels is not None and output.ndim == 2 else "output"
    if isinstance(target, str) and target == "pair":
        return [_pair(output)]
    if isinstance(target, Each):
        rows = [
            [_class(item, network, output) for item in (row if isinstance(row, (list, tuple)) else [row])]
            for row in target.targets
        ]
        if len({len(row) for row in rows}) > 1:
            raise BadChoice("fovea.each needs the same number of targets for every picture")
        target = torch.tensor(rows)
    if isinstance(target, (Tensor, np.ndarray)) and target.ndim == 0:
        target = int(target)
    if isinstance(target, (Tensor, np.ndarray)):
        return _per_picture(torch.as_tensor(target), network, output)
    if isinstance(target, (str, int, np.integer, Versus)) or callable(target):
        target = [target]
    if not isinstance(target, Sequence) or not target:
        known = "a class, 'tabby vs lynx', 'top1', 'top5', 'contrast', 'output', 'pair', a callable, or a list"
        raise BadChoice(f"a target is {known}; got {target!r}")
    return [aim for item in target for aim in _aims_of(item, network, output, reader or Reader())]


def check(target: "Given | Each", network: Network) -> None:
    """Refuse a name that cannot be right before anything is computed."""
    for item in target if isinstance(target, (list, tuple)) else [target]:
        if isinstance(item, str) and not TOP.fullmatch(item) and item not in WORDS:
            if _is_asked(item, network):
                continue
            for name in _versus(item, network) or [item]:
                if network.labels is not None:
                    network.index(name)
                elif not name.isdecimal():
                    _no_labels(name)


def callables(target: "Given | Each") -> list[Any]:
    """The functions of the user's among what is to be explained."""
    return [item for item in (target if isinstance(target, (list, tuple)) else [target]) if callable(item)]


def _no_labels(name: str) -> None:
    near = nearest(name, WORDS)
    raise BadChoice(f"target {name!r}: this network has no labels; give an index or one of {', '.join(WORDS)}{near}")


def _class(given: Any, network: Network, output: Tensor) -> int:
    if output.ndim != 2:
        mend = "give a callable from the output to one number per picture, or target='output'"
        raise BadChoice(f"a class needs an output of shape N,classes; this network gives {tuple(output.shape)}: {mend}")
    label: Any = given.item() if isinstance(given, (Tensor, np.generic)) else given
    return network.index(label, output.shape[1])


def _aims_of(given: Any, network: Network, output: Tensor, reader: Reader) -> list[Aim]:
    if callable(given) and not isinstance(given, type):
        return [_scored(given, output)]
    if isinstance(given, str) and (top := TOP.fullmatch(given)):
        return _top(int(top[1]), network, output, reader)
    if isinstance(given, str) and given in ("output", "embedding"):
        return [Aim(("output",) * len(output), None, None, "output")]
    if isinstance(given, str) and given == "contrast":
        best, runner = _top(2, network, output, reader)
        assert best.classes is not None
        assert runner.classes is not None
        named = Later(len(output), lambda: map(VERSUS.join, zip(best.names, runner.names, strict=True)))
        return [_contrast(best.classes, runner.classes, named, output, given)]
    if pair := _versus(given, network):
        given = Versus(torch.tensor([[_class(name, network, output) for name in pair]]).expand(len(output), 2))
    if isinstance(given, Versus):
        names = tuple(VERSUS.join(map(network.label, row)) for row in given.pairs.tolist())
        first, second = sent(given.pairs.long().cpu(), output.device).unbind(1)
        return [_contrast(first, second, names, output, tuple(given.pairs.flatten().tolist()))]
    index = _class(given, network, output)
    classes, indices = torch.full((len(output),), index, device=output.device), (index,) * len(output)
    return [_class_aim(classes, indices, network, output, ("class", index))]


def _versus(given: Any, network: Network) -> list[str]:
    """The two classes of 'tabby vs lynx'; none of what is no such text, or a class that is called so itself."""
    named = isinstance(given, str) and given.count(VERSUS) == 1 and given not in (network.labels or ())
    return [name.strip() for name in given.split(VERSUS)] if named else []


def _contrast(classes: Tensor, others: Tensor, names: Sequence[str], output: Tensor, key: Any) -> Aim:
    def weights() -> Tensor:
        return weighing(output, classes, 1.0, 0.0) - weighing(output, others, 1.0, 0.0)

    return Aim(names, Weighted(weights), None, ("contrast", key), (None,) * len(output))


def _class_aim(classes: Tensor, indices: Sequence[int], network: Network, output: Tensor, key: Any) -> Aim:
    names = Later(len(output), lambda: map(network.label, indices))
    return Aim(names, Weighted(partial(weighing, output, classes, 1.0, 0.0)), classes, key, indices)


def weighing(output: Tensor, classes: Tensor, weight: float, others: float) -> Tensor:
    """Weights of the outputs, N,C: that of a picture's own class, and that of every other."""
    every = torch.full_like(output, others, requires_grad=False)
    return every.scatter_(1, classes.unsqueeze(1), weight)


def _top(k: int, network: Network, output: Tensor, reader: Reader) -> list[Aim]:
    if output.ndim != 2 or not 1 <= k <= output.shape[1]:
        raise BadChoice(f"top{k} needs an output of at least {k} classes; this network gives {tuple(output.shape)}")
    best, read = reader.ranked(output, k)  # N,k

    def column(rank: int) -> Later[int]:
        return Later(len(output), lambda: read()[:, rank].astype(int).tolist())

    return [_class_aim(best[:, i], column(i), network, output, ("top", i)) for i in range(k)]


def _per_picture(classes: Tensor, network: Network, output: Tensor) -> list[Aim]:
    rows = classes.unsqueeze(1) if classes.ndim == 1 else classes
    if rows.ndim != 2 or len(rows) != len(output) or rows.is_floating_point():
        got = f"got shape {tuple(classes.shape)} of {classes.dtype} (a list names targets for every picture)"
        raise BadChoice(f"a tensor of targets holds class indices, one row per picture; {got}")
    rows = rows.cpu()
    for index in dict.fromkeys(rows.flatten().tolist()):
        _class(index, network, output)
    found = sent(rows.long(), output.device)
    columns = zip(found.unbind(1), map(tuple, rows.T.tolist()), strict=True)
    return [_class_aim(column, indices, network, output, indices) for column, indices in columns]


def _scored(score: Score, output: Tensor) -> Aim:
    name = getattr(score, "__name__", type(score).__name__).replace("<lambda>", "score")
    value = score(output)
    if not isinstance(value, Tensor) or value.shape != (len(output),):
        got = str(tuple(value.shape)) if isinstance(value, Tensor) else type(value).__name__
        wanted = f"one number per picture, shape ({len(output)},)"
        raise BadChoice(f"a callable target takes the output and returns {wanted}; got {got}")
    return Aim((name,) * len(output), score)


def _pair(output: Tensor) -> Aim:
    """How like its partner each picture is: its embedding's inner product with the partner's direction."""
    if len(output) % 2:
        raise BadChoice(f"target 'pair' takes pictures two by two; got {len(output)}")
    flat = output.detach().flatten(1)
    partner = flat.view(-1, 2, flat.shape[1]).flip(1).flatten(0, 1)  # a,b,c,d -> b,a,d,c
    direction = partner / partner.norm(dim=1, keepdim=True)
    return Aim(("alike",) * len(output), lambda out: (out.flatten(1) * direction).sum(1))
