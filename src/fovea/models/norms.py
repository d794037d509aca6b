"""Batch norm of networks that see unlike things, and widths that networks are scaled by."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

_in_place = threading.RLock()  # held while the statistics of a level are in the norms, which all threads share


def scaled(channels: int, width: float) -> int:
    """A number of channels times a width: a multiple of 8, of which a quarter is a whole number."""
    return max(8, round(channels * width / 8) * 8)


def unnormed(module: nn.Module) -> nn.Module:
    """The same without batch norm: of a norm its activation stays, where it has one, and convolutions get a bias."""
    for parent in list(module.modules()):
        for name, layer in list(parent.named_children()):
            if isinstance(layer, nn.modules.batchnorm._BatchNorm):
                setattr(parent, name, getattr(layer, "act", nn.Identity()))  # timm's act as well
            elif isinstance(layer, nn.Conv2d) and layer.bias is None:
                layer.bias = nn.Parameter(torch.zeros(layer.out_channels))
    return module


class Statistics(nn.Module):
    """Running means and variances of a network's batch norms, a set for each level."""

    mean: Tensor  # 1,L,C
    var: Tensor

    def __init__(self, module: nn.Module, levels: int) -> None:
        super().__init__()
        norms = list(self._norms(module))
        for name, kept in (("mean", "running_mean"), ("var", "running_var")):
            values = torch.cat([getattr(norm, kept) for norm in norms]) if norms else torch.empty(0)
            self.register_buffer(name, values.expand(1, levels, -1).clone())
        for norm in norms:  # elsewhere they are nobody's
            norm.running_mean = norm.running_var = None

    @staticmethod
    def _norms(module: nn.Module) -> Iterator[nn.modules.batchnorm._BatchNorm]:
        for layer in module.modules():
            if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats:
                yield layer

    @contextmanager
    def of(self, module: nn.Module, level: int) -> Iterator[None]:
        """The network with the statistics of a level; of the deepest known for those below it."""
        mean, var = (one[0, min(level, one.shape[1] - 1)] for one in (self.mean, self.var))
        norms, start = list(self._norms(module)), 0
        with _in_place:
            for norm in norms:
                own = slice(start, start + norm.num_features)
                norm.running_mean, norm.running_var = mean[own], var[own]
                start = own.stop
            try:
                yield
            finally:
                for norm in norms:
                    norm.running_mean = norm.running_var = None

    def _load_from_state_dict(self, state: dict[str, Tensor], prefix: str, *rest: object) -> None:
        """Of a network with fewer levels: the new ones begin as its last. Of one with more, the first ones."""
        for name, own in (("mean", self.mean), ("var", self.var)):
            given = state.get(prefix + name)
            if given is not None and given.ndim == 3 and given.shape[1] != own.shape[1]:
                levels = [min(i, given.shape[1] - 1) for i in range(own.shape[1])]
                state[prefix + name] = given[:, levels]
        super()._load_from_state_dict(state, prefix, *rest)  # type: ignore[arg-type]
