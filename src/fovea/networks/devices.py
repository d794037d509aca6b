"""Where networks run."""

import torch

from fovea.basics.errors import BadChoice, nearest
from fovea.networks.network import Network

DEVICES = ("auto", "cpu", "cuda")


def device_of(device: str) -> str:
    """A device that there is; "auto" is a GPU where torch can use one."""
    if device not in DEVICES:
        raise BadChoice(f"a device is {', '.join(DEVICES)}; got {device!r}{nearest(device, DEVICES)}")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadChoice("there is no GPU that torch can use here: leave the device out, or name cpu")
    return ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device


def placed(network: Network, device: str) -> Network:
    """The network on a device, itself: it is not copied."""
    network.module.to(device_of(device))
    return network
