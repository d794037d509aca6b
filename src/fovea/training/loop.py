"""The loop that trains every network: a recipe in, weights with their score and card out.

Nothing random has a state of its own: the order of an epoch follows from (seed, epoch), crops and masks from
(seed, step). A run that was killed goes on from its checkpoint as if nothing had happened, and several processes see,
each its share of, the batches that one would see."""

import logging
import math
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.basics import BadChoice, FoveaError, left_out, locked, plain, shortened, write_json, write_text
from fovea.basics.provenance import provenance
from fovea.networks import Network, borrowed_of, fit_for_half, hash_of
from fovea.training import checkpoint
from fovea.training.augment import hidden, mixing
from fovea.training.averaging import Averages, settled
from fovea.training.feed import Batch, ahead
from fovea.training.log import VALIDATION, Log, Tally, plot, read
from fovea.training.media import medium_of
from fovea.training.optimizers import optimizer_of, set_rates, share
from fovea.training.order import Order, Shares
from fovea.training.prototypes import place, principal, project
from fovea.training.recipe import Recipe
from fovea.training.repeatable import generator, mixed, repeatable, seed_all
from fovea.training.scoring import Tested
from fovea.training.shards import apart, local, put, whole
from fovea.training.sharing import everyones
from fovea.training.step import Step, hits
from fovea.training.together import (
    agreed,
    as_the_first,
    attempt,
    fabric_of,
    from_first,
    losing_others_is_said,
    part_ways,
    shard_too,
    synced,
)

STARTED, WEIGHTS, CARD, CURVES = "started", "weights.safetensors", "card.json", "curves.png"
LONG = 5000  # steps
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
class Trained:
    """A finished run. `hash` is of the weights in the file, bit by bit."""

    network: Network
    score: dict[str, float]
    weights: Path
    card: Path
    hash: str
    minutes: float


@dataclass(frozen=True)
class _Job:
    """What is asked for: a recipe, the folder for its files, what the card says of it, and who does it."""

    recipe: Recipe
    out: Path
    name: str
    changes: tuple[str, ...]
    fabric: Fabric
    precision: Any  # Fabric's plugin, whose state is in checkpoints
    show: Show
    held: ExitStack  # the folder, which is this run's alone


def train(
    recipe: Recipe,
    out: str | Path,
    name: str | None = None,
    resume: bool = False,
    fresh: bool = False,
    device: str = "auto",
    show: Show | None = None,
    changes: Sequence[str] = (),
) -> Trained:
    """Train by a recipe into the folder `out`. `resume` goes on where a run was stopped; `fresh` throws it away.

    `name` is what the network is called, by the recipe or its file if not given; `changes` are what was set otherwise,
    for the card."""
    with running(recipe, out, name, resume, fresh, device, show, changes) as run:
        run.go(run.order.steps - run.done)
        trained = run.finish()
        part_ways(run.fabric)
        return trained


@contextmanager
def running(
    recipe: Recipe,
    out: str | Path,
    name: str | None = None,
    resume: bool = False,
    fresh: bool = False,
    device: str = "auto",
    show: Show | None = None,
    changes: Sequence[str] = (),
) -> Iterator["Running"]:
    """A run whose steps are taken by whoever asked for it, as `train` does."""
    for part in ("fabric", "pytorch"):  # its advice on settings is not for those who run a recipe
        logging.getLogger(f"lightning.{part}").setLevel(logging.WARNING)
    fabric, precision = fabric_of(device, recipe.precision, recipe.strategy)
    name = plain(name or recipe.name or Path(recipe.source or "network").stem)
    out, show = Path(out), show if show is not None and fabric.is_global_zero else Quiet()
    command = f"Go on with: fovea train … --out {out} --resume"
    with repeatable(fabric.device, recipe.threads), losing_others_is_said(fabric, command), ExitStack() as held:
        yield Running(_Job(recipe, out, name, tuple(changes), fabric, precision, show, held), resume, fresh)


def said(score: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.4f}" for key, value in score.items()) or "no test data"


class Running:
    """Network, data and order, and the steps from the first or from a checkpoint on."""

    def __init__(self, job: _Job, resume: bool, fresh: bool) -> None:
        self.job, self.recipe, self.fabric, self.show = job, job.recipe, job.fabric, job.show
        known = self._opened(resume, fresh)
        recipe, fabric, module = self.recipe, self.fabric, self.network.module
        if recipe.sync_norm and fabric.world_size > 1:
            self.network.module = synced(module, fabric.device.type == "cuda")
        self.stepper: Step = job.precision.convert_module(Step(self.network, recipe.loss, fabric.device))
        if fabric.device.type == "cuda":  # on a CPU, batch norm's sums are less exact in this format
            self.stepper.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.divided = recipe.strategy == "fsdp" and fabric.world_size > 1
        self.undivided = deepcopy(self.stepper.module) if self.divided else None  # for the file and for use
        if not self.divided:  # a whole network may not fit
            self.stepper.to(fabric.device)
        # scaled gradients cannot be clipped before a fused step
        fused = fabric.device.type == "cuda" and recipe.precision != "fp16"
        self.optimizer = optimizer_of(recipe.optimizer, self.stepper, fused)  # which freezes what is not trained
        if known is None:
            self._begin()
        self.averaged = Averages(self.stepper.module, recipe.ema) if recipe.ema else None
        if recipe.compile:
            self.stepper.module.compile()
        self.done = 0 if known is None else known.step
        agreed(fabric, self.done, self.order.count, self.order.steps, self.order.batch)
        self.wrapped = fabric.setup_module(self.stepper)
        if self.divided:
            self.optimizer = optimizer_of(recipe.optimizer, self.stepper, fused)
            if self.averaged is not None:
                shard_too(fabric, self.averaged.module)
                self.averaged.pair(self.stepper.module)
        seconds = 0.0 if known is None else self._restore(known)
        self.tuner: Any = fabric.setup_optimizers(self.optimizer)
        self._note_begin(fresh)
        self.started = time.monotonic() - seconds
        self.loss: float | None = None  # the last that was looked at
        self.log = Log(job.out, self.done) if fabric.is_global_zero else None
        self.mix = mixing(recipe.augment, len(self.labels))
        # trying convolution algorithms takes a quarter of a minute, which short runs do not win back
        torch.backends.cudnn.benchmark = fabric.device.type == "cuda" and self.order.steps >= LONG
        self.wrapped.train()
        self.tally, self.saved = Tally(), time.monotonic()
        stream = self.feed.batches(self.order.wanted(self.done))
        self.stream = ahead(stream) if fabric.device.type == "cuda" else stream

    def _note_begin(self, fresh: bool) -> None:
        attempts = everyones(attempt())  # any of which may be the first when torchrun starts them again
        if self.fabric.is_global_zero:
            if fresh:  # only now that nothing is left to refuse
                for name in (checkpoint.NAME, WEIGHTS, CARD, CURVES):
                    (self.job.out / name).unlink(missing_ok=True)
            write_text(self.job.out / STARTED, "\n".join(dict.fromkeys(attempts)))
            write_json(self.job.out / "recipe.json", self.recipe.model_dump())

    def _opened(self, resume: bool, fresh: bool) -> checkpoint.Checkpoint | None:
        """Network, data and order, and all that can be refused before the first step; the checkpoint to go on from."""
        recipe, fabric, show = self.recipe, self.fabric, self.show
        shares = Shares(fabric.global_rank, fabric.world_size, recipe.accumulate)
        shares.check(recipe.batch)
        data = medium_of(recipe)
        torch.manual_seed(mixed(recipe.seed))
        self.network = data.network()
        self.network.temperature = None  # weights that change make it void
        self.labels, self.pictures = data.labels, data.pictures
        if recipe.loss.reads == "embedding" and self.network.labels is not None:
            raise BadChoice(f"{recipe.network.name} is a classifier, and ranking losses train embeddings")
        self.network.name = self.job.name
        for key, ability in ABILITIES.items():
            if getattr(recipe, key) and not self.network.can(ability):
                needs = f"{key} = true needs a network with {ability}"
                raise BadChoice(f"{needs}, and {recipe.network.name} has no {ability}")
            if getattr(recipe, key) and self.pictures is None:
                raise BadChoice(f"{key} is for sets of pictures, and {data.name} is none")
        self.about_data = checkpoint.Data(labels=list(self.labels), pictures=len(data))
        known = from_first(fabric, partial(self._known, resume, fresh))
        self.feed = data.feed(self.network, fabric.device, show.decoding)
        tested = partial(data.tested, self.network, device=fabric.device, progress=show.decoding)
        self.validated, self.tested = tested(data.validation), tested(data.test)
        self.best: checkpoint.Best | None = None
        self._named: dict[str, str] = {}
        self._report_skipped()
        self.order = Order(recipe, self.feed, shares, data.name)
        for note in self.order.notes:
            show.line(note)
        return known

    def _known(self, resume: bool, fresh: bool) -> checkpoint.Checkpoint | None:
        """The checkpoint to go on from; the folder has room, and is this run's alone."""
        recipe, out = self.recipe, self.job.out
        size = checkpoint.size_of(self.network.module, (recipe.ema > 0) + recipe.best)
        checkpoint.room_for(out, size)
        self.job.held.enter_context(locked(out, wait=False))
        for left in out.glob(".part-*"):  # by a run that was killed while it wrote
            left.unlink(missing_ok=True)
        known = None if fresh else checkpoint.load(out, size)
        if known is not None:
            if not resume:
                raise BadChoice(f"{out} holds a run: --resume goes on with it, --fresh throws it away")
            checkpoint.same_run(known, recipe, self.about_data, out)
        return known

    def _report_skipped(self) -> None:
        """Pictures that cannot be read, each named once: held ones at the start, streamed ones when their turn came."""
        tests = [tested for tested in (self.validated, self.tested) if tested is not None]
        for name, reason in [*self.feed.skipped, *(row for tested in tests for row in tested.skipped)]:
            if name not in self._named:
                self.show.line(f"skipped {reason}" if name in reason else f"skipped {name}: {reason}")
                self._named[name] = reason

    def _score(self, module: nn.Module, tested: Tested | None) -> dict[str, float]:
        """That of the network with this module, maybe a copy with averaged weights; nothing without data."""
        if tested is None:
            return {}
        score = tested.score(self.network, module, self.fabric, min(self.recipe.batch, 256))
        apart(module)
        self._report_skipped()
        return score

    def _epoch(self, steps: float) -> float:
        return steps / self.order.epoch_steps

    def _begin(self) -> None:
        """Where a network does not begin at random, it begins at the training pictures."""
        network, pictures, progress = self.network, self.pictures, self.show.decoding
        if self.recipe.place and pictures is not None:
            place(network, pictures, generator(self.recipe.seed), progress=progress)
        if self.recipe.principal and pictures is not None:
            principal(network, pictures, min(self.recipe.batch, 64), progress)

    def _restore(self, known: checkpoint.Checkpoint) -> float:
        """The run as it was, and the seconds that it has taken so far."""
        with checkpoint.sound(self.job.out / checkpoint.NAME):
            if known.step > self.order.steps or (known.averaged is None) != (self.averaged is None):
                raise ValueError(f"step {known.step} of {self.order.steps}")
            checkpoint.put_back(self.optimizer, known.optimizer)
            put(self.stepper, known.stepper)
            self.job.precision.load_state_dict(known.precision)
            if self.averaged is not None and known.averaged is not None:
                put(self.averaged, known.averaged)
            self.best = known.best
        self.show.line(f"going on at step {known.step} of {self.order.steps}")
        return known.seconds

    def _seconds(self) -> float:
        return time.monotonic() - self.started

    @property
    def _kept(self) -> nn.Module:
        """The module whose weights are tested and kept."""
        return self.averaged.module if self.averaged else self.stepper.module

    def go(self, steps: int) -> None:
        """Take so many more steps."""
        for step in range(self.done, self.done + steps):
            seed_all(self.fabric.device, self.recipe.seed, step, self.fabric.global_rank)
            set_rates(self.optimizer, share(self.recipe.schedule, self._epoch(step + 0.5), self.recipe.epochs))
            for part in range(self.recipe.accumulate):
                self._forward_and_back(next(self.stream), part, step)
            if (most := self.recipe.optimizer.clip) is not None:
                self.fabric.clip_gradients(self.wrapped, self.tuner, max_norm=most, error_if_nonfinite=False)
            self.tuner.step()
            self.tuner.zero_grad()
            if self.averaged is not None:
                self.averaged.update()
            self.done = step + 1
            self._after(self.done)

    def shown(self, batch: Batch) -> tuple[Any, Tensor]:
        """What the network is given of a batch, and what it should say."""
        inputs, target = self.mix(batch.inputs, batch.target)
        if isinstance(inputs, Tensor) and inputs.ndim == 4:
            inputs = hidden(inputs, self.recipe.augment)
        if self.fabric.device.type == "cuda" and inputs.ndim == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        return inputs, target

    def _forward_and_back(self, batch: Batch, part: int, step: int) -> None:
        inputs, target = self.shown(batch)
        with self.fabric.no_backward_sync(self.wrapped, enabled=part < self.recipe.accumulate - 1):
            loss, logits = self._step(inputs, target)
            self.fabric.backward(loss / self.recipe.accumulate if self.recipe.accumulate > 1 else loss)
        right = hits(self.recipe.loss, logits, target)
        self.tally.parts.append((loss.detach().float(), right, step, batch.index))
        self.tally.pictures += len(batch.index) * self.fabric.world_size

    def _step(self, inputs: Any, target: Tensor) -> tuple[Tensor, Tensor]:
        """One process goes without the wrapper for many, which costs Python's time at every step."""
        if self.divided:
            as_the_first(self.stepper)
        if self.fabric.world_size > 1:
            return self.wrapped(inputs, target)
        with self.job.precision.forward_context():
            return self.stepper(*self.job.precision.convert_input((inputs, target)))

    def _after(self, done: int) -> None:
        """What comes between two steps where it is due: figures, a test, a checkpoint."""
        last, row_due = done == self.order.steps, done % self.recipe.log_every == 0
        # on a GPU, looking at the loss waits for it: there it is looked at now and then
        look_due = self.fabric.device.type == "cpu" or row_due or last
        save_due = time.monotonic() - self.saved >= self.recipe.save_every or last
        look_due = look_due or (save_due and self.fabric.world_size == 1)
        if look_due and self.divided:  # shards are gathered by all, whose clocks differ
            save_due = self.fabric.broadcast(save_due)
        if look_due:
            facts = {"epoch": round(self._epoch(done), 4), "lr": self.optimizer.param_groups[0]["lr"]}
            facts |= self._figures()
            self.loss = facts["loss"]
            self.show.step(done, self.order.steps, facts)
            if self.log is not None and (row_due or last):
                self.log.add(step=done, seconds=round(self._seconds(), 2), **facts)
            if row_due:
                self.tally = Tally()
        if self._test_due(done):
            self._test(done)
            self.tally.since, self.tally.pictures = time.monotonic(), 0  # its time is not the steps'
        if save_due and look_due:
            self._check_weights(done)
            self._save(done)
            self.saved = time.monotonic()

    def _figures(self) -> dict[str, Any]:
        """Those since the last row, once every loss among them is known to be a number."""
        losses, right, steps, index = zip(*self.tally.parts, strict=True)
        both = torch.stack([torch.stack(losses), torch.stack(right)])
        everyone: Any = both if self.fabric.world_size == 1 else self.fabric.all_reduce(both)
        everyone = everyone.cpu()  # what is waited for
        wrong = ~everyone[0].isfinite()
        if wrong.any():
            first = int(wrong.nonzero()[0])
            ours, names = float(losses[first]), [self.feed.samples[i].name for i in index[first].tolist()]
            whose = "the loss is" if not math.isfinite(ours) else "another process's loss is not finite; here it is"
            files = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
            raise self._diverged(f"{whose} {ours} at", steps[first] + 1, f"the batch: {files}; ")
        loss, accuracy = everyone.mean(1).tolist()
        return {"loss": loss, "accuracy": accuracy, "images_per_second": self.tally.speed()}

    def _check_weights(self, step: int) -> None:
        """A gradient may overflow while the loss does not: such weights are not saved."""
        tensors = [local(value) for value in self.stepper.state_dict().values() if value.is_floating_point()]
        finite = torch.stack([value.isfinite().all() for value in tensors]).all()
        if not bool(
            finite
            if not self.divided
            else self.fabric.all_reduce(finite.float(), reduce_op="sum") == self.fabric.world_size
        ):
            raise self._diverged("weights are no longer finite after", step)

    def _diverged(self, what: str, step: int, files: str = "") -> FoveaError:
        good = self.job.out / checkpoint.NAME
        kept = f"the last good checkpoint is {good}" if good.is_file() else "there is no checkpoint yet"
        mend = "Start again (--fresh) with a lower optimizer.lr, a schedule.warmup, or optimizer.clip=1.0"
        return FoveaError(f"{what} step {step} (of {self.order.steps}); {files}{kept}. {mend}")

    def _test_due(self, done: int) -> bool:
        """At the first step after each so many epochs; the last test is made with the weights that are kept."""
        every, last = self.recipe.test_every * self.order.epoch_steps, done == self.order.steps
        watched = self.validated or (None if last else self.tested)
        return watched is not None and (last or done // every > (done - 1) // every)

    def _test(self, done: int) -> None:
        """On the validation data where there is some: then the test data is looked at once, at the end."""
        score, epoch = self._score(self._kept, self.validated or self.tested), self._epoch(done)
        self._kept.train()
        words = said(score)
        if self.validated is not None:
            self._keep_best(score, done)
            score = {f"{VALIDATION}{key}": value for key, value in score.items()}
            words = f"loss {self.loss:.3f}, validation {words}" if self.loss is not None else f"validation {words}"
        if self.log is not None:
            self.log.add(step=done, epoch=round(epoch, 4), **score)
        self.show.line(f"epoch {epoch:.1f}: {words}")

    def _keep_best(self, score: dict[str, float], done: int) -> None:
        """Of epochs that do equally well, the last."""
        first = next(iter(score.values()))
        if self.recipe.best and (self.best is None or first >= self.best.score):
            state = {key: value.detach().clone() for key, value in whole(self._kept.state_dict()).items()}
            self.best = checkpoint.Best(step=done, score=first, state=state)

    def _save(self, done: int) -> None:
        modules: list[Any] = [self.stepper, self.optimizer, *filter(None, [self.averaged])]
        if self.fabric.is_global_zero or self.divided:  # shards are gathered by all
            stepper, optimizer, *averaged = (whole(each.state_dict()) for each in modules)
        if self.fabric.is_global_zero:
            state = {
                "step": done,
                "seconds": self._seconds(),
                "recipe": self.recipe.model_dump_json(),
                "data": self.about_data.model_dump(),
                "stepper": stepper,
                "optimizer": optimizer,
                "averaged": averaged[0] if averaged else None,
                "precision": self.job.precision.state_dict(),
                "best": None if self.best is None else dict(self.best),
            }
            checkpoint.save(self.job.out, state)

    def finish(self) -> Trained:
        """The weights that are kept, scored as they are in the file, with their card."""
        recipe, fabric, out, network = self.recipe, self.fabric, self.job.out, self.network
        module, seconds = self._kept, self._seconds()
        if self.best is not None:
            put(module, self.best.state)
            self.show.line(f"kept: the weights of epoch {self._epoch(self.best.step):.1f}, the best on validation")
        if recipe.settle:
            settled(module, (batch.inputs for batch in self.feed.batches(islice(self.order.wanted(0), recipe.settle))))
        state = _stored(module, recipe.half)
        if fabric.world_size > 1 and not recipe.sync_norm:
            state = fabric.broadcast(state)  # each process's norms have their own statistics
        scored = network.module
        if self.undivided is not None:  # what may not fit as a whole is tested as it is
            put(module, state)
            scored, network.module = module, self.undivided
        network.module.load_state_dict(state)
        network.module.eval()
        if recipe.project and self.pictures is not None:  # with the weights of the file, of which it must be true
            self.show.line(project(network, self.pictures, progress=self.show.decoding).line())
            state = _stored(network.module, recipe.half)
            network.module.load_state_dict(state)
        self.validation, score = (self._score(scored, part) for part in (self.validated, self.tested))
        self._report_skipped()
        trained = Trained(network, score, out / WEIGHTS, out / CARD, hash_of(state), round(seconds / 60, 2))
        if fabric.is_global_zero:
            network.save(trained.weights, recipe.half)
            self._write(trained)
        if not self.divided:
            network.module.to(fabric.device)
        return trained

    def _write(self, trained: Trained) -> None:
        """Card, the log's last row, curves."""
        recipe, name, out, steps = self.recipe, self.job.name, self.job.out, self.order.steps
        facts = {
            "name": name,
            "about": recipe.about,
            "network": recipe.network.name,
            "classes": len(self.labels),
            "parameters": sum(parameter.numel() for parameter in trained.network.module.parameters()),
            "labels": list(self.labels),
            "trained_on": " + ".join(map(shortened, (recipe.data.train, *recipe.data.more))),
            "tested_on": None if recipe.data.test is None else shortened(recipe.data.test),
            "chosen_on": None if recipe.data.validation is None else shortened(recipe.data.validation),
            "test_pictures": None if self.tested is None else len(self.tested),
            "score": trained.score,
            "changes": list(self.job.changes),
            "minutes": trained.minutes,
            "weights_sha256": trained.hash,
        }
        if recipe.data.validation is not None:
            facts["validation"] = self.validation
        if self._named:
            facts["skipped"] = [left_out(*each) for each in self._named.items()]
        write_json(trained.card, facts | provenance(recipe.seed, recipe.source))
        log, rows = Log(out, steps), read(out)
        if trained.score and not (rows and next(iter(trained.score)) in rows[-1]):  # a finished run may go on
            log.add(step=steps, epoch=round(self._epoch(steps), 4), **trained.score)
        plot(out, f"{name}: {recipe.about}" if recipe.about else name)
        self.show.line("the end: " + said(trained.score))


def _stored(module: nn.Module, half: bool) -> dict[str, Tensor]:
    """Weights as the file has them."""
    state = {key: value.detach().cpu() for key, value in whole(module.state_dict()).items()}
    another, ours = borrowed_of(module, state)
    return another | {key: fit_for_half(value) for key, value in ours.items()} if half else state
