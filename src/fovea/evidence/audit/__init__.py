"""The audit of a classifier: what its answers rest on, over a whole data set."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
