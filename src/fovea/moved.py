"""Old import paths and names, which work for one more version and say where their things are now."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

NAMES = {"PAPER": ("fovea.heatmaps.iterative", "PAPER", "fovea.Descent.paper()")}  # old: module, attribute, new name
PATHS = {  # old package or module: where it is now; what is below it keeps its name
    "clips": "pictures.clips",
    "cutting": "networks.cutting",
    "errors": "basics.errors",
    "explaining": "heatmaps.explain",
    "explaining.inputs": "networks.inputs",
    "explaining.sanity": "heatmaps.sanity",
    "explaining.cam": "heatmaps.methods.cam",
    "explaining.gradcam": "heatmaps.methods.gradcam",
    "explaining.iterative": "heatmaps.iterative",
    "explaining.l2caf": "heatmaps.methods.l2caf",
    "explaining.look": "heatmaps.look",
    "geometry": "networks.geometry",
    "heatmap": "heatmaps.heatmap",
    "lip": "patches.lip",
    "localizing": "patches.localize",
    "looking": "streams.look",
    "nets": "models",
    "network": "networks.network",
    "patching": "patches.patching",
    "prototyping": "prototypes.likeness",
    "regions": "basics.boxes",
    "searching": "retrieval",
    "train": "training",
    "transforms": "pictures.transforms",
    "watching": "video.watch",
    "zoo": "networks.loading",
    "zooming": "glimpses.zoom",
}


def old_name(name: str) -> Any:
    module, attribute, new = NAMES[name]
    _warn(f"fovea.{name}", new)
    return getattr(importlib.import_module(module), attribute)


def keep_old_paths() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} is now {new}; the old spelling goes with the next version", DeprecationWarning, stacklevel=3)


class _Finder(MetaPathFinder, Loader):
    """Asked first, for paths that are no longer there: what is below them would be loaded twice otherwise."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, old = fullname.partition(".")
        known = old.partition(".")[0] == "measure" or _new(old) is not None
        return ModuleSpec(fullname, self) if package == "fovea" and known else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        if spec.name.startswith("fovea.measure"):
            return _Measure(spec.name)
        new = f"fovea.{_new(spec.name.partition('.')[2])}"
        _warn(spec.name, new)
        module = importlib.import_module(new)
        self.true = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """It has run under its new name, which it keeps."""
        if isinstance(module, _Measure):
            return
        module.__spec__ = self.true
        if not hasattr(module, "__path__"):
            module.__path__ = []  # what was below the old path is asked for, too


class _Measure(ModuleType):
    """What `fovea.measure` and `fovea.measure.NAME` were: modules. The first is a function now, and stays one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__: list[str] = []
        self.old = name.removeprefix("fovea.measure").removeprefix(".")
        _warn(name, f"fovea.measures.{self.old}" if self.old else "fovea.measures")

    def __call__(self, *given: Any, **options: Any) -> Any:
        return importlib.import_module("fovea.measures.runner").measure(*given, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self.old:
            return importlib.import_module(f"fovea.measure.{name}")
        if name == "measure":
            return self._measure
        return getattr(importlib.import_module(f"fovea.measures.{self.old}"), name)

    def _measure(self, net: Any, data: Any = None, methods: Any = None, **options: Any) -> Any:
        """The one function that each of those modules had."""
        options |= {} if methods is None else {"method": methods}
        return importlib.import_module("fovea.measures.runner").measure(
            self.old.replace("_", "-"), net, data, **options
        )


def _new(old: str) -> str | None:
    for end in range(len(old), 0, -1):
        if (end == len(old) or old[end] == ".") and old[:end] in PATHS:
            return PATHS[old[:end]] + old[end:]
    return None
