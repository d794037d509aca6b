"""An nn.Module with its transform and labels, by name or wrapped; where it may be cut, what it sees, what it costs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
