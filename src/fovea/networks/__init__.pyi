from .loading import as_network as as_network
from .loading import load as load
from .network import Network as Network
from .network import wrap as wrap
from .registry import model as model
