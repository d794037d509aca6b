"""The loop that trains every network: a recipe in, weights with their score and card out.

Nothing random has a state of its own: the order of an epoch follows from (seed, epoch), crops and masks from
(seed, step). A run that was killed goes on from its checkpoint as if nothing had happened, and several processes see,
each its share of, the batches that one would see.
"""

import json
import logging
import math
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from lightning.fabric import Fabric
from torch import Tensor, nn
from torchvision.transforms import v2

from fovea.basics.errors import BadChoice, FoveaError
from fovea.basics.files import write_json
from fovea.basics.provenance import provenance
from fovea.models.embedding import embedding_of
from fovea.models.protopnet import prototypes_of
from fovea.networks.network import Network, borrowed_of, fit_for_half, hash_of
from fovea.training import checkpoint
from fovea.training.augment import draw, draw_more, generator, hidden, mixed
from fovea.training.averaging import averages, settled
from fovea.training.balanced import Balanced
from fovea.training.feed import Batch, Wanted, labels_of
from fovea.training.log import Log, plot, read
from fovea.training.losses import Step, hits, teacher_of
from fovea.training.media import Pictures, medium_of
from fovea.training.optimising import optimiser_of, set_rates, share
from fovea.training.principal import start
from fovea.training.prototypes import place, project
from fovea.training.recipe import AugmentPart, Part, Recipe
from fovea.training.together import agreed, attempt, fabric_of, losing_others_is_said, part_ways, synced

WEIGHTS, CARD, CURVES, STARTED = "weights.safetensors", "card.json", "curves.png", "started"
LONG = 5000  # steps


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


@dataclass
class _Tally:
    """Losses and hits since the last row of the log, kept on the device until they are needed."""

    losses: list[Tensor] = field(default_factory=list)
    hits: list[Tensor] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    index: list[Tensor] = field(default_factory=list)
    pictures: int = 0
    since: float = field(default_factory=time.monotonic)


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
    with _repeatable(fabric, recipe.threads), losing_others_is_said(fabric, command):
        done = _Run(recipe, out, name, changes, fabric, precision, show, resume, fresh).go(fresh)
        part_ways(fabric)
        return done


class _Run:
    def __init__(
        self, recipe: Recipe, out: Path, name: str, changes: Sequence[str], fabric: Fabric, precision: Any, show: Show,
        resume: bool, fresh: bool,
    ) -> None:  # fmt: skip
        self.recipe, self.out, self.name, self.fabric, self.show = recipe, out, name, fabric, show
        self.precision, self.changes = precision, list(changes)
        per_step = fabric.world_size * recipe.accumulate
        if recipe.batch % per_step:
            raise BadChoice(
                f"a batch of {recipe.batch} cannot be shared by {fabric.world_size} processes in {recipe.accumulate} "
                f"parts each: make it a multiple of {per_step}"
            )
        data = medium_of(recipe)
        self.labels = data.labels
        torch.manual_seed(mixed(recipe.seed))
        self.network = data.network()
        self.network.name = name
        self.pictures = data.data if isinstance(data, Pictures) else None
        if recipe.place or recipe.project:  # refused now rather than at the end
            prototypes_of(self.network)
            if self.pictures is None:
                raise BadChoice(f"place and project are for sets of pictures, and {data.name} is none")
        if recipe.principal:
            embedding_of(self.network)
            if self.pictures is None:
                raise BadChoice(f"principal is for sets of pictures, and {data.name} is none")
        checkpoint.room_for(out, checkpoint.size_of(self.network.module, recipe.ema > 0))
        self.about_data = {"labels": list(self.labels), "pictures": len(data)}
        self.known = None if fresh else checkpoint.load(out)
        if self.known is not None:
            if not resume:
                raise BadChoice(f"{out} holds a run: --resume goes on with it, --fresh throws it away")
            self._same_run(self.known)
        self.feed = data.feed(self.network, fabric.device, show.decoding)
        self.tested = data.tested(self.network, fabric.device, show.decoding)
        self.told: set[str] = set()
        self._report_skipped()
        self.batch = min(recipe.batch, len(self.feed.samples) // per_step * per_step)
        if self.batch < 1:
            raise BadChoice(f"{data.name} has {len(self.feed.samples)} pictures, fewer than the {per_step} of one step")
        if self.batch < recipe.batch:
            show.line(f"batches of {self.batch}, since there are only {len(self.feed.samples)} pictures")
        if recipe.schedule.warmup >= recipe.epochs:
            show.line(f"the warm-up of {recipe.schedule.warmup:g} epochs takes the whole run of {recipe.epochs:g}")
        self.epoch_steps = len(self.feed.samples) // self.batch
        self.steps = max(round(recipe.epochs * self.epoch_steps), 1)
        self.mix = mixing(recipe.augment, len(self.labels))
        self.order: tuple[int, Tensor] = (-1, torch.empty(0))
        self.balanced: Balanced | None = None
        if recipe.per_class is not None:
            self.balanced = Balanced(labels_of(self.feed), self.batch, recipe.per_class, per_step)
            if self.balanced.left_out:
                show.line(f"{self.balanced.left_out} classes of fewer than {recipe.per_class} pictures are left out")

    def go(self, fresh: bool) -> Trained:
        recipe, fabric, known = self.recipe, self.fabric, self.known
        teacher = teacher_of(recipe.loss.distil, self.network, fabric.device)
        if recipe.sync_norm and fabric.world_size > 1:
            self.network.module = synced(self.network.module, fabric.device.type == "cuda")
        stepper = self.precision.convert_module(Step(self.network, recipe.loss, teacher))
        if fabric.device.type == "cuda":  # on a CPU, batch norm's sums are less exact in this format
            stepper.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        optimiser = optimiser_of(recipe.optimiser, stepper)
        stepper.to(fabric.device)
        if recipe.place and self.pictures is not None and known is None:
            place(self.network, self.pictures, generator(recipe.seed), progress=self.show.decoding)
        if recipe.principal and self.pictures is not None and known is None:
            start(self.network, self.pictures, min(recipe.batch, 64), self.show.decoding)
        averaged = averages(stepper.module, recipe.ema) if recipe.ema else None
        if recipe.compile:
            stepper.module.compile()
        first, seconds = 0, 0.0
        if known is not None:
            first, seconds = int(known["step"]), float(known["seconds"])
            stepper.load_state_dict(known["stepper"])
            optimiser.load_state_dict(known["optimiser"])
            self.precision.load_state_dict(known["precision"])
            if averaged is not None:
                averaged.load_state_dict(known["averaged"])
            self.show.line(f"going on at step {first} of {self.steps}")
        agreed(fabric, first, len(self.feed.samples), self.steps, self.batch)
        if fabric.is_global_zero:
            if fresh:  # only now that nothing is left to refuse
                for name in (checkpoint.NAME, WEIGHTS, CARD, CURVES):
                    (self.out / name).unlink(missing_ok=True)
            (self.out / STARTED).write_text(attempt())
        wrapped, tuner = fabric.setup(stepper, optimiser)
        started = time.monotonic() - seconds
        log = Log(self.out, first) if fabric.is_global_zero else None
        if fabric.is_global_zero:
            write_json(self.out / "recipe.json", recipe.model_dump())

        def save(step: int) -> None:
            if fabric.is_global_zero:
                state = {
                    "step": step,
                    "seconds": time.monotonic() - started,
                    "recipe": recipe.model_dump_json(),
                    "data": self.about_data,
                    "stepper": stepper.state_dict(),
                    "optimiser": optimiser.state_dict(),
                    "averaged": None if averaged is None else averaged.state_dict(),
                    "precision": self.precision.state_dict(),
                }
                checkpoint.save(self.out, state)

        # trying convolution algorithms takes a quarter of a minute, which short runs do not win back
        torch.backends.cudnn.benchmark = fabric.device.type == "cuda" and self.steps >= LONG
        wrapped.train()
        tally, saved = _Tally(), time.monotonic()
        stream = self.feed.batches(self._wanted(first))
        for step in range(first, self.steps):
            _seed(recipe.seed, step, fabric.global_rank)
            set_rates(optimiser, share(recipe.schedule, (step + 0.5) / self.epoch_steps, recipe.epochs))
            for part in range(recipe.accumulate):
                self._forward_and_back(wrapped, next(stream), part, tally, step)
            if recipe.optimiser.clip is not None:
                fabric.clip_gradients(wrapped, tuner, max_norm=recipe.optimiser.clip, error_if_nonfinite=False)
            tuner.step()
            tuner.zero_grad()
            if averaged is not None:
                averaged.update_parameters(stepper.module)
            done = step + 1
            # on a GPU, looking at the loss waits for it: there it is looked at now and then
            look_due = fabric.device.type == "cpu" or done % recipe.log_every == 0 or done == self.steps
            save_due = time.monotonic() - saved >= recipe.save_every or done == self.steps
            look_due = look_due or (save_due and fabric.world_size == 1)
            save_due = save_due and look_due
            if look_due:
                facts = self._checked(tally, optimiser, done)
                self.show.step(done, self.steps, facts)
                if log is not None and (done % recipe.log_every == 0 or done == self.steps):
                    log.add(step=done, seconds=round(time.monotonic() - started, 2), **facts)
                if done % recipe.log_every == 0:
                    tally = _Tally()
            if self._test_due(done):
                self._test(averaged.module if averaged else stepper.module, done, log)
                tally.since, tally.pictures = time.monotonic(), 0
            if save_due:
                self._still_finite(stepper, done)
                save(done)
                saved = time.monotonic()
        return self._finish(averaged.module if averaged else stepper.module, time.monotonic() - started)

    def _wanted(self, first: int) -> Iterator[Wanted]:
        """The pictures of every part of every step from `first` on, this process's share."""
        rank, world, parts = self.fabric.global_rank, self.fabric.world_size, self.recipe.accumulate
        for step in range(first, self.steps):
            epoch, place = divmod(step, self.epoch_steps)
            if self.order[0] != epoch:
                self.order = epoch, self._shuffled(generator(self.recipe.seed, epoch, 1))
            index = self.order[1][place * self.batch : (place + 1) * self.batch]
            draws, more = draw(self.batch, self.recipe.seed, step), draw_more(self.batch, self.recipe.seed, step)
            ours = slice(rank * self.batch // world, (rank + 1) * self.batch // world)
            yield from map(Wanted, *(one[ours].chunk(parts) for one in (index, draws, more)))

    def _shuffled(self, random: torch.Generator) -> Tensor:
        if self.balanced is not None:
            return self.balanced.order(self.epoch_steps, random)
        return torch.randperm(len(self.feed.samples), generator=random)

    def _forward_and_back(self, wrapped: Any, batch: Batch, part: int, tally: _Tally, step: int) -> None:
        inputs, target = self.mix(batch.inputs, batch.target)
        if isinstance(inputs, Tensor) and inputs.ndim == 4:
            inputs = hidden(inputs, self.recipe.augment)
        if self.fabric.device.type == "cuda" and inputs.ndim == 4:
            inputs = inputs.to(memory_format=torch.channels_last)
        with self.fabric.no_backward_sync(wrapped, enabled=part < self.recipe.accumulate - 1):
            loss, logits = wrapped(inputs, target)
            self.fabric.backward(loss / self.recipe.accumulate)
        tally.losses.append(loss.detach())
        tally.hits.append(hits(self.recipe.loss, logits, target))
        tally.steps.append(step)
        tally.index.append(batch.index)
        tally.pictures += len(batch.index) * self.fabric.world_size

    def _checked(self, tally: _Tally, optimiser: torch.optim.Optimizer, done: int) -> dict[str, Any]:
        """The figures since the last row, once every loss among them is known to be a number."""
        losses, hits = torch.stack(tally.losses), torch.stack(tally.hits)
        both = torch.stack([losses, hits])
        everyone: Any = both if self.fabric.world_size == 1 else self.fabric.all_reduce(both)
        wrong = ~everyone[0].isfinite()
        if wrong.any():
            first = int(wrong.nonzero()[0])
            raise FoveaError(self._not_finite(tally, first, float(losses[first])))
        loss, accuracy = everyone.mean(1).tolist()
        speed = tally.pictures / max(time.monotonic() - tally.since, 1e-9)
        return {
            "epoch": round(done / self.epoch_steps, 4),
            "loss": loss,
            "accuracy": accuracy,
            "lr": optimiser.param_groups[0]["lr"],
            "images_per_second": round(speed, 1),
        }

    def _not_finite(self, tally: _Tally, place: int, ours: float) -> str:
        names = [self.feed.samples[i].name for i in tally.index[place].tolist()]
        files = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        whose = "the loss is" if not math.isfinite(ours) else "another process's loss is not finite; here it is"
        return f"{whose} {ours} at step {tally.steps[place] + 1} (of {self.steps}); the batch: {files}; {self._mend()}"

    def _still_finite(self, stepper: nn.Module, done: int) -> None:
        """A gradient may overflow while the loss does not: such weights are not saved."""
        tensors = [one for one in stepper.state_dict().values() if one.is_floating_point()]
        if not bool(torch.stack([one.isfinite().all() for one in tensors]).all()):
            raise FoveaError(f"weights are no longer finite after step {done} (of {self.steps}); {self._mend()}")

    def _mend(self) -> str:
        good = self.out / checkpoint.NAME
        kept = f"the last good checkpoint is {good}" if good.is_file() else "there is no checkpoint yet"
        return f"{kept}. Start again (--fresh) with a lower optimiser.lr, a schedule.warmup, or optimiser.clip=1.0"

    def _test_due(self, done: int) -> bool:
        """At the first step after each so many epochs; the last test is made with the weights that are kept."""
        every = self.recipe.test_every * self.epoch_steps
        return self.tested is not None and done < self.steps and done // every > (done - 1) // every

    def _test(self, module: nn.Module, done: int, log: Log | None) -> None:
        score = self._score(module)
        self._report_skipped()
        module.train()
        epoch = done / self.epoch_steps
        if log is not None:
            log.add(step=done, epoch=round(epoch, 4), **score)
        self.show.line(f"epoch {epoch:.1f}: " + said(score))

    def _score(self, module: nn.Module) -> dict[str, float]:
        assert self.tested is not None
        return self.tested.score(self.network, module, self.fabric, min(self.recipe.batch, 256))

    def _same_run(self, known: dict[str, Any]) -> None:
        """A run goes on with the recipe and the data that it began with."""
        if not {"recipe", "data", "stepper"} <= set(known):
            raise FoveaError(f"{self.out / checkpoint.NAME} is not a checkpoint of fovea train; name another --out")
        before, now = json.loads(known["recipe"]), json.loads(self.recipe.model_dump_json())
        _fill(before, self.recipe)
        for one in (before, now):
            one["data"].pop("workers", None)
        free = {"about", "command", "expected", "took", "save_every", "log_every", "test_every"}
        differ = [key for key in now if key not in free and before.get(key) != now[key]]
        if differ:
            raise BadChoice(
                f"{self.out} was trained by another recipe ({', '.join(differ)} differ): --resume goes on with the "
                "same one, its --set included; name another --out, or --fresh"
            )
        if known["data"] != self.about_data:
            raise BadChoice(
                f"the data has changed since {self.out} was begun ({known['data']['pictures']} pictures of "
                f"{len(known['data']['labels'])} classes then, {self.about_data['pictures']} of {len(self.labels)} "
                "now, or other names): name another --out, or --fresh"
            )

    def _report_skipped(self) -> None:
        """Pictures that cannot be read, each named once: held ones at the start, streamed ones when their turn came."""
        for name, reason in [*self.feed.skipped, *(self.tested.skipped if self.tested else [])]:
            if name not in self.told:
                self.show.line(f"skipped {name}: {reason}")
                self.told.add(name)

    def _stored(self, module: nn.Module) -> dict[str, Tensor]:
        """Weights as the file has them."""
        state = {key: value.detach().cpu() for key, value in module.state_dict().items()}
        another, own = borrowed_of(module, state)
        return another | {key: fit_for_half(value) for key, value in own.items()} if self.recipe.half else state

    def _finish(self, module: nn.Module, seconds: float) -> Trained:
        """The weights that are kept, scored as they are in the file, with their card."""
        if self.recipe.settle:
            settled(module, (one.inputs for one in self.feed.batches(islice(self._wanted(0), self.recipe.settle))))
        state = self._stored(module)
        if self.fabric.world_size > 1 and not self.recipe.sync_norm:
            state = self.fabric.broadcast(state)  # each process's norms have their own statistics
        self.network.module.load_state_dict(state)
        self.network.module.eval()
        if self.recipe.project and self.pictures is not None:  # with the weights of the file, of which it must be true
            found = project(self.network, self.pictures, progress=self.show.decoding)
            self.show.line(found.line())
            state = self._stored(self.network.module)
            self.network.module.load_state_dict(state)
        score = self._score(self.network.module) if self.tested is not None else {}
        self._report_skipped()
        weights, card = self.out / WEIGHTS, self.out / CARD
        digest, minutes = hash_of(state), round(seconds / 60, 2)
        if self.fabric.is_global_zero:
            self.network.save(weights, self.recipe.half)
            facts = {
                "name": self.name,
                "about": self.recipe.about,
                "network": self.recipe.network.name,
                "classes": len(self.labels),
                "parameters": sum(one.numel() for one in self.network.module.parameters()),
                "trained_on": self.recipe.data.train,
                "tested_on": self.recipe.data.test,
                "test_pictures": None if self.tested is None else len(self.tested),
                "score": score,
                "changes": self.changes,
                "minutes": minutes,
                "weights_sha256": digest,
            }
            write_json(card, facts | provenance(self.recipe.seed, f"recipes/{self.name}.toml"))
            log = Log(self.out, self.steps)
            rows = read(self.out)
            if score and not (rows and next(iter(score)) in rows[-1]):  # a finished run may be asked to go on
                log.add(step=self.steps, epoch=round(self.steps / self.epoch_steps, 4), **score)
            plot(self.out, f"{self.name}: {self.recipe.about}")
            self.show.line("the end: " + said(score))
        self.network.module.to(self.fabric.device)
        return Trained(self.network, score, weights, card, digest, minutes)


def _fill(before: dict[str, Any], part: Part) -> None:
    """A recipe of an earlier fovea has the defaults of what has come since."""
    for name, about in type(part).model_fields.items():
        value = getattr(part, name)
        if name not in before:
            before[name] = about.get_default(call_default_factory=True)
        elif isinstance(value, Part) and isinstance(before[name], dict):
            _fill(before[name], value)


def mixing(part: AugmentPart, classes: int) -> Any:
    """Mixup, cutmix, or either in turn (torchvision); targets become shares of classes."""
    found = [
        kind(alpha=alpha, num_classes=classes)
        for kind, alpha in ((v2.MixUp, part.mixup), (v2.CutMix, part.cutmix))
        if alpha > 0
    ]
    return v2.RandomChoice(found) if found else lambda inputs, target: (inputs, target)


def said(score: dict[str, float]) -> str:
    return ", ".join(f"{key} {value:.4f}" for key, value in score.items()) or "no test data"


def _seed(*numbers: int) -> None:
    """For what draws from the common generators: dropout, mixing, a network's own."""
    seed = mixed(*numbers)
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@contextmanager
def _repeatable(fabric: Fabric, threads: int | None) -> Iterator[None]:
    """On a CPU, the same sums in the same order every time; on a GPU, speed."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(threads or threads_before)
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    on_cpu = fabric.device.type == "cpu"
    guards: Any = torch.utils.deterministic
    fill = guards.fill_uninitialized_memory
    if on_cpu:
        torch.use_deterministic_algorithms(True, warn_only=True)
        guards.fill_uninitialized_memory = False  # a safeguard that costs a tenth of the time
    try:
        yield
    finally:
        torch.set_num_threads(threads_before)
        torch.use_deterministic_algorithms(before, warn_only=warn_only)
        guards.fill_uninitialized_memory = fill
        torch.backends.cudnn.benchmark = benchmark
