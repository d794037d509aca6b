"""Figures of networks on data: one measure per file, which declares itself; the rest is the runner's."""

import lazy_loader

# The commands' help reads the declarations; torch is imported when a measure is taken.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
