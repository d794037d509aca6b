"""FSDP, for networks that do not fit: each process keeps its shard of every weight, gradient and moment, and a block's
weights are whole only while the block is at work. Checkpoints and weights files are whole, as those of any run."""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map_only

LEAST = 0.01  # share of the weights in a block that is gathered by itself; smaller ones come with what is around them
LISTS = (nn.ModuleList, nn.ModuleDict)  # which have no forward to gather before


def sharded(module: nn.Module, mesh: DeviceMesh) -> nn.Module:
    """The module with its weights divided among the processes: block by block where blocks stand in a sequence."""
    total = _size(module)
    rows = [layer for layer in module.modules() if isinstance(layer, (nn.Sequential, *LISTS))]
    large = {block for row in rows for block in row.children() if _size(block) >= LEAST * total} - {module}
    for block in reversed([layer for layer in module.modules() if layer in large and not isinstance(layer, LISTS)]):
        fully_shard(block, mesh=mesh)
    # its output may be a dataclass, in which FSDP finds no tensor to gather weights again for
    fully_shard(module, mesh=mesh, reshard_after_forward=False)
    return module


def _size(module: nn.Module) -> int:
    return sum(weight.numel() for weight in module.parameters())


def local(tensor: Tensor) -> Tensor:
    """This process's shard; what is not divided is its own."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(state: Any) -> Any:
    """A state with every shard gathered; all processes ask for it together."""
    return tree_map_only(DTensor, lambda tensor: tensor.full_tensor().cpu(), state)


def like(value: Any, known: Any) -> Any:
    """A whole value, divided as the known one is."""
    if not isinstance(known, DTensor):
        return value
    return distribute_tensor(value.to(known.device), known.device_mesh, known.placements)


def put(module: nn.Module, state: Mapping[str, Any]) -> None:
    """A whole state into a module, divided or not."""
    known = module.state_dict()
    module.load_state_dict({key: like(value, known.get(key)) for key, value in state.items()})


def apart(module: nn.Module) -> None:
    """After a forward without a backward the weights are whole still, and would be those of now at the next one."""
    for layer in module.modules():
        if isinstance(layer, FSDPModule):
            cast(Any, layer).reshard()
