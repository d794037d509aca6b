"""fovea shows where a network looks, and builds networks that look only where it matters."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fovea.errors import BadChoice as BadChoice
    from fovea.errors import BadNetwork as BadNetwork
    from fovea.errors import BadPicture as BadPicture
    from fovea.errors import BadText as BadText
    from fovea.errors import FoveaError as FoveaError
    from fovea.explaining import explain as explain
    from fovea.explaining.cam import CAM as CAM
    from fovea.explaining.gradcam import GradCAM as GradCAM
    from fovea.explaining.iterative import PAPER as PAPER
    from fovea.explaining.iterative import Descent as Descent
    from fovea.explaining.l2caf import L2CAF as L2CAF
    from fovea.explaining.sanity import sanity as sanity
    from fovea.heatmap import HeatMap as HeatMap
    from fovea.localizing import localize as localize
    from fovea.localizing.downstream import classify_patches as classify_patches
    from fovea.looking import look_longer as look_longer
    from fovea.network import Network as Network
    from fovea.network import wrap as wrap
    from fovea.searching import index as index
    from fovea.searching import open_index as open_index
    from fovea.targets import each as each
    from fovea.watching import watch as watch
    from fovea.zoo import load as load
    from fovea.zooming import zoom as zoom

__version__ = "0.1.0"

# Importing torch takes seconds, so a name is imported when it is first used: `fovea --help` needs none of them.
_HOME = {
    "explain": "fovea.explaining",
    "sanity": "fovea.explaining.sanity",
    "localize": "fovea.localizing",
    "classify_patches": "fovea.localizing.downstream",
    "zoom": "fovea.zooming",
    "watch": "fovea.watching",
    "look_longer": "fovea.looking",
    "index": "fovea.searching",
    "open_index": "fovea.searching",
    "L2CAF": "fovea.explaining.l2caf",
    "CAM": "fovea.explaining.cam",
    "GradCAM": "fovea.explaining.gradcam",
    "Descent": "fovea.explaining.iterative",
    "PAPER": "fovea.explaining.iterative",
    "HeatMap": "fovea.heatmap",
    "Network": "fovea.network",
    "wrap": "fovea.network",
    "load": "fovea.zoo",
    "each": "fovea.targets",
    "FoveaError": "fovea.errors",
    "BadPicture": "fovea.errors",
    "BadText": "fovea.errors",
    "BadChoice": "fovea.errors",
    "BadNetwork": "fovea.errors",
}
__all__ = ["__version__", *_HOME]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'fovea' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
