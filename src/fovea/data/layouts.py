"""`open_data("cub:split=test,labels=100-199")` opens any data set: by path, recognised by its files, or by name."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path

from fovea.basics.errors import BadChoice, nearest
from fovea.data.cars import is_cars, open_cars
from fovea.data.cub import is_cub, open_cub
from fovea.data.digits import open_digits
from fovea.data.dogs import is_dogs, open_dogs
from fovea.data.fmow import is_fmow, open_fmow
from fovea.data.folders import is_folder, open_folder
from fovea.data.imagenet import is_imagenet, open_imagenet
from fovea.data.megapixel import open_megapixel
from fovea.data.mnist import is_mnist, open_mnist
from fovea.data.options import numbers, parsed, typed, value_of
from fovea.data.packs import is_pack, open_pack
from fovea.data.places import find, plain
from fovea.data.samples import DataSet
from fovea.data.sentences import is_mr, refuse_sentences
from fovea.data.tinyimagenet import is_tiny_imagenet, open_tiny_imagenet


@dataclass(frozen=True)
class Layout:
    """How one data set lies on the disk. Without `recognises` it needs no folder: its pictures are made."""

    name: str
    folders: tuple[str, ...]  # what its folder is usually called, beside its own name
    recognises: Callable[[Path], bool] | None
    open: Callable[..., DataSet]

    def is_called(self, name: str) -> bool:
        """By its own name, or by what its folder is usually called; a path to digits/ is a folder, not the made set."""
        end = Path(name).name
        return plain(end) in map(plain, (self.name, *self.folders)) and (self.recognises is not None or end == name)


LAYOUTS = (
    Layout("pack", (), is_pack, open_pack),
    Layout("cub", ("CUB_200_2011", "cub200"), is_cub, open_cub),
    Layout("dogs", ("StanfordDogs", "stanford_dogs"), is_dogs, open_dogs),
    Layout("cars", ("Cars196", "StanfordCars", "stanford_cars"), is_cars, open_cars),
    Layout("tiny-imagenet", ("tiny-imagenet-200",), is_tiny_imagenet, open_tiny_imagenet),
    Layout("imagenet", ("ILSVRC2012", "ILSVRC", "imagenet-1k"), is_imagenet, open_imagenet),
    Layout("fmow", ("fmow-rgb",), is_fmow, open_fmow),
    Layout("mnist", (), is_mnist, open_mnist),
    Layout("mr", ("rt-polaritydata",), is_mr, refuse_sentences),
    Layout("digits", (), None, open_digits),
    Layout("megapixel", (), None, open_megapixel),
    Layout("folder", (), is_folder, open_folder),
)


def open_data(given: str | Path, split: str | None = None, names: Sequence[str] | None = None) -> DataSet:
    """A data set by path, or by name below the folder that FOVEA_DATA names.

    Options follow a colon: `split=`, `labels=` (classes kept, as 0-49 or 3+5+8), `limit=` (so many, spread evenly),
    `layout=` (when the files do not tell), and the set's own. A folder's classes are matched to `names` where they all
    occur there.
    """
    name, options = parsed(str(given))
    if split is not None and options.setdefault("split", split) != split:
        raise BadChoice(f"{name}: split={options['split']} after the colon, but {split!r} is asked for: name one split")
    kept, limit, forced = (options.pop(key, None) for key in ("labels", "limit", "layout"))
    layout, folder = _found(name, forced)
    arguments = typed(layout.name, layout.open, options)
    if "names" in signature(layout.open).parameters:
        arguments["names"] = names
    data = layout.open(**arguments) if folder is None else layout.open(folder, **arguments)
    data = data if kept is None else data.only(numbers(kept))
    return data.first(None if limit is None else value_of(f"{name}: limit=", limit, int))


def _found(name: str, forced: str | None) -> tuple[Layout, Path | None]:
    by_name = next((one for one in LAYOUTS if one.is_called(name)), None)
    wanted = _called(forced) if forced else by_name
    if wanted is not None and wanted.recognises is None:
        if wanted is not by_name:
            raise BadChoice(f"{wanted.name} is made, not read from {name!r}; open it as {wanted.name!r}")
        return wanted, None
    folder = find(name, () if by_name is None else (by_name.name, *by_name.folders), _is_known)
    if forced and wanted is not None:
        return wanted, _inner(folder, wanted) or folder
    for layout in LAYOUTS:
        inside = _inner(folder, layout)
        if inside is not None:
            return layout, inside
    return by_name or LAYOUTS[-1], folder  # it will say what is missing


def _called(name: str) -> Layout:
    found = next((one for one in LAYOUTS if one.is_called(name)), None)
    if found is None:
        known = [one.name for one in LAYOUTS]
        raise BadChoice(f"no layout {name!r}{nearest(name, known)} (known: {', '.join(known)})")
    return found


def _inner(folder: Path, layout: Layout) -> Path | None:
    """The folder itself, or the one inside that an archive unpacked, where it has this layout."""
    if layout.recognises is None:
        return None
    places = [folder, *(folder / one for one in layout.folders)]
    return next((one for one in places if one.is_dir() and layout.recognises(one)), None)


def _is_known(folder: Path) -> bool:
    return any(_inner(folder, layout) for layout in LAYOUTS)
