"""One way to add a thing: a file that declares it.

    @method("layercam", about="gradients weigh each cell on its own", passes=1)
    class LayerCAM: ...

What fovea's own files declare is read off their text, so that names and help need no import of torch; a file runs when
its thing is first asked for. A thing of the user's own is named `package.module:name`, and by its plain name once its
file has been imported."""

import ast
import importlib
import inspect
import re
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from fovea.basics.errors import BadChoice, nearest

HERE = Path(__file__).parents[1]
REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_][\w-]*")  # package.module:name
T = TypeVar("T")
Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Entry:
    """What a file declares. `options` are for whoever makes the thing; the other keywords are its `traits`."""

    name: str
    module: str
    about: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    traits: Mapping[str, Any] = field(default_factory=dict)
    node: ast.AST | None = field(default=None, repr=False, compare=False)  # of a file that has not run


class Registry(Generic[T]):
    """Things of one kind by name. `kind` is the decorator's name too; `packages` hold fovea's own files.

    `check` turns what was declared into what is used, or raises an error with words for its author."""

    def __init__(self, kind: str, packages: tuple[str, ...], check: Callable[[Entry, Any], T]) -> None:
        self.kind, self.packages, self._check = kind, packages, check
        self._given: dict[str, tuple[Entry, Any]] = {}  # declared by files that ran
        self._made: dict[str, T] = {}

    def __call__(
        self, name: str, about: str = "", options: Mapping[str, Any] | None = None, **traits: Any
    ) -> Callable[[Thing], Thing]:
        """Declare the thing below under this name."""

        def declare(thing: Thing) -> Thing:
            module = getattr(thing, "__module__", "")
            known = None if module.startswith("fovea.") else self.entries().get(name)  # reading all files takes time
            if known is not None and known.module != module:
                raise BadChoice(f"a {self.words} {name!r} is there already, in {known.module}: choose another name")
            self._given[name] = Entry(name, module, about, dict(options or {}), traits), thing
            self._made.pop(name, None)
            return thing

        return declare

    @property
    def words(self) -> str:
        return self.kind.replace("_", " ")

    def entries(self) -> dict[str, Entry]:
        """Everything that is declared: fovea's own, then what the user's files have added."""
        own = {entry.name: entry for package in self.packages for entry in _declared(package, self.kind)}
        return own | {name: entry for name, (entry, _) in self._given.items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries())

    def __contains__(self, name: object) -> bool:
        return name in self.entries()

    def entry(self, name: str) -> Entry:
        """What is declared under a name; a file of the user's own is imported for it."""
        if name not in self and REFERENCE.fullmatch(name):
            name = self._imported(name)
        if name not in self:
            known = list(self)
            there = f"there are: {', '.join(known)}; your own: package.module:name"
            raise BadChoice(f"no {self.words} {name!r}{nearest(name, known)} ({there})")
        return self.entries()[name]

    def get(self, name: str) -> T:
        """The thing of this name, checked."""
        entry = self.entry(name)
        if entry.name not in self._made:
            if entry.name not in self._given:
                importlib.import_module(entry.module)
            self._made[entry.name] = self._check(*self._given[entry.name])
        return self._made[entry.name]

    def _imported(self, reference: str) -> str:
        """A thing of the user's own: declared in its file under this name, or simply called so there."""
        module, _, name = reference.partition(":")
        try:
            file = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if error.name is not None and not f"{module}.".startswith(f"{error.name}."):
                raise  # the file is there, and imports what is not
            raise BadChoice(f"{self.words} {reference}: there is no module {module!r} to import") from None
        if name in self._given:
            return name
        if not hasattr(file, name):
            known = [one for one, (entry, _) in self._given.items() if entry.module == module]
            raise BadChoice(f"{module} has no {self.words} {name!r}{nearest(name, [*known, *dir(file)])}")
        thing = getattr(file, name)
        declared = next((one for one, (_, other) in self._given.items() if other is thing), None)
        if declared is None and _installed(file):  # or a recipe could have any function called
            raise BadChoice(f"{reference} is no {self.words}: it is not declared as one, by @{self.kind}(...)")
        if declared is None:
            declared = reference
            self._given[reference] = Entry(reference, module, (inspect.getdoc(thing) or "").partition("\n")[0]), thing
        return declared


def importable(name: str) -> bool:
    """Whether there is such a module, or one that holds it; nothing is imported."""
    try:
        return find_spec(name.partition(".")[0]) is not None
    except ValueError:  # __main__ has none
        return False


def _installed(module: ModuleType) -> bool:
    """Part of Python, of an installed package or of fovea, not a file of the user's."""
    file = getattr(module, "__file__", None)
    if not file:
        return True
    places = [Path(sysconfig.get_path(kind)) for kind in ("stdlib", "platstdlib", "purelib", "platlib")]
    return any(Path(file).resolve().is_relative_to(place.resolve()) for place in (*places, HERE))


@lru_cache
def _declared(package: str, kind: str) -> tuple[Entry, ...]:
    """What the files of one of fovea's packages, or one file, declare; in the order of their names."""
    place = HERE.joinpath(*package.split(".")[1:])
    files = sorted(place.glob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        if f"@{kind}(" in text:
            module = package if not place.is_dir() else f"{package}.{file.stem}"
            found += [entry for node in ast.parse(text).body for entry in _of(node, module, kind)]
    return tuple(found)


@lru_cache
def declared_names(*kinds: str) -> frozenset[str]:
    """What fovea's own files declare of these kinds, wherever they are; none of them runs for it."""
    packages = {".".join(("fovea", *file.relative_to(HERE).parts[:-1])) for file in HERE.rglob("*.py")}
    return frozenset(entry.name for package in packages for kind in kinds for entry in _declared(package, kind))


def _of(node: ast.stmt, module: str, kind: str) -> Iterator[Entry]:
    for call in getattr(node, "decorator_list", ()):
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == kind:
            traits = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords if keyword.arg}
            about, options = traits.pop("about", ""), traits.pop("options", {})
            yield Entry(ast.literal_eval(call.args[0]), module, about, options, traits, node)
