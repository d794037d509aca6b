"""A measure is one file that declares itself. This module needs no torch, so that the help of its command is quick.

    @measure("wsol", title="Localization", about="Are the boxes of the heatmaps right?", nets="several",
             fit="squash", needs=("boxes", "labels"), columns=("net", "method", "top1", "gt_known"))
    def wsol(run: Run, *, method: Sequence[str] = ("cam", "gradcam", "l2caf"), batch: int = 16) -> Figures: ...

`title`    its section of the results page, and its table on the terminal
`about`    what it tells, for its help; the first sentence stands in lists
`example`  its command line after the name, for its help
`nets`     one (the default), several, names (which it loads itself), none, or the roles that networks play in it, as
           ("localizer", "net", "full"); a role that ends in ? may be left out
`data`     pictures (the default), clips, sounds or none
`needs`    of the data: boxes; labels, which are matched to the network's; or "labels?", where there are any that the
           network knows: pictures of any folder will do, and the class that it predicts stands for theirs
`fit`      how pictures come in where the user does not say: crop, squash or whole
`any_size` pictures may come in different shapes, as a whole one in its proportions does; else all are of one size
`trained`  False where weights do not matter: networks are built with random ones
`usual`    the usual values of --net, --data, … where they are not the glossary's
`columns`  what the table on the terminal shows of the rows: keys, or patterns of them; all if not given
`interval` the key that `low` and `high` belong to; KEY_low and KEY_high are known by their names
`figure`   the function of the file that draws the Figures for --out
`spread`   True where its pictures may be looked at by a cluster's workers: `run.engine` says by whom
`chosen`   its own settings that are chosen on the pictures that are measured, as a threshold
`seed`     what is noted as the seed of a measure that takes none

Keywords of the function are its options, on the command line and in Python; their defaults are literals."""

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fovea.basics import BadChoice, Entry, Registry, nearest
from fovea.pictures.fits import FIT, FITS

if TYPE_CHECKING:
    from fovea.measures.figures import Figures
    from fovea.measures.runner import Run

NETS = ("one", "several", "names", "none")
DATA, NEEDS = ("pictures", "clips", "sounds", "none"), ("boxes", "labels", "labels?")
BENCH = "bench "  # measures of cost beside others begin with it: fovea bench NAME


@dataclass(frozen=True)
class Declared:
    """What a measure declares, read without running its file where it is fovea's."""

    name: str
    options: Mapping[str, Any]  # keywords of the function with their defaults
    title: str = ""
    about: str = ""
    example: str | None = None
    nets: str | tuple[str, ...] = "one"
    data: str = "pictures"
    needs: tuple[str, ...] = ()
    fit: str | None = None
    any_size: bool = False
    trained: bool = True
    usual: Mapping[str, Any] | None = None
    columns: tuple[str, ...] = ()
    interval: str = ""
    figure: str = ""
    spread: bool = False
    seed: int | None = None
    chosen: str = ""

    @property
    def roles(self) -> tuple[str, ...]:
        return tuple(role.rstrip("?") for role in self.nets) if isinstance(self.nets, tuple) else ()


@dataclass(frozen=True)
class Measure:
    """A measure that can be taken."""

    declared: Declared
    function: "Callable[..., Figures]"

    def __call__(self, run: "Run", options: Mapping[str, Any]) -> "Figures":
        return self.function(run, **options)


def declared(entry: Entry, function: Any = None) -> Declared:
    """What the entry says; the options off the function, or off the text of a file that has not run."""
    traits = dict(entry.traits)
    known = set(Declared.__dataclass_fields__) - {"name", "options", "about"}
    for key in traits:
        if key not in known:
            raise BadChoice(f"measure {entry.name!r} declares {key!r}, which means nothing{nearest(key, known)}")
    options = _of_text(entry.node) if function is None else _of_function(entry.name, function)
    found = Declared(entry.name, options, about=entry.about, **traits)
    _refuse(entry.name, "nets", found.nets, NETS, several=isinstance(found.nets, tuple))
    _refuse(entry.name, "data", found.data, DATA)
    _refuse(entry.name, "fit", found.fit or FIT, tuple(FITS))
    for need in found.needs:
        _refuse(entry.name, "needs", need, NEEDS)
    return found


def _refuse(name: str, what: str, given: Any, choices: tuple[str, ...], several: bool = False) -> None:
    if not several and given not in choices:
        near = nearest(str(given), choices)
        raise BadChoice(f"measure {name!r} declares {what}={given!r}{near} (there are: {', '.join(choices)})")


def _of_text(node: ast.AST | None) -> dict[str, Any]:
    assert isinstance(node, ast.FunctionDef)
    arguments = node.args
    pairs = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return {one.arg: None if default is None else ast.literal_eval(default) for one, default in pairs}


def _of_function(name: str, function: Any) -> dict[str, Any]:
    if not callable(function):
        raise BadChoice(f"measure {name!r} is a function of a Run, as def {name}(run, *, batch=16); got {function!r}")
    parameters = list(inspect.signature(function).parameters.values())
    keywords = [parameter for parameter in parameters if parameter.kind is inspect.Parameter.KEYWORD_ONLY]
    if len(parameters) - len(keywords) != 1:
        got = f"as def {function.__name__}(run, *, batch=16); got {inspect.signature(function)}"
        raise BadChoice(f"measure {name!r} takes a Run and then keywords alone, {got}")
    missing = [keyword.name for keyword in keywords if keyword.default is inspect.Parameter.empty]
    if missing:
        raise BadChoice(f"measure {name!r}: {missing[0]} needs a default, or None where it may be left out")
    return {keyword.name: keyword.default for keyword in keywords}


measure = Registry("measure", ("fovea.measures",), lambda entry, function: Measure(declared(entry, function), function))


def find(name: str) -> Declared:
    """What a measure declares; a user's own is imported for it."""
    entry = measure.entry(name)
    return declared(entry) if entry.node is not None else measure.get(entry.name).declared


def titles() -> dict[str, str]:
    """The title of every measure by its name: those of figures, then those of time."""
    found = {name: str(entry.traits.get("title") or name) for name, entry in measure.entries().items()}
    return dict(sorted(found.items(), key=lambda one: (one[0].startswith(BENCH), one[0])))
