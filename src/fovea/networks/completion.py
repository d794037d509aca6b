"""What a network takes beside its pictures, found before it is asked.

A module that `needs` something says so by name, and a file above declares how it is found: a two-stream network needs
"boxes" of patches, which only a patch source can tell.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from fovea.basics import BadNetwork, Entry, Registry

if TYPE_CHECKING:
    from torch import Tensor

Complete = Callable[[Any, "Tensor"], Any]  # a network and a batch to all that its module takes


def _checked(entry: Entry, thing: Any) -> Complete:
    if not callable(thing):
        raise BadNetwork(f"completion {entry.name}: give a function of a network and a batch; got {thing!r}")
    return thing


completion: Registry[Complete] = Registry("completion", ("fovea.streams.completion",), _checked)
