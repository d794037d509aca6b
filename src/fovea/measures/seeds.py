"""Networks, and results, that are called the same but for a last -seed<N>: one training repeated, told by its mean."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fovea.basics import BadChoice, student
from fovea.measures.figures import Written, read

SEED = re.compile(r"(.+)-seed(\d+)")
Row = dict[str, Any]
VERDICTS = ("attention", "verdict")  # what rows conclude from figures, in which seeds may differ
BySeed = Mapping[str, Mapping[str, Any]]  # rows


def of(name: str) -> tuple[str, str]:
    """What a network is called without its seed, and the seed; a name without one is itself, and its seed empty."""
    named = SEED.fullmatch(name)
    return (named[1], named[2]) if named else (name, "")


def told(names: Sequence[str]) -> dict[str, str]:
    """What rows of several networks say, for their settings."""
    change = f"beside {of(names[0])[0]}, seed by seed where both have the same"
    return {"change": change, "interval": "Student's 95 % over seeds"}


def together(rows: Sequence[Mapping[str, Any]], sure: Sequence[str], differences: Collection[str] = ()) -> list[Row]:
    """One row for the rows of a network's seeds (`net`) with the same `method`: means of all numbers, with Student's 95
    % interval of those in `sure`, shares or `differences` of shares, as KEY_low and KEY_high where there are several
    seeds. KEY_change is beside the first network with the same method: a mean over seeds, which have an interval, too,
    where both networks have the same seeds."""
    groups: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        name, seed = of(row["net"])
        groups.setdefault((name, row["method"]), {})[seed] = row
    first = next(iter(groups))[0]
    bases = (None if name == first else groups.get((first, method), {}) for name, method in groups)
    both = zip(groups.items(), bases, strict=True)
    return [mean_row(name, own, sure, base, differences) for ((name, _), own), base in both]


def mean_row(
    name: str, own: BySeed, sure: Sequence[str], base: BySeed | None, differences: Collection[str] = ()
) -> Row:
    """The rows of a network's seeds as one, beside those of another (None: of none), as `together` says."""
    found: Row = {}
    for key, value in next(iter(own.values())).items():
        if key == "net":
            found |= {"net": name, "seeds": len(own)}
        elif isinstance(value, float):
            values = [float(one[key]) for one in own.values()]
            found[key] = float(np.mean(values))
            if key in sure and len(own) > 1:
                least = -1.0 if key in differences else 0.0
                found[f"{key}_low"], found[f"{key}_high"] = student(values, least)
        else:
            found[key] = value
    for key in sure if base is not None else ():
        if not base or any(row.get(key) is None for row in (found, *base.values())):
            continue
        found[f"{key}_change"] = found[key] - float(np.mean([one[key] for one in base.values()]))
        if base.keys() == own.keys() and len(own) > 1:
            apart = [own[seed][key] - base[seed][key] for seed in own]
            found[f"{key}_change_low"], found[f"{key}_change_high"] = student(apart, least=-1.0)
    return found


def results(folder: Path) -> list[str]:
    """The names of a folder's results, without seeds."""
    return sorted({of(path.stem)[0] for path in folder.glob("*.json")})


def result(folder: Path, name: str) -> Written:
    """A result by its name. Of one that was repeated with other seeds (NAME-seed0.json, …), row by row the means of all
    numbers, those of its intervals too, and how many `seeds` there are; the rest as it is of the first."""
    whole = folder / f"{name}.json"
    repeats = sorted(path for path in folder.glob(f"{name}-seed*.json") if of(path.stem)[0] == name)
    if whole.is_file() and repeats:
        raise BadChoice(f"{whole} stands beside {repeats[0].name}: which of them is {name}? Rename or drop one")
    if not repeats:
        return read(whole)
    found = [read(path) for path in repeats]
    if len({tuple(map(_words, one.rows)) for one in found}) > 1:
        raise BadChoice(f"{folder}/{name}-seed*.json have different rows: measure all seeds alike")
    rows = [dict(_means(same)) | {"seeds": len(found)} for same in zip(*(one.rows for one in found), strict=True)]
    settings = {key: _unseeded(value) for key, value in found[0].settings.items()}
    return found[0].model_copy(update={"rows": rows, "settings": settings})


def _means(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Any]]:
    for key in dict.fromkeys(key for row in rows for key in row):
        values = [row.get(key) for row in rows]
        if all(value == values[0] for value in values):
            yield key, _unseeded(values[0])
        elif key in VERDICTS:  # of which the mean is none
            yield key, None
        elif isinstance(values[0], str):
            yield key, _unseeded(values[0])
        else:  # a figure that some seed has not is none of theirs
            known = [float(value) for value in values if value is not None]
            yield key, float(np.mean(known)) if len(known) == len(values) else None


def _words(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a row is about."""
    words = ((key, value) for key, value in row.items() if isinstance(value, str | bool) and key not in VERDICTS)
    return tuple((key, _unseeded(value)) for key, value in words)


def _unseeded(value: Any) -> Any:
    return of(value)[0] if isinstance(value, str) else value
