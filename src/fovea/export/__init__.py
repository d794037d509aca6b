"""Networks as graphs that run where PyTorch is not: logits and heatmap in one. `fovea.export` is the verb, too."""

import sys
from types import ModuleType
from typing import Any

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


class _Verb(ModuleType):
    """Python puts this package where the verb is, once a part of it was imported."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        return __getattr__("export")(*given, **options)


sys.modules[__name__].__class__ = _Verb
