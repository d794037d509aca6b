"""Which pictures each step takes: another order every epoch, or batches balanced by class for losses that compare.

The order of an epoch follows from (seed, epoch) alone, and several processes take their shares of the same batches."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from fovea.basics import BadChoice
from fovea.training.augment import draw, draw_more
from fovea.training.feed import Feed, Wanted
from fovea.training.recipe import Recipe
from fovea.training.repeatable import generator


@dataclass(frozen=True)
class Shares:
    """What a batch is divided into: a share for each process, which takes it in parts."""

    rank: int
    world: int
    parts: int

    @property
    def count(self) -> int:
        return self.world * self.parts

    def check(self, batch: int) -> None:
        if batch % self.count:
            raise BadChoice(
                f"a batch of {batch} cannot be shared by {self.world} processes in {self.parts} parts each: make it a "
                f"multiple of {self.count}"
            )


class Order:
    """`steps` steps of `batch` pictures, `epoch_steps` in an epoch; `notes` say what is not as the recipe has it."""

    def __init__(self, recipe: Recipe, feed: Feed, shares: Shares, name: str) -> None:
        self.seed, self.shares, self.count, self.notes = recipe.seed, shares, len(feed.samples), list[str]()
        self.batch = min(recipe.batch, self.count // shares.count * shares.count)
        if self.batch < 1:
            raise BadChoice(f"{name} has {self.count} pictures, fewer than the {shares.count} of one step")
        if self.batch < recipe.batch:
            self.notes.append(f"batches of {self.batch}, since there are only {self.count} pictures")
        if recipe.schedule.warmup >= recipe.epochs:
            whole = f"takes the whole run of {recipe.epochs:g}"
            self.notes.append(f"the warm-up of {recipe.schedule.warmup:g} epochs {whole}")
        self.epoch_steps = self.count // self.batch
        self.steps = max(round(recipe.epochs * self.epoch_steps), 1)
        self.balanced: Balanced | None = None
        if recipe.per_class is not None:
            self.balanced = Balanced(feed.labels.tolist(), self.batch, recipe.per_class, shares.count)
            if self.balanced.left_out:
                fewer = f"of fewer than {recipe.per_class} pictures are left out"
                self.notes.append(f"{self.balanced.left_out} classes {fewer}")

    def wanted(self, first: int) -> Iterator[Wanted]:
        """The pictures of every part of every step from `first` on, this process's share."""
        known, order = -1, torch.empty(0)
        mine = slice(*(rank * self.batch // self.shares.world for rank in (self.shares.rank, self.shares.rank + 1)))
        for step in range(first, self.steps):
            epoch, place = divmod(step, self.epoch_steps)
            if known != epoch:
                known, order = epoch, self._shuffled(generator(self.seed, epoch, 1))
            index = order[place * self.batch : (place + 1) * self.batch]
            draws, more = draw(self.batch, self.seed, step), draw_more(self.batch, self.seed, step)
            yield from map(Wanted, *(values[mine].chunk(self.shares.parts) for values in (index, draws, more)))

    def _shuffled(self, random: torch.Generator) -> Tensor:
        if self.balanced is not None:
            return self.balanced.order(self.epoch_steps, random)
        return torch.randperm(self.count, generator=random)


class Balanced:
    """Batches of a few classes with so many pictures each. In an epoch no picture of a class comes again before all
    have come. A batch is taken in `shares`, by processes or one after the other, each of which compares its own
    pictures alone."""

    def __init__(self, labels: Sequence[int], batch: int, per_class: int, shares: int = 1) -> None:
        members: dict[int, list[int]] = {}
        for i, label in enumerate(labels):
            members.setdefault(label, []).append(i)
        self.members = {label: torch.tensor(rows) for label, rows in sorted(members.items()) if len(rows) >= per_class}
        self.left_out = len(members) - len(self.members)  # classes with fewer pictures
        self.each, self.classes = per_class, batch // per_class
        share, whose = batch // shares, f"a batch of {batch}" + (f" in {shares} shares" if shares > 1 else "")
        if share % per_class or share // per_class < 2:
            mend = f"make batch a multiple of {per_class * shares}, and at least {2 * per_class * shares}"
            raise BadChoice(f"{whose} needs two classes or more with {per_class} pictures each: {mend}")
        if len(self.members) < self.classes:
            raise BadChoice(
                f"a batch of {batch} with {per_class} per class needs {self.classes} classes of {per_class} pictures "
                f"or more, and the data has {len(self.members)}: make batch smaller, or per_class larger"
            )

    def order(self, batches: int, random: torch.Generator) -> Tensor:
        """So many batches after each other, each class's pictures together."""
        waiting: list[int] = []
        left = {label: rows[:0] for label, rows in self.members.items()}
        turns: list[Tensor] = []
        for _ in range(batches):
            chosen, waiting = waiting[: self.classes], waiting[self.classes :]
            if len(chosen) < self.classes:  # the next round of all classes, in which these have their turn later
                names = list(self.members)
                coming = [names[i] for i in torch.randperm(len(names), generator=random).tolist()]
                more = [label for label in coming if label not in chosen][: self.classes - len(chosen)]
                chosen, waiting = chosen + more, [label for label in coming if label not in more]
            for label in chosen:
                if len(left[label]) < self.each:
                    rows = self.members[label]
                    again = rows[torch.randperm(len(rows), generator=random)]
                    first = torch.isin(again, left[label])  # of the last round, so that they come last in this
                    left[label] = torch.cat([left[label], again[~first], again[first]])
                turns.append(left[label][: self.each])
                left[label] = left[label][self.each :]
        return torch.cat(turns)
