"""What several processes do together: find each other, share batch norm, and say so when one of them is gone."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

import timm
import torch
import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.plugins.precision import DoublePrecision, MixedPrecision, Precision
from lightning.fabric.strategies.model_parallel import ModelParallelStrategy
from lightning.fabric.strategies.strategy import Strategy
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.nn import functional as F

from fovea.basics import BadChoice, FoveaError, of_environment
from fovea.networks import device_of
from fovea.training.shards import sharded
from fovea.training.sharing import everyones

T = TypeVar("T")
DATA = "data_parallel"  # what Fabric calls the processes that have batches of their own


def fabric_of(device: str, precision: str, strategy: str = "ddp") -> tuple[Fabric, Precision]:
    """One process, or as many as torchrun started; the precision's own state is needed for checkpoints."""
    world, local = of_environment("WORLD_SIZE", 1, 1), of_environment("LOCAL_WORLD_SIZE", 1, 1)
    if world % local:
        mend = "give every torchrun the same --nproc-per-node"
        raise BadChoice(f"{world} processes in all, and {local} of them on this machine: {mend}")
    where = device_of(device)
    cuda = where.type == "cuda"
    if precision == "auto":
        precision = "bf16" if cuda and torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    plugin: Precision
    if precision in ("fp32", "fp64"):
        plugin = Precision() if precision == "fp32" else DoublePrecision()
    else:
        kind: Any = {"bf16": "bf16-mixed", "fp16": "16-mixed"}[precision]
        plugin = MixedPrecision(kind, device="cuda" if cuda else "cpu")
    fabric = Fabric(
        accelerator=where.type,
        devices=local if where.index is None else [where.index],
        num_nodes=max(world // local, 1),
        strategy="auto" if world == 1 else _fsdp(world) if strategy == "fsdp" else "ddp",
        plugins=plugin,
    )
    if dist.is_torchelastic_launched() and world > 1 and not dist.is_initialized():
        _meet("nccl" if cuda else "gloo", world)
    fabric.launch()
    return fabric, plugin


def _fsdp(world: int) -> Strategy:
    """FSDP2, which also runs on CPUs; the first version takes GPUs alone."""

    def divided(step: Any, mesh: Any) -> Any:
        sharded(step.module, mesh[DATA])  # by itself, since it is tested without the loss
        return fully_shard(step, mesh=mesh[DATA])

    return ModelParallelStrategy(divided, data_parallel_size=world, tensor_parallel_size=1)


def shard_too(fabric: Fabric, module: nn.Module) -> None:
    """Another module beside the one that is trained."""
    sharded(module, cast(ModelParallelStrategy, fabric.strategy).device_mesh[DATA])


def _meet(backend: str, world: int) -> None:
    """torchrun keeps one store over its restarts: without names of their own, processes of a new attempt may find the
    addresses that the dead ones left there."""
    rank, count = of_environment("RANK", 0, 0), os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store, _, _ = next(iter(rendezvous("env://", rank, world)))
    ours: Any = dist.PrefixStore(f"attempt {count}", store)  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=ours, rank=rank, world_size=world)


class _Normed(torch.autograd.Function):
    """Batch norm with the mean and variance over all processes: y = (x - mean) / sqrt(var + eps) * weight + bias. Sums
    are in double, so that their order, which is all that differs from one process, does not show."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Any:
        axes = [0, *range(2, x.ndim)]
        sums = torch.stack([x.sum(axes, dtype=torch.float64), x.double().square().sum(axes)])  # 2,C
        dist.all_reduce(sums)
        count = x.numel() // x.shape[1] * dist.get_world_size()
        mean = sums[0] / count
        variance = sums[1] / count - mean.square()
        context.count, context.axes = count, axes
        context.save_for_backward(x, weight, mean, (variance + eps).rsqrt())
        kind = torch.float32 if x.dtype in (torch.float16, torch.bfloat16) else x.dtype
        mean, variance = mean.to(kind), variance.to(kind)
        context.mark_non_differentiable(mean, variance)
        # torch's own kernel, given these statistics, rounds as it does with a batch of its own
        return F.batch_norm(x, mean, variance, weight, bias, False, 0.0, eps), mean, variance

    @staticmethod
    def backward(context: Any, *slopes: Tensor) -> Any:
        """dx = (dy - mean(dy) - x' mean(dy x')) weight / sqrt(var + eps), x' being x normalized; means over all."""
        slope = slopes[0]
        x, weight, mean, scale = context.saved_tensors
        shape = (1, -1, *(1,) * (x.ndim - 2))
        normed = (x.double() - mean.view(shape)) * scale.view(shape)
        ours = torch.stack([slope.sum(context.axes, dtype=torch.float64), (slope * normed).sum(context.axes)])  # 2,C
        everyone = ours.clone()
        dist.all_reduce(everyone)
        mean_slope, mean_product = (everyone / context.count).unbind()
        dx = (slope - mean_slope.view(shape) - normed * mean_product.view(shape)) * scale.view(shape)
        if weight is not None:
            dx = dx * weight.view(shape)
        both = (None, None) if weight is None else (ours[1].to(weight.dtype), ours[0].to(weight.dtype))
        return dx.to(x.dtype), *both, None


class SyncedNorm(nn.modules.batchnorm._BatchNorm):
    """Batch norm over the batches of all processes, for processors that torch's own SyncBatchNorm does not run on."""

    def forward(self, input: Tensor) -> Any:
        if not self.training:
            return super().forward(input)
        out, mean, variance = _Normed.apply(input, self.weight, self.bias, self.eps)  # type: ignore[no-untyped-call]
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            weight = self.momentum if self.momentum is not None else 1 / float(self.num_batches_tracked)
            count = input.numel() // input.shape[1] * dist.get_world_size()
            self.running_mean.lerp_(mean, weight)
            self.running_var.lerp_(variance * (count / max(count - 1, 1)), weight)
        for name in ("drop", "act"):  # timm's norms with an activation in them
            out = getattr(self, name, nn.Identity())(out)
        return out


def synced(module: nn.Module, on_cuda: bool) -> nn.Module:
    """The module with every batch norm taken over all processes."""
    if on_cuda:
        return timm.layers.convert_sync_batchnorm(module)  # type: ignore[no-any-return]
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and not isinstance(layer, SyncedNorm):
            layer.__class__ = type(f"Synced{type(layer).__name__}", (SyncedNorm, type(layer)), {})
    return module


def as_the_first(step: nn.Module) -> None:
    """What a loss remembers, such as a baseline, is the first process's, as DDP has it; norms are synced anyway."""
    for name, buffer in step.named_buffers():
        if not name.startswith("module."):
            dist.broadcast(buffer, 0)


def part_ways(fabric: Fabric) -> None:
    """The processes end together: one that leaves while another still speaks to it can bring both down."""
    if fabric.world_size > 1:
        fabric.barrier()
        dist.destroy_process_group()


def agreed(fabric: Fabric, *numbers: int) -> None:
    """Processes that see other data, or another checkpoint, would wait for each other for ever: better said."""
    if fabric.world_size > 1:
        everyone = everyones(list(numbers))
        if any(others != everyone[0] for others in everyone):
            why = f"{everyone}; the recipe and its data must be the same for all of them"
            raise FoveaError(f"the processes do not see the same run (step, pictures, steps, batch): {why}")


def from_first(fabric: Fabric, find: Callable[[], T]) -> T:
    """What the first process finds, or refuses, for all of them: only its disk needs to hold it."""
    found: Any = None
    if fabric.is_global_zero:
        try:
            found = find()
        except FoveaError as error:
            found = error
    found = fabric.broadcast(found) if fabric.world_size > 1 else found
    if isinstance(found, FoveaError):
        raise found
    return found  # type: ignore[no-any-return]


def attempt() -> str:
    """Which torchrun this process was started by, the same for all its attempts."""
    return f"{os.environ.get('TORCHELASTIC_RUN_ID', '')} {socket.gethostname()} {os.getppid()}"


@contextmanager
def losing_others_is_said(fabric: Fabric, resume: str) -> Iterator[None]:
    """A process that is left alone by the others says so in place of the transport's words."""
    try:
        yield
    except (RuntimeError, ConnectionError) as error:
        words = str(error).lower()
        if fabric.world_size > 1 and any(w in words for w in ("connection", "peer", "gloo", "nccl", "timed out")):
            why = f"one of them died (its own message is above or below). {resume}"
            raise FoveaError(f"process {fabric.global_rank} of {fabric.world_size} lost the others: {why}") from error
        if "did not receive grad" in words or "unused parameter" in words:
            mend = "freeze them, optimizer.groups = [{ match = 'NAME.*', lr = 0 }], or give a loss that reads them"
            raise FoveaError(
                f"the loss does not reach all of the weights, which several processes need: {mend}"
            ) from error
        if "dataloader worker" in words:
            why = f"{str(error).splitlines()[0]} Fewer of them: --set data.workers=1. {resume}"
            raise FoveaError(f"a process that decodes pictures died, often for want of memory: {why}") from error
        raise
