"""The loop that trains every network: a recipe in, weights with their score and card out.

Nothing random has a state of its own: the order of an epoch follows from (seed, epoch), crops and masks from
(seed, step). A run that was killed goes on from its checkpoint as if nothing had happened, and several processes see,
each its share of, the batches that one would see.
"""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fovea.basics.files import write_json
from fovea.training import checkpoint
from fovea.training.augment import hidden, mixing
from fovea.training.averaging import averages
from fovea.training.ending import CARD, CURVES, WEIGHTS, Trained, finish
from fovea.training.feed import Batch
from fovea.training.log import Log
from fovea.training.optimizers import optimizer_of, set_rates, share
from fovea.training.principal import start
from fovea.training.prototypes import place
from fovea.training.recipe import Recipe
from fovea.training.repeatable import generator, repeatable, seed_all
from fovea.training.run import Job, Quiet, Run, Show, said
from fovea.training.step import Step, hits
from fovea.training.tally import Diverged, Tally
from fovea.training.together import agreed, attempt, fabric_of, losing_others_is_said, part_ways, synced

__all__ = ["STARTED", "Quiet", "Show", "Trained", "said", "train"]
STARTED = "started"
LONG = 5000  # steps


def train(
    recipe: Recipe,
    out: str | Path,
    name: str = "network",
    resume: bool = False,
    fresh: bool = False,
    device: str = "auto",
    show: Show | None = None,
    changes: Sequence[str] = (),
) -> Trained:
    """Train by a recipe into the folder `out`. `resume` goes on where a run was stopped; `fresh` throws it away.

    `name` and `changes` are what the card says of the recipe: its file's name, and what was set otherwise.
    """
    for part in ("fabric", "pytorch"):  # its advice on settings is not for those who run a recipe
        logging.getLogger(f"lightning.{part}").setLevel(logging.WARNING)
    fabric, precision = fabric_of(device, recipe.precision)
    out, show = Path(out), show if show is not None and fabric.is_global_zero else Quiet()
    command = f"Go on with: fovea train … --out {out} --resume"
    with repeatable(fabric.device, recipe.threads), losing_others_is_said(fabric, command):
        run = Run(Job(recipe, out, name, tuple(changes), fabric, precision, show), resume, fresh)
        loop = _Loop(run, fresh)
        trained = finish(run, loop.go(), loop.seconds())
        part_ways(fabric)
        return trained


class _Loop:
    """The steps of a run, from its first or from its checkpoint on."""

    def __init__(self, run: Run, fresh: bool) -> None:
        self.run, self.job, self.recipe, self.fabric = run, run.job, run.job.recipe, run.job.fabric
        recipe, fabric = self.recipe, self.fabric
        if recipe.sync_norm and fabric.world_size > 1:
            run.network.module = synced(run.network.module, fabric.device.type == "cuda")
        self.stepper: Step = self.job.precision.convert_module(Step(run.network, recipe.loss, fabric.device))
        if fabric.device.type == "cuda":  # on a CPU, batch norm's sums are less exact in this format
            self.stepper.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.optimizer = optimizer_of(recipe.optimizer, self.stepper)
        self.stepper.to(fabric.device)
        if run.known is None:
            self._begin()
        self.averaged = averages(self.stepper.module, recipe.ema) if recipe.ema else None
        if recipe.compile:
            self.stepper.module.compile()
        self.first, seconds = 0, 0.0
        if run.known is not None:
            self.first, seconds = self._restore(run.known)
        agreed(fabric, self.first, run.order.count, run.order.steps, run.order.batch)
        if fabric.is_global_zero:
            if fresh:  # only now that nothing is left to refuse
                for name in (checkpoint.NAME, WEIGHTS, CARD, CURVES):
                    (self.job.out / name).unlink(missing_ok=True)
            (self.job.out / STARTED).write_text(attempt())
        self.wrapped, self.tuner = fabric.setup(self.stepper, self.optimizer)
        self.started = time.monotonic() - seconds
        self.log = Log(self.job.out, self.first) if fabric.is_global_zero else None
        if fabric.is_global_zero:
            write_json(self.job.out / "recipe.json", recipe.model_dump())
        self.mix = mixing(recipe.augment, len(run.labels))
        self.diverged = Diverged(run.feed.samples, run.order.steps, self.job.out)
        self.tally, self.saved = Tally(), time.monotonic()

    def _begin(self) -> None:
        """Where a network does not begin at random, it begins at the training pictures."""
        network, pictures, progress = self.run.network, self.run.pictures, self.job.show.decoding
        if self.recipe.place and pictures is not None:
            place(network, pictures, generator(self.recipe.seed), progress=progress)
        if self.recipe.principal and pictures is not None:
            start(network, pictures, min(self.recipe.batch, 64), progress)

    def _restore(self, known: dict[str, Any]) -> tuple[int, float]:
        """The step to go on at, and the seconds that the run has taken so far."""
        self.stepper.load_state_dict(known["stepper"])
        self.optimizer.load_state_dict(known["optimizer" if "optimizer" in known else "optimiser"])
        self.job.precision.load_state_dict(known["precision"])
        if self.averaged is not None:
            self.averaged.load_state_dict(known["averaged"])
        self.job.show.line(f"going on at step {known['step']} of {self.run.order.steps}")
        return int(known["step"]), float(known["seconds"])

    def seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def kept(self) -> nn.Module:
        """The module whose weights are tested and kept."""
        return self.averaged.module if self.averaged else self.stepper.module

    def go(self) -> nn.Module:
        steps, device = self.run.order.steps, self.fabric.device
        # trying convolution algorithms takes a quarter of a minute, which short runs do not win back
        torch.backends.cudnn.benchmark = device.type == "cuda" and steps >= LONG
        self.wrapped.train()
        self.tally, self.saved = Tally(), time.monotonic()
        stream = self.run.feed.batches(self.run.order.wanted(self.first))
        for step in range(self.first, steps):
            seed_all(self.recipe.seed, step, self.fabric.global_rank)
            set_rates(self.optimizer, share(self.recipe.schedule, self.run.epoch(step + 0.5), self.recipe.epochs))
            for part in range(self.recipe.accumulate):
                self._forward_and_back(next(stream), part, step)
            if self.recipe.optimizer.clip is not None:
                self.fabric.clip_gradients(
                    self.wrapped, self.tuner, max_norm=self.recipe.optimizer.clip, error_if_nonfinite=False
                )
            self.tuner.step()
            self.tuner.zero_grad()
            if self.averaged is not None:
                self.averaged.update_parameters(self.stepper.module)
            self._after(step + 1)
        return self.kept

    def _forward_and_back(self, batch: Batch, part: int, step: int) -> None:
        inputs, target = self.mix(batch.inputs, batch.target)
        if isinstance(inputs, Tensor) and inputs.ndim == 4:
            inputs = hidden(inputs, self.recipe.augment)
        if self.fabric.device.type == "cuda" and inputs.ndim == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        with self.fabric.no_backward_sync(self.wrapped, enabled=part < self.recipe.accumulate - 1):
            loss, logits = self.wrapped(inputs, target)
            self.fabric.backward(loss / self.recipe.accumulate)
        right = hits(self.recipe.loss, logits, target)
        self.tally.add(loss.detach(), right, step, batch.index, self.fabric.world_size)

    def _after(self, done: int) -> None:
        """What comes between two steps where it is due: figures, a test, a checkpoint."""
        last, row_due = done == self.run.order.steps, done % self.recipe.log_every == 0
        # on a GPU, looking at the loss waits for it: there it is looked at now and then
        look_due = self.fabric.device.type == "cpu" or row_due or last
        save_due = time.monotonic() - self.saved >= self.recipe.save_every or last
        look_due = look_due or (save_due and self.fabric.world_size == 1)
        if look_due:
            facts = {"epoch": round(self.run.epoch(done), 4), "lr": self.optimizer.param_groups[0]["lr"]}
            facts |= self.tally.checked(self.fabric, self.diverged)
            self.job.show.step(done, self.run.order.steps, facts)
            if self.log is not None and (row_due or last):
                self.log.add(step=done, seconds=round(self.seconds(), 2), **facts)
            if row_due:
                self.tally = Tally()
        if self._test_due(done):
            self._test(done)
            self.tally.forget_time()
        if save_due and look_due:
            self.diverged.check_weights(self.stepper, done)
            self._save(done)
            self.saved = time.monotonic()

    def _test_due(self, done: int) -> bool:
        """At the first step after each so many epochs; the last test is made with the weights that are kept."""
        every = self.recipe.test_every * self.run.order.epoch_steps
        return self.run.tested is not None and done < self.run.order.steps and done // every > (done - 1) // every

    def _test(self, done: int) -> None:
        score = self.run.score(self.kept)
        self.kept.train()
        epoch = self.run.epoch(done)
        if self.log is not None:
            self.log.add(step=done, epoch=round(epoch, 4), **score)
        self.job.show.line(f"epoch {epoch:.1f}: " + said(score))

    def _save(self, done: int) -> None:
        if self.fabric.is_global_zero:
            state = {
                "step": done,
                "seconds": self.seconds(),
                "recipe": self.recipe.model_dump_json(),
                "data": self.run.about_data,
                "stepper": self.stepper.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "averaged": None if self.averaged is None else self.averaged.state_dict(),
                "precision": self.job.precision.state_dict(),
            }
            checkpoint.save(self.job.out, state)
