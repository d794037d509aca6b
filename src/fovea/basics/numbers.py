"""Every number that comes from outside has bounds, which are checked before memory is taken for it.

`BOUNDS` has them by name for the command line, the verbs and the measures, where a name means the same everywhere. The
options of a data set or a patch source and the keys of a recipe declare theirs beside their type, as
`Annotated[int, Bound(1, 1000)]`."""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from numbers import Integral, Real
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin

from fovea.basics.errors import BadChoice, shown, within

P = ParamSpec("P")
T = TypeVar("T")
LONGEST = 1000  # numbers in a list
WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
REAL = re.compile(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?")


@dataclass(frozen=True)
class Bound:
    """From `least` to `most`, both included; a whole number unless it is `real`."""

    least: float
    most: float
    real: bool = False

    def check(self, what: str, value: Any) -> None:
        """A number within, or each of a list of them."""
        if isinstance(value, (list, tuple)):
            within(f"how many numbers {what} has", len(value), 0, LONGEST)
            for number in value:
                self.check(what, number)
            return
        if not isinstance(value, Real if self.real else Integral):
            raise BadChoice(f"{what} takes {self.kind}; got {shown(value)}")
        within(what, value, self.least, self.most)  # type: ignore[arg-type]

    def read(self, what: str, text: str) -> float:
        """The number that a text says, in digits as they are typed."""
        if not (REAL if self.real else WHOLE).fullmatch(text.strip()):
            raise BadChoice(f"{what} takes {self.kind}; got {shown(text)}")
        value = float(text) if self.real else int(text)
        self.check(what, value)
        return value

    @property
    def kind(self) -> str:
        return "a number" if self.real else "a whole number"


SHARE = Bound(0, 1, real=True)
SEED = Bound(0, 2**32 - 1)
OPTION = Bound(-16_384, 16_384, real=True)  # of whoever builds a network: widths, sides, shares
ANY = {int: Bound(-(10**9), 10**9), float: Bound(-1e9, 1e9, real=True)}  # where nothing else is declared
BOUNDS = {
    **dict.fromkeys(("adam", "count", "counts", "every"), Bound(1, 1_000_000)),
    **dict.fromkeys(("batch", "batches"), Bound(1, 65_536)),
    **dict.fromkeys(("branch", "most", "numbers", "rounds"), Bound(1, 10_000)),
    **dict.fromkeys(("classes", "frames", "k"), Bound(1, 100_000)),
    **dict.fromkeys(("glimpses", "nearest"), Bound(0, 1000)),
    "forwards": Bound(20, 100_000),
    "of": Bound(2, 10),
    "only": Bound(0, 9),
    **dict.fromkeys(("overlap", "overlaps", "share", "shares"), SHARE),
    **dict.fromkeys(("seeds", "top"), Bound(1, 1000)),
    **dict.fromkeys(("start", "stop"), Bound(0, 1e7, real=True)),  # seconds
    "budget_macs": Bound(1, 9e11, real=True),
    "budget_ms": Bound(0, 1e9, real=True),
    "curve_pictures": Bound(2, 1_000_000),
    "levels": Bound(1, 16),
    "limit": Bound(1, 10**9),
    "max_bytes": Bound(1, 10**12),
    "max_pixels": Bound(1, 10**10),
    "port": Bound(0, 65_535),
    "queue": Bound(1, 10_000),
    "quality": Bound(1, 100),  # of JPEGs
    "rate": Bound(1000, 768_000),  # of sounds, in Hz
    "resolution": Bound(0.0001, 1, real=True),
    "seed": SEED,
    "side": Bound(1, 16_384),
    "sides": Bound(1024, 1 << 20),
    "size": Bound(1, 8192),
    "steps": Bound(2, 10_000),
    "timeout": Bound(1, 86_400, real=True),  # seconds
    "until": SHARE,
    "tile": Bound(16, 4096),
    **dict.fromkeys(("processes", "workers"), Bound(0, 256)),
}


def demand_bounds(given: Mapping[str, Any], bounds: Mapping[str, Bound] = BOUNDS, before: str = "") -> None:
    """Each number that has bounds is within them; what is not given has none."""
    for name, value in given.items():
        if name in bounds and value is not None:
            bounds[name].check(f"{before}{name}", value)


def of_environment(name: str, least: int, usual: int) -> int:
    """A number that the environment gives, as torchrun sets it."""
    return int(Bound(least, 1_000_000).read(f"the environment's {name}", os.environ.get(name, str(usual))))


def demand_options(given: Mapping[str, Any], before: str = "") -> None:
    """Of a network's options, those that are numbers, or lists of them, are no larger than a layer may be wide."""
    numbers = {name: value for name, value in given.items() if all(isinstance(one, Real) for one in _listed(value))}
    demand_bounds(numbers, {name: BOUNDS["rate"] if name == "rate" else OPTION for name in numbers}, before)


def _listed(value: Any) -> list[Any] | tuple[Any, ...]:
    return value if isinstance(value, (list, tuple)) else (value,)


def bounded(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which first checks its numbers: by the bounds beside their types, else by their names."""
    parameters = inspect.signature(function).parameters
    known = {name: bound_of(one.annotation) or BOUNDS.get(name) for name, one in parameters.items()}
    bounds = {name: bound for name, bound in known.items() if bound is not None}

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        demand_bounds({**dict(zip(parameters, args, strict=False)), **kwargs}, bounds)
        return function(*args, **kwargs)

    return call


def bound_of(kind: Any) -> Bound | None:
    """What is declared beside a type."""
    if get_origin(kind) is Annotated:
        return next((extra for extra in get_args(kind)[1:] if isinstance(extra, Bound)), None)
    return next(filter(None, map(bound_of, get_args(kind))), None)
