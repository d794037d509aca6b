"""A run before its first step: network, data and order, and all that can be refused."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.fabric import Fabric
from torch import nn

from fovea.basics.errors import BadChoice
from fovea.data import DataSet
from fovea.networks.network import Network
from fovea.training import checkpoint
from fovea.training.media import medium_of
from fovea.training.order import Order, Shares
from fovea.training.recipe import Recipe
from fovea.training.repeatable import mixed

# keys of a recipe, and what a network must be able to do for them
ABILITIES = {"place": "prototypes", "project": "prototypes", "principal": "embedding"}


class Show(Protocol):
    """Where a run says how far it is."""

    def decoding(self, done: int, total: int) -> None: ...

    def step(self, done: int, total: int, facts: dict[str, Any]) -> None: ...

    def line(self, text: str) -> None: ...


class Quiet:
    def decoding(self, done: int, total: int) -> None: ...

    def step(self, done: int, total: int, facts: dict[str, Any]) -> None: ...

    def line(self, text: str) -> None: ...


@dataclass(frozen=True)
class Job:
    """What is asked for: a recipe, the folder for its files, what the card says of it, and who does it."""

    recipe: Recipe
    out: Path
    name: str
    changes: tuple[str, ...]
    fabric: Fabric
    precision: Any  # Fabric's plugin, whose state is in checkpoints
    show: Show


class Run:
    def __init__(self, job: Job, resume: bool, fresh: bool) -> None:
        self.job, recipe, fabric, show = job, job.recipe, job.fabric, job.show
        shares = Shares(fabric.global_rank, fabric.world_size, recipe.accumulate)
        shares.check(recipe.batch)
        data = medium_of(recipe)
        self.labels, self.pictures = data.labels, data.pictures
        torch.manual_seed(mixed(recipe.seed))
        self.network = data.network()
        self.network.name = job.name
        _refuse(recipe, self.network, self.pictures, data.name)
        checkpoint.room_for(job.out, checkpoint.size_of(self.network.module, recipe.ema > 0))
        self.about_data = {"labels": list(self.labels), "pictures": len(data)}
        self.known = None if fresh else checkpoint.load(job.out)
        if self.known is not None:
            if not resume:
                raise BadChoice(f"{job.out} holds a run: --resume goes on with it, --fresh throws it away")
            checkpoint.same_run(self.known, recipe, self.about_data, job.out)
        self.feed = data.feed(self.network, fabric.device, show.decoding)
        self.tested = data.tested(self.network, fabric.device, show.decoding)
        self._named: set[str] = set()
        self.report_skipped()
        self.order = Order(recipe, self.feed, shares, data.name)
        for note in self.order.notes:
            show.line(note)

    def report_skipped(self) -> None:
        """Pictures that cannot be read, each named once: held ones at the start, streamed ones when their turn came."""
        for name, reason in [*self.feed.skipped, *(self.tested.skipped if self.tested else [])]:
            if name not in self._named:
                self.job.show.line(f"skipped {name}: {reason}")
                self._named.add(name)

    def score(self, module: nn.Module) -> dict[str, float]:
        """That of the network with this module, maybe a copy with averaged weights; nothing without test data."""
        if self.tested is None:
            return {}
        score = self.tested.score(self.network, module, self.job.fabric, min(self.job.recipe.batch, 256))
        self.report_skipped()
        return score

    def epoch(self, steps: float) -> float:
        return steps / self.order.epoch_steps


def _refuse(recipe: Recipe, network: Network, pictures: DataSet | None, name: str) -> None:
    """What a network or its data cannot do is refused now rather than at the end."""
    for key, ability in ABILITIES.items():
        if getattr(recipe, key) and not network.can(ability):
            raise BadChoice(f"{key} = true needs a network with {ability}, and {recipe.network.name} has no {ability}")
        if getattr(recipe, key) and pictures is None:
            raise BadChoice(f"{key} is for sets of pictures, and {name} is none")


def said(score: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.4f}" for key, value in score.items()) or "no test data"
