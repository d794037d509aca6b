"""Where networks run."""

from typing import TypeVar

import torch

from fovea.basics import BadChoice, spelled_device
from fovea.networks.running import Runnable

N = TypeVar("N", bound=Runnable)


def device_of(device: str | torch.device) -> torch.device:
    """A device that there is; "auto" is a GPU where torch can use one."""
    text = spelled_device(device)
    if text == "auto":
        return torch.device("cuda" if _count("cuda") else "cpu")
    wanted = torch.device(text)
    count = 1 if wanted.type == "cpu" else _count(wanted.type)
    if not count:
        raise BadChoice(
            f"device {text!r}: there is no GPU that torch can use here in this way; leave the device out, or name cpu"
        )
    if (wanted.index or 0) >= count:
        last = f" to {wanted.type}:{count - 1}" if count > 1 else ""
        raise BadChoice(f"device {text!r}: there is no such number here; name {wanted.type}:0{last}")
    return wanted


def _count(kind: str) -> int:
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    there = torch.cuda if kind == "cuda" else torch.xpu
    return there.device_count() if there.is_available() else 0


def placed(network: N, device: str | torch.device) -> N:
    """The network on a device, itself: it is not copied."""
    network.module.to(device_of(device))
    return network
