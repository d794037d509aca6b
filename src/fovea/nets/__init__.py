"""Networks of our own, one a file. Each is built by a function of its number of classes and its options."""

from collections.abc import Callable

from fovea.nets import anchornet, smallnet
from fovea.network import Network

NETS: dict[str, Callable[..., Network]] = {"anchornet": anchornet.build, "smallnet": smallnet.build}
