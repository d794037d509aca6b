"""Networks of our own, one a file. Each is built by a function of its number of classes and its options."""

from collections.abc import Callable

from fovea.nets import smallnet
from fovea.network import Network

NETS: dict[str, Callable[..., Network]] = {"smallnet": smallnet.build}
