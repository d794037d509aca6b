"""Batches balanced by class, for losses that compare pictures."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice


class Balanced:
    """Batches of a few classes with so many pictures each.

    In an epoch no picture of a class comes again before all have come. A batch is taken in `shares`, by processes or
    one after the other, each of which compares its own pictures alone.
    """

    def __init__(self, labels: Sequence[int], batch: int, per_class: int, shares: int = 1) -> None:
        members: dict[int, list[int]] = {}
        for i, label in enumerate(labels):
            members.setdefault(label, []).append(i)
        self.members = {label: torch.tensor(own) for label, own in sorted(members.items()) if len(own) >= per_class}
        self.left_out = len(members) - len(self.members)  # classes with fewer pictures
        self.each, self.classes = per_class, batch // per_class
        share, whose = batch // shares, f"a batch of {batch}" + (f" in {shares} shares" if shares > 1 else "")
        if share % per_class or share // per_class < 2:
            raise BadChoice(
                f"{whose} needs two classes or more with {per_class} pictures each: make batch a multiple of "
                f"{per_class * shares}, and at least {2 * per_class * shares}"
            )
        if len(self.members) < self.classes:
            raise BadChoice(
                f"a batch of {batch} with {per_class} a class needs {self.classes} classes of {per_class} pictures or "
                f"more, and the data has {len(self.members)}: make batch smaller, or per_class larger"
            )

    def order(self, batches: int, random: torch.Generator) -> Tensor:
        """So many batches after each other, each class's pictures together."""
        waiting: list[int] = []
        left = {label: own[:0] for label, own in self.members.items()}
        turns: list[Tensor] = []
        for _ in range(batches):
            chosen, waiting = waiting[: self.classes], waiting[self.classes :]
            if len(chosen) < self.classes:  # the next round of all classes, in which these have their turn later
                names = list(self.members)
                coming = [names[i] for i in torch.randperm(len(names), generator=random).tolist()]
                more = [one for one in coming if one not in chosen][: self.classes - len(chosen)]
                chosen, waiting = chosen + more, [one for one in coming if one not in more]
            for label in chosen:
                if len(left[label]) < self.each:
                    own = self.members[label]
                    again = own[torch.randperm(len(own), generator=random)]
                    first = torch.isin(again, left[label])  # of the last round, so that they come last in this
                    left[label] = torch.cat([left[label], again[~first], again[first]])
                turns.append(left[label][: self.each])
                left[label] = left[label][self.each :]
        return torch.cat(turns)
