"""What everything stands on: errors, boxes, files, intervals, progress, provenance, the registry."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
