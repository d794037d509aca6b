"""What is minimized: one loss per file, each with its settings.

    @loss("focal", about="easy pictures count less")
    class Focal(Loss):
        gamma: NotNegative = 2.0

        def __call__(self, logits: Tensor, target: Tensor) -> Tensor: ...

Traits: `reads` says what a loss is given, "logits" (the default), "embedding" or the network's own "output"; `needs` is
the ability that a network must have for it and `such_as` names one; `per_class` is the least number of pictures of a
class in a batch, and with `pairs` also the most. A plain function of (logits, target) is a loss, too; its further
parameters are the settings."""

import ast
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import create_model

from fovea.basics import HERE, BadChoice, Entry, Registry, nearest
from fovea.training import parts
from fovea.training.parts import NotNegative, Part

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fovea.networks import Network

DEFAULT = "cross_entropy"
READS = ("logits", "embedding", "output")


class Loss(Part):
    """A loss with its settings as fields. Calling it with what the network says of a batch and the classes (N, or
    N,classes as shares after mixing) gives one number."""

    name: str = ""  # in a recipe
    weights: dict[str, NotNegative] = {}  # of a network's several outputs by their names; 1 each unless given

    @property
    def traits(self) -> Mapping[str, Any]:
        return {"reads": "logits", **loss.entry(self.name).traits}

    @property
    def reads(self) -> str:
        """What it is given: the network's logits, its embedding, or all of its output."""
        return str(self.traits["reads"])

    def made(self) -> Any:
        """What is called at every step: an nn.Module where a loss has a state to keep in checkpoints."""
        return self

    def teacher(self, student: "Network", device: "torch.device") -> "Callable[[Tensor], Tensor] | None":
        """What sees the inputs beside the network that is trained: its answer comes as the third argument."""
        return None


def _checked(entry: Entry, thing: Any) -> type[Loss]:
    if entry.traits.get("reads", "logits") not in READS:
        raise BadChoice(f"the loss {entry.name!r} reads {' or '.join(READS)}; got {entry.traits['reads']!r}")
    if isinstance(thing, type) and issubclass(thing, Loss):
        if thing.made is Loss.made and not any("__call__" in vars(one) for one in thing.__mro__):
            raise BadChoice(f"the loss {entry.name!r} has no __call__(self, logits, target) that gives one number")
        return thing
    if isinstance(thing, type) or not callable(thing):
        what = f"the class {thing.__name__}" if isinstance(thing, type) else f"a {type(thing).__name__}"
        why = "a loss is a function of (logits, target), or a class that derives from fovea.training.losses.Loss"
        raise BadChoice(f"the loss {entry.name!r} is {what}: {why}")
    return _of_function(entry, thing)


loss: Registry[type[Loss]] = Registry("loss", ("fovea.training.losses",), _checked)


def _of_function(entry: Entry, function: Callable[..., Any]) -> type[Loss]:
    """A function as a loss: what it takes beside the output and the classes are settings."""
    given = list(inspect.signature(function).parameters.values())
    if len(given) < 2:
        why = "a loss is a function of (logits, target)"
        raise BadChoice(f"the loss {entry.name!r} takes {len(given)} argument(s): {why}")
    fields: dict[str, Any] = {
        one.name: (
            Any if one.annotation is one.empty else one.annotation,
            ... if one.default is one.empty else one.default,
        )
        for one in given[2:]
    }

    def call(self: Loss, out: Any, target: Any) -> Any:
        return function(out, target, **{name: getattr(self, name) for name in fields})

    made: type[Loss] = create_model(function.__name__, __base__=Loss, **fields)
    made.__call__ = call  # type: ignore[method-assign]
    return made


def settings_of(name: str) -> type[Loss]:
    """The settings of a loss. Those of fovea's own are read off the file's text, so that a recipe needs no torch."""
    entry = loss.entry(name)
    return loss.get(name) if entry.node is None else _read(entry.module, entry.node.name)  # type: ignore[attr-defined]


@lru_cache
def _read(module: str, name: str) -> type[Loss]:
    """A loss's file without what it computes: its tables of settings alone."""
    file = HERE.joinpath(*module.split(".")[1:]).with_suffix(".py")
    known: dict[str, Any] = {**vars(parts), "Loss": Loss, "Literal": Literal, "__name__": module}
    for node in ast.parse(Path(file).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and {ast.unparse(base) for base in node.bases} & {"Part", "Loss"}:
            node.body = [one for one in node.body if isinstance(one, ast.AnnAssign)] or [ast.Pass()]
            node.decorator_list = []
            exec(compile(ast.fix_missing_locations(ast.Module([node], [])), str(file), "exec"), known)
    return known[name]


def chosen(content: Any) -> Loss:
    """The loss part of a recipe: which loss, by its name, says which settings there are."""
    if isinstance(content, Loss):
        return content
    if not isinstance(content, dict) or not isinstance(content.get("name", DEFAULT), str):
        raise ValueError(f"is a table with the name of a loss and its settings; got {content!r}")
    name = content.get("name", DEFAULT)
    known = _settings(name)
    stray = next((key for key in sorted(content) if key not in known), None)
    if stray is not None:
        ours = (other for other, entry in loss.entries().items() if entry.module.startswith(__name__))
        whose = [repr(other) for other in ours if stray in _settings(other)]
        if whose:
            raise ValueError(f"{stray} belongs to the loss {' or '.join(whose)}; this one is {name!r}")
        near = nearest(stray, known) or f" (it has: {', '.join(sorted(known - {'name'})) or 'none'})"
        raise ValueError(f"the loss {name!r} has no setting {stray!r}{near}")
    return settings_of(name).model_validate({**content, "name": name})


def _settings(name: str) -> set[str]:
    own = set(settings_of(name).model_fields)
    return own if loss.entry(name).traits.get("reads", "logits") == "logits" else own - {"weights"}
