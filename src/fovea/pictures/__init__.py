"""Pictures: decoding of everything a user gives, transforms, and where they put pixels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
