"""Labeled data to train on and to measure with. `open_data("cub100:split=test,labels=50-99")` opens any of it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
