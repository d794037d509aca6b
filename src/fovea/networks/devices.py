"""Where networks run."""

import torch

from fovea.basics import BadChoice, nearest
from fovea.networks.network import Network

DEVICES = ("auto", "cpu", "cuda")


def device_of(device: str | torch.device) -> torch.device:
    """A device that there is; "auto" is a GPU where torch can use one."""
    kind = str(device).partition(":")[0]
    if kind not in DEVICES:
        raise BadChoice(f"a device is {', '.join(DEVICES)}; got {str(device)!r}{nearest(kind, DEVICES)}")
    if kind == "cuda" and not torch.cuda.is_available():
        raise BadChoice("there is no GPU that torch can use here: leave the device out, or name cpu")
    if kind == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(device)


def placed(network: Network, device: str | torch.device) -> Network:
    """The network on a device, itself: it is not copied."""
    network.module.to(device_of(device))
    return network
