"""Pictures that look alike to a network: an index of a folder, the nearest to a picture, where the two are alike."""

from fovea.retrieval.alike import Maps, Neighbor
from fovea.retrieval.indexing import Indexed, index
from fovea.retrieval.opening import Index, open_index
from fovea.retrieval.search import Search, Searches

__all__ = ["Index", "Indexed", "Maps", "Neighbor", "Search", "Searches", "index", "open_index"]
