"""Networks as graphs that run where PyTorch is not: logits and heatmap in one."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
