"""What is known of the steps since the last row of the log, and what to say when it is no number any more."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.basics.errors import FoveaError
from fovea.training import checkpoint
from fovea.training.feed import Named


@dataclass
class Tally:
    """Losses and hits of every part of every step, kept on the device until they are needed."""

    losses: list[Tensor] = field(default_factory=list)
    hits: list[Tensor] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    index: list[Tensor] = field(default_factory=list)
    pictures: int = 0
    since: float = field(default_factory=time.monotonic)

    def add(self, loss: Tensor, hits: Tensor, step: int, index: Tensor, world: int) -> None:
        self.losses.append(loss)
        self.hits.append(hits)
        self.steps.append(step)
        self.index.append(index)
        self.pictures += len(index) * world

    def forget_time(self) -> None:
        """A test came between: its time is not the steps'."""
        self.since, self.pictures = time.monotonic(), 0

    def checked(self, fabric: Fabric, diverged: "Diverged") -> dict[str, Any]:
        """The figures since the last row, once every loss among them is known to be a number."""
        losses = torch.stack(self.losses)
        both = torch.stack([losses, torch.stack(self.hits)])
        everyone: Any = both if fabric.world_size == 1 else fabric.all_reduce(both)
        wrong = ~everyone[0].isfinite()
        if wrong.any():
            first = int(wrong.nonzero()[0])
            raise diverged.loss(float(losses[first]), self.steps[first] + 1, self.index[first].tolist())
        loss, accuracy = everyone.mean(1).tolist()
        speed = self.pictures / max(time.monotonic() - self.since, 1e-9)
        return {"loss": loss, "accuracy": accuracy, "images_per_second": round(speed, 1)}


@dataclass(frozen=True)
class Diverged:
    """The errors of a run whose numbers are not finite any more."""

    samples: Sequence[Named]
    steps: int
    out: Path

    def loss(self, ours: float, step: int, index: Sequence[int]) -> FoveaError:
        names = [self.samples[i].name for i in index]
        files = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
        whose = "the loss is" if not math.isfinite(ours) else "another process's loss is not finite; here it is"
        return FoveaError(f"{whose} {ours} at step {step} (of {self.steps}); the batch: {files}; {self._mend()}")

    def check_weights(self, stepper: nn.Module, step: int) -> None:
        """A gradient may overflow while the loss does not: such weights are not saved."""
        tensors = [value for value in stepper.state_dict().values() if value.is_floating_point()]
        if not bool(torch.stack([value.isfinite().all() for value in tensors]).all()):
            raise FoveaError(f"weights are no longer finite after step {step} (of {self.steps}); {self._mend()}")

    def _mend(self) -> str:
        good = self.out / checkpoint.NAME
        kept = f"the last good checkpoint is {good}" if good.is_file() else "there is no checkpoint yet"
        return f"{kept}. Start again (--fresh) with a lower optimizer.lr, a schedule.warmup, or optimizer.clip=1.0"
