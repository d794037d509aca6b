"""What the prototypes of a ProtoPNet are, and what a picture has in common with them."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
