from .basics.errors import BadChoice as BadChoice
from .basics.errors import BadNetwork as BadNetwork
from .basics.errors import BadPicture as BadPicture
from .basics.errors import BadText as BadText
from .basics.errors import FoveaError as FoveaError
from .evidence.calibration import calibrate as calibrate
from .glimpses.zoom import zoom as zoom
from .heatmaps.explain import explain as explain
from .heatmaps.heatmap import HeatMap as HeatMap
from .heatmaps.iterative import Descent as Descent
from .heatmaps.methods.cam import CAM as CAM
from .heatmaps.methods.gradcam import GradCAM as GradCAM
from .heatmaps.methods.l2caf import L2CAF as L2CAF
from .heatmaps.sanity import sanity as sanity
from .heatmaps.targets import each as each
from .measures.runner import measure as measure
from .networks.loading import load as load
from .networks.network import Network as Network
from .networks.network import wrap as wrap
from .patches.classify import classify_patches as classify_patches
from .patches.localize import localize as localize
from .pictures.big.pyramid import pyramid as pyramid
from .retrieval import index as index
from .retrieval import open_index as open_index
from .streams.look import look_longer as look_longer
from .video.watch import watch as watch

__version__: str
