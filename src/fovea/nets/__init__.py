"""Networks of our own, one a file. Each is built by a function of its number of classes and its options."""

from collections.abc import Callable

from fovea.nets import anchornet, anchornet_sound, anchornet_text, smallnet, textcnn
from fovea.network import Network

NETS: dict[str, Callable[..., Network]] = {
    "anchornet": anchornet.build,
    "anchornet_sound": anchornet_sound.build,
    "anchornet_text": anchornet_text.build,
    "smallnet": smallnet.build,
    "textcnn": textcnn.build,
}
