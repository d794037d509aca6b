"""What can be asked at all: modules inside others, modules without values, modules that nothing can be learned of."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from fovea.basics import BadChoice, BadNetwork, FoveaError

AROUND = {"DataParallel": "module", "DistributedDataParallel": "module", "OptimizedModule": "_orig_mod"}


class DoesNotRun(BadNetwork, RuntimeError):
    """The module itself failed on what it was given."""


def inside(module: nn.Module) -> nn.Module:
    """The module that one which only spreads or compiles it was put around; any other itself."""
    name = AROUND.get(type(module).__name__, "")
    return module.get_submodule(name) if name in module._modules else module


def checked(module: nn.Module) -> nn.Module:
    """The module that is looked at, without what only spreads or compiles it; refused where it has no values, or ones
    that no gradient can pass."""
    while (inner := inside(module)) is not module:
        module = inner
    for name, tensor in chain(module.named_parameters(), module.named_buffers()):
        if is_lazy(tensor):
            raise BadNetwork(f"{name} has no size yet: run the module once, module(example), so that it gets one")
        if tensor.is_meta or type(tensor).__name__ == "FakeTensor":
            mend = "module.to_empty(device='cpu') and load a state_dict, or build the module on a device"
            raise BadNetwork(f"{name} is on the meta device, without values: {mend}")
        if tensor.is_inference():
            mend = "build the module outside, or give a copy of it, copy.deepcopy(module)"
            raise BadNetwork(f"{name} was made inside torch.inference_mode(), so that no gradient can pass it: {mend}")
    return module


def cuttable(module: nn.Module) -> None:
    """Refuses what gives no features and no gradients."""
    for name, part in module.named_modules():
        if isinstance(part, torch.jit.ScriptModule):
            what = "compiled by torch.jit, and lets nobody see its layers' features"
        elif type(part).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized")):
            what = "quantized, and no gradient passes it"
        else:
            continue
        mend = "give the module that it was made of"
        raise BadNetwork(f"{f'layer {name!r}' if name else 'the network'} ({type(part).__name__}) is {what}: {mend}")


def refuse_tensor(given: Tensor) -> None:
    """Refuses tensors that hold no pictures."""
    strange = "nested" if given.is_nested else "sparse" if given.layout is not torch.strided else ""
    strange = strange or ("on the meta device, without values" if given.is_meta else "")
    if strange:
        raise BadChoice(f"a batch is a plain tensor, N first; this one is {strange}")
    if 0 in given.shape[1:]:
        raise BadChoice(f"a batch of empty inputs, of shape {tuple(given.shape)}: no axis but the first may be empty")


@contextmanager
def refusing(module: nn.Module, given: Any, name: str = "") -> Iterator[None]:
    """What goes wrong in the module, said as what was given to it."""
    try:
        yield
    except (FoveaError, torch.OutOfMemoryError):
        raise
    except (RuntimeError, ValueError, IndexError, TypeError, KeyError, AttributeError, AssertionError) as error:
        checked(module)
        what = f" on an input of {' x '.join(map(str, given.shape[1:]))}" if isinstance(given, Tensor) else ""
        said = str(error).strip().partition("\n")[0] or type(error).__name__
        said += ": export it with a dynamic batch, or give the module" if said.startswith("Guard failed") else ""
        raise DoesNotRun(f"{name or 'the network'} does not run{what}: {said}") from error
