"""fovea shows where a network looks, and builds networks that look only where it matters."""

from typing import Any

import lazy_loader

from fovea.basics.collecting import uncollected

__version__ = "0.1.0"

# Importing torch takes seconds, so a name is imported when it is first used; the names are those of __init__.pyi.
_get, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    with uncollected():
        return _get(name)
