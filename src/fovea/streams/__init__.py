"""Two-stream networks that look longer: the answer, and where each step looks."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
