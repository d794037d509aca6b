"""`open_data("cub:split=test,labels=100-199")` opens any data set: by path, recognized by its files, or by name.

A layout is a function that opens a data set, declared in its own file:

    @layout("pets", about="37 breeds: `images/`, `annotations/`", folders=("oxford-iiit-pet",), recognizes="is_pets")
    def open_pets(folder: Path, *, split: str | None = None) -> DataSet: ...

`about` says what it is and what must be there, `folders` what its folder is usually called beside its name, and
`recognizes` names the function of its file that tells its folder by the files in it. Without a parameter `folder` a set
is made, not read.
It `holds` pictures (a DataSet) unless it says texts (Sentences), sounds (Sounds) or clips (Shots)."""

import glob
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Annotated, Any, Literal

from fovea.basics import BOUNDS, REFERENCE, SEED, BadChoice, Entry, FoveaError, Registry, nearest, within
from fovea.data.options import CHOOSE, COMMON, PARTS, numbers, parsed, typed, value_of
from fovea.data.places import at_home, called, find, plain
from fovea.data.samples import UNLABELED, DataSet, Sample
from fovea.pictures import Given, files_of, gather, is_picture_name

SETS = {  # what a layout may hold: what it returns then, and what opens it
    "pictures": ("samples", "DataSet", "open_data"),
    "texts": ("sentences", "Sentences", "open_sentences"),
    "sounds": ("sounds", "Sounds", "open_sounds"),
    "clips": ("moving", "Shots", "open_clips"),
}
FOLDS = 10


@dataclass(frozen=True)
class Layout:
    """How one data set lies on the disk, or, where it takes no folder, how it is made."""

    entry: Entry
    open: Callable[..., Any]
    recognizes: Callable[[Path], bool]

    @property
    def is_made(self) -> bool:
        return "folder" not in signature(self.open).parameters

    def inside(self, folder: Path) -> Path | None:
        """The folder itself, or the one inside that an archive unpacked, where it has this layout."""
        places = [folder, *(folder / name for name in self.entry.traits.get("folders", ()))]
        return next((place for place in places if place.is_dir() and self.recognizes(place)), None)


def _check(entry: Entry, thing: Any) -> Layout:
    words, holds = f"layout {entry.name!r} of {entry.module}", holding(entry)
    if not callable(thing) or isinstance(thing, type):
        raise BadChoice(f"{words} is a function open(folder, *, split=None) that returns a DataSet; got {thing!r}")
    if holds not in SETS:
        raise BadChoice(f"{words} holds {' or '.join(SETS)}; got {holds!r}{nearest(str(holds), SETS)}")
    name = entry.traits.get("recognizes")
    recognizes = getattr(sys.modules[entry.module], name, None) if name else lambda folder: False
    if not callable(recognizes):
        raise BadChoice(f"{words} is recognized by a function {name!r} of its file, which has none")
    return Layout(entry, thing, recognizes)


layout = Registry("layout", ("fovea.data",), _check)


def open_data(given: str | Path, split: str | None = None, names: Sequence[str] | None = None) -> DataSet:
    """A data set by path, by name below the folder that FOVEA_DATA names, or by a layout of yours, package.module:name.

    Options follow a colon: `split=`, `labels=` (classes kept, as 0-49 or 3+5+8), `folds=` (tenths of every class kept,
    as 0-7, drawn by `fold_seed=`), `part=` (of a training split: fit, nine tenths to train on, or choose, the
    tenth that settings are chosen by), `limit=` (so many, spread evenly), `crop=boxes` (cut to them), `layout=` (when
    the files do not tell), and the set's own. A folder's classes are matched to `names` where they all occur there."""
    return opened(given, "pictures", split, names)


def opened(given: str | Path, holds: str, split: str | None = None, names: Sequence[str] | None = None) -> Any:
    """A set of pictures, texts, sounds or clips, as its layout opens it."""
    name, options = parsed(str(given))
    if split is not None and options.setdefault("split", split) != split:
        raise BadChoice(f"{name}: split={options['split']} after the colon, but {split!r} is asked for: name one split")
    chosen, folder = _found(name, options.pop("layout", None))
    what = holding(chosen.entry)
    if what != holds:
        raise BadChoice(f"{folder or name} holds {what}, not {holds}: open it with fovea.data.{SETS[what][2]}")
    kept, folds, part, seed, limit, crop = (options.pop(key, None) if holds == "pictures" else None for key in CHOOSE)
    folds = folds if part is None else _folds_of(name, part, folds)
    arguments = typed(chosen.entry.name, chosen.open, options)
    if "names" in signature(chosen.open).parameters:
        arguments["names"] = names
    where = () if folder is None else (folder,)
    if part is not None and options.get("split") != "train" and _has_splits(chosen.open, where, arguments):
        raise BadChoice(f"{name}: part= is of the training split: give split=train as well")
    data = chosen.open(*where, **arguments)
    data = _accepted(chosen.entry, data, holds)
    data = data if kept is None else data.only(numbers(kept))
    if folds is not None:
        data = only_folds(data, numbers(folds), value_of(f"{name}: fold_seed=", seed or "0", Annotated[int, SEED]))
    if limit is not None:
        data = data.first(value_of(f"{name}: limit=", limit, Annotated[int, BOUNDS["limit"]]))
    return data if crop is None else _cropped(name, data, crop)


def _cropped(name: str, data: DataSet, crop: str) -> DataSet:
    value_of(f"{name}: crop=", crop, Literal["boxes"])
    return data.cropped()


def _has_splits(open: Callable[..., Any], where: Sequence[Path], arguments: Mapping[str, Any]) -> bool:
    """Whether a set is divided, so that folds of all of it would hold pictures that are tested on."""
    if "split" not in signature(open).parameters:
        return False
    try:
        open(*where, **{**arguments, "split": "train"})
    except FoveaError:
        return False
    return True


def _folds_of(name: str, part: str, folds: str | None) -> str:
    if folds is not None:
        words = ", ".join(f"{key} for {value}" for key, value in PARTS.items())
        raise BadChoice(f"{name}: part= stands for folds ({words}): leave one of part= and folds= out")
    return PARTS[value_of(f"{name}: part=", part, Literal[*PARTS])]


def demand_layout(given: str) -> None:
    """Refuses a set that is not there, or has not the options asked for; nothing of it is opened."""
    name, options = parsed(given)
    chosen, _ = _found(name, options.get("layout"))
    typed(chosen.entry.name, chosen.open, {key: value for key, value in options.items() if key not in COMMON})


def is_laid_out(folder: Path) -> bool:
    """Whether a folder is a set of some layout, at least one folder per class."""
    known = (layout.get(entry.name) for entry in _in_turn() if "recognizes" in entry.traits)
    return any(each.inside(folder) for each in known)


def held_by(given: str | Path) -> str:
    """What a data set holds: pictures, texts, sounds or clips. Of one that is not there, what its name says."""
    name, options = parsed(str(given))
    try:
        return holding(_found(name, options.get("layout"))[0].entry)
    except BadChoice:
        known = _called(name)
        return holding(known) if known else "pictures"


def holding(entry: Entry) -> str:
    return str(entry.traits.get("holds", "pictures"))


def _accepted(entry: Entry, data: Any, holds: str) -> Any:
    """What a layout returned, or words for its author."""
    module, name, _ = SETS[holds]
    words = f"layout {entry.name!r} of {entry.module}"
    if not isinstance(data, getattr(import_module(f"fovea.data.{module}"), name)):
        got = "nothing" if data is None else f"a {type(data).__name__}"
        raise BadChoice(f"{words} returned {got}: return a fovea.data.{name}, as {name}(name, samples, labels)")
    if not isinstance(data, DataSet):
        return data
    data = replace(data, samples=tuple(data.samples), labels=tuple(data.labels))
    wrong = next((sample for sample in data.samples if not isinstance(sample, Sample)), None)
    if wrong is not None:
        raise BadChoice(f"{words}: samples are fovea.data.Sample(name, label, source, boxes); got {wrong!r}")
    unfit = next((sample for sample in data.samples if not 0 <= sample.label < len(data.labels)), None)
    if unfit is not None:
        why = f"and labels names {len(data.labels)} classes: a label is the class's place in labels"
        raise BadChoice(f"{words}: {unfit.name} is of class {unfit.label!r}, {why}")
    return data


def _found(name: str, forced: str | None) -> tuple[Layout, Path | None]:
    """The layout of a data set, and its folder."""
    by_name = layout.entry(name) if _is_reference(name) else _called(name)
    wanted = by_name
    if forced:
        wanted = (None if _is_reference(forced) else _called(forced)) or layout.entry(forced)
    if wanted is not None and layout.get(wanted.name).is_made:
        if wanted != by_name:
            raise BadChoice(f"{wanted.name} is made, not read from {name!r}; open it as {wanted.name!r}")
        return layout.get(wanted.name), None
    if _is_reference(name):
        if by_name is None or by_name.name == name:
            raise BadChoice(f"{name} opens a folder: write FOLDER:layout={name}")
        name = by_name.name
    usual = () if by_name is None else (by_name.name, *by_name.traits.get("folders", ()))
    on_disk = [layout.get(entry.name) for entry in _in_turn() if "recognizes" in entry.traits]
    folder = find(name, usual, lambda place: any(known.inside(place) for known in on_disk), tuple(layout))
    if wanted is not None and (forced or "recognizes" not in wanted.traits):
        return layout.get(wanted.name), layout.get(wanted.name).inside(folder) or folder
    for known in on_disk:
        inside = known.inside(folder)
        if inside is not None:
            return known, inside
    return layout.get(by_name.name if by_name else "folder"), folder  # it will say what is missing


def _in_turn() -> list[Entry]:
    """In the order in which a folder is tried: a pack first, a plain folder last."""
    return sorted(layout.entries().values(), key=lambda entry: entry.traits.get("turn", 0))


def _called(name: str) -> Entry | None:
    """By its own name, or by what its folder is usually called; a path to digits/ is a folder, not the made set."""
    end = Path(name).name
    for entry in _in_turn():
        known = map(plain, (entry.name, *entry.traits.get("folders", ())))
        if plain(end) in known and ("recognizes" in entry.traits or end == name):
            return entry
    return None


def _is_reference(name: str) -> bool:
    return REFERENCE.fullmatch(name) is not None


def only_folds(data: DataSet, kept: Collection[int], seed: int = 0) -> DataSet:
    """The samples of these folds. Which fold is a picture's follows from the seed, its class and its file's name, not
    from where the folder lies; a picture that is added moves few others."""
    within("a fold", max(kept, default=0), 0, FOLDS - 1)

    def drawn(place: int) -> bytes:
        sample = data.samples[place]
        words = f"{seed}/{data.labels[sample.label]}/{Path(sample.name).name}"
        return sha256(words.encode("utf-8", "surrogateescape")).digest()

    by_class: dict[int, list[int]] = {}
    for place in sorted(range(len(data)), key=drawn):
        by_class.setdefault(data.samples[place].label, []).append(place)
    fold: dict[int, int] = {}
    for places in by_class.values():
        fold |= {place: int((turn + 0.5) * FOLDS / len(places)) for turn, place in enumerate(places)}
    samples: tuple[Sample, ...] = tuple(sample for i, sample in enumerate(data.samples) if fold[i] in kept)
    return replace(data, samples=samples)


def pictures_of(given: Given | Iterable[Given], name: str = "") -> DataSet:
    """Files, folders, globs, PIL pictures or arrays; what cannot be read is found out when it is asked for."""
    alone = given[0] if isinstance(given, (list, tuple)) and len(given) == 1 else given
    name = name or (called(Path(alone)) if isinstance(alone, (str, Path)) else "pictures")
    return DataSet(name, tuple(Sample(picture.name, 0, picture) for picture in gather(given)), UNLABELED)


def open_loosely(given: Any, split: str | None = None, names: Sequence[str] | None = None) -> DataSet:
    """What `open_data` opens, and pictures without labels where it would not: several files, a glob, a flat folder."""
    if not isinstance(given, (str, Path)):
        return pictures_of(given)
    name, options = parsed(str(given))
    if set(options) - {"limit"} or split is not None or not _is_loose(name):
        return open_data(given, split, names)
    data = pictures_of(name, called(at_home(name)))
    limit = options.get("limit")
    return data if limit is None else data.first(value_of(f"{name}: limit=", limit, Annotated[int, BOUNDS["limit"]]))


def _is_loose(name: str) -> bool:
    path = at_home(name)
    if path.is_dir():
        return not is_laid_out(path) and bool(files_of(path, is_picture_name)[0])
    return path.is_file() or glob.has_magic(name)


def demand_data(given: str) -> None:
    """Refuses data that is not there, without opening it."""
    name, _ = parsed(given)
    if not (_is_loose(name) or at_home(name).is_dir()):
        demand_layout(given)
