"""Where patches come from without anybody drawing boxes, one source per file.

    @patch_source("whole", about="the picture itself: a control")
    def whole() -> Finder: ...

A source is a function of its options, and of a `network` where it needs one, to a Finder: pictures in, for each a list
of (box, score) out, best first, in the picture's own pixels. Options have defaults and a type: str, int, float,
tuple[float, ...] (written 0.25/0.5) or a Literal. Every method of heatmaps is a source by itself (maps.py)."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from fovea.basics import BadChoice, Bound, Registry

if TYPE_CHECKING:
    from PIL import Image

Scored = Sequence[tuple[Sequence[float], float]]  # boxes with scores, best first; a box may reach over the edge
Finder = Callable[[Sequence["Image.Image"]], Sequence[Scored]]


@dataclass(frozen=True)
class Opening:
    """A source's function, whether it takes a network, and the types of its options."""

    kind: str
    function: Callable[..., Finder]
    needs_network: bool
    options: Mapping[str, Any]


def opening_of(kind: str, function: Any) -> Opening:
    """A source's function as it is used, or an error with words for its author."""
    if not callable(function) or inspect.isclass(function):
        mend = f"give a function of its options (and of a network) that returns a finder; got {function!r}"
        raise BadChoice(f"patch source {kind}: {mend}")
    parameters = inspect.signature(function, eval_str=True).parameters
    options = {name: parameter for name, parameter in parameters.items() if name != "network"}
    for name, parameter in options.items():
        if parameter.annotation is parameter.empty or parameter.default is parameter.empty:
            raise BadChoice(f"patch source {kind}: its option {name} needs a type and a default, as {name}: int = 5")
    types = {name: parameter.annotation for name, parameter in options.items()}
    return Opening(kind, function, "network" in parameters, types)


PatchCount = Annotated[int, Bound(1, 10_000)]  # the most patches of a picture
patch_source: Registry[Opening] = Registry(
    "patch_source",
    ("fovea.patches.sources", "fovea.glimpses.source", "fovea.prototypes.source"),
    lambda entry, thing: opening_of(entry.name, thing),
)
