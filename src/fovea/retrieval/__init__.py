"""Pictures that look alike to a network: an index of a folder, the nearest to a picture, where the two are alike."""

from fovea.retrieval.found import Found, Maps, Neighbour
from fovea.retrieval.indexing import Indexed, index
from fovea.retrieval.opening import Index, open_index

__all__ = ["Found", "Index", "Indexed", "Maps", "Neighbour", "index", "open_index"]
