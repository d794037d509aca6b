"""Names of well-known classes."""

import ast
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path


@lru_cache
def imagenet_labels() -> tuple[str, ...]:
    """As torchvision lists them, read off its text where that is as it was, since importing it takes seconds."""
    found = find_spec("torchvision")
    for place in (found.submodule_search_locations if found else None) or ():
        file = Path(place, "models", "_meta.py")
        for node in ast.parse(file.read_text(encoding="utf-8")).body if file.is_file() else ():
            if isinstance(node, ast.Assign) and "_IMAGENET_CATEGORIES" in map(ast.unparse, node.targets):
                return tuple(ast.literal_eval(node.value))
    import torchvision

    return tuple(torchvision.models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"])
