"""Where a network looks: methods, targets, heatmaps in the user's own pixels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
