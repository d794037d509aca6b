"""Networks of our own, one a file. Each is built by a function of its number of classes and its options."""

from collections.abc import Callable

from fovea.models import anchornet, anchornet_sound, anchornet_text, bagnet, dram, saccader, smallnet, textcnn, tnet
from fovea.networks.network import Network

NETS: dict[str, Callable[..., Network]] = {
    "anchornet": anchornet.build,
    "anchornet_sound": anchornet_sound.build,
    "anchornet_text": anchornet_text.build,
    "bagnet77": bagnet.build,
    "dram": dram.build,
    "saccader": saccader.build,
    "smallnet": smallnet.build,
    "textcnn": textcnn.build,
    "tnet-b0": tnet.build_b0,
    "tnet-bagnet77": tnet.build_bag,
}

# How a paper's tables can be read, the reading with the paper's own figures first; told apart by what a network costs.
READINGS: dict[str, tuple[dict[str, str], ...]] = {"anchornet": ({"se": "global"}, {"se": "local"}, {"se": "none"})}
