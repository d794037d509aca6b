"""The patches, words and moments that speak for an answer; where patches come from."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
