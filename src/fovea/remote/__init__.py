"""A service that 'fovea serve' runs, asked from Python: the verbs, their words and their results are those in
process."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
