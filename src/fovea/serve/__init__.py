"""A page to look through, and a service to call: everything that fovea does for those who do not write Python."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
