"""Pictures that look alike to a network: an index of a folder, the nearest to a picture, where the two are alike."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
