"""Networks of other libraries by `fovea.wrap`: one file per kind, found by what a module has, not by its class.

    @adapter("mine", about="modules that answer by a tree")
    def mine(given: Adapted) -> Adapted | None: ...

An adapter is given what `fovea.wrap` was, and fills in what the caller left out: the module that takes a batch of
pictures, how pictures come in, the classes, the output to explain, where to look, other targets than classes. For a
module of another kind it returns None."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn

from fovea.basics import BadNetwork, Entry, Registry
from fovea.pictures import Placement, Transform

Read = Callable[[Any], Tensor]  # what a module returns to N,K


class Asked(Protocol):
    """Other targets than classes: texts, boxes."""

    placed: bool  # is what is asked somewhere in the picture, so that it hangs on where its pixels went?

    def takes(self, item: Any) -> bool:
        """Whether it is one of these targets."""
        ...

    def name(self, item: Any) -> str: ...

    def read(self, items: Sequence[Any], placements: Sequence[Placement | None]) -> Read:
        """One column per item."""
        ...


@dataclass(frozen=True)
class Adapted:
    """What a network is made of."""

    module: nn.Module
    transform: Transform | None = None
    labels: tuple[str, ...] | None = None
    layer: str | nn.Module | None = None
    output: Read | None = None
    abilities: frozenset[str] = frozenset()
    tokenizer: Any = None
    asked: Asked | None = None


Adapt = Callable[[Adapted], Adapted | None]


def _checked(entry: Entry, thing: Any) -> Adapt:
    if not callable(thing):
        raise BadNetwork(f"adapter {entry.name}: give a function of what fovea.wrap was given; got {thing!r}")
    return thing


adapter: Registry[Adapt] = Registry("adapter", ("fovea.networks.adapters",), _checked)


def adapted(given: Adapted) -> Adapted:
    """By the first adapter that knows the kind; as it is where none does."""
    return next((found for name in adapter if (found := adapter.get(name)(given)) is not None), given)


class Facade(nn.Module):
    """A model that is run otherwise than by its forward; its layers are the model's own, under their own names."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.__dict__.update({part: vars(model)[part] for part in ("_modules", "_parameters", "_buffers")})
        self.model = (model,)  # in a tuple, so that it is no layer


def last_layer(backbone: nn.Module) -> nn.Module | None:
    """The last map that all which is read off a backbone hangs on, or, of a pyramid of features, the last below it."""
    if hasattr(backbone, "extra"):  # SSD: `features` are a chain, or blocks of which each is read
        first = next(backbone.features.children())  # type: ignore[operator, union-attr]
        return first if len(list(first.children())) else next(reversed(list(backbone.features.children())))  # type: ignore[operator, union-attr]
    return next(reversed(list(getattr(backbone, "body", backbone).children())), None)
