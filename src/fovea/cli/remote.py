"""--server: a command that asks a service instead of loading a network."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from fovea.basics import BadChoice
from fovea.cli.commands import Asked
from fovea.cli.common import bar, refuse_full_size
from fovea.cli.glossary import spelled

if TYPE_CHECKING:
    from fovea.pictures import Picture
    from fovea.results import Step

SENT: Mapping[str, Sequence[str]] = {  # what a service is told of a command's words
    "explain": ("method", "target", "layer", "fit"),
    "look": ("method", "glimpses", "forwards", "trust", "fit"),
    "localize": ("count", "overlap", "share", "branch", "target", "method", "side", "fit"),
    "zoom": ("glimpses", "until", "order", "levels", "budget_ms", "budget_macs"),
    "predict": ("top", "fit"),
}
SEVERAL = ("explain", "method"), ("explain", "target")  # which take more than one value
HERE = {"pictures", "given", "server", "token", "net", "out", "files", "full_size", "json"}  # what is not the service's


def refuse_words(asked: Asked, verb: str) -> None:
    """What was typed that no service is told."""
    for name in sorted(asked.typed - HERE - set(SENT[verb])):
        words = "networks, devices and limits are the service's own, and it takes pictures and texts"
        raise BadChoice(f"{spelled(name)} does not go with --server: {words}; leave one of the two out")


def ask_service(
    asked: Asked, verb: str, items: "Sequence[Picture | str]"
) -> "tuple[dict[str, Any], Iterator[Step[Any]]]":
    """Settings and steps as the verb has them in process. Some are asked for at once, since settings come with them."""
    refuse_words(asked, verb)
    from fovea.pictures import Picture
    from fovea.remote import Question, client

    if "full_size" in asked.values:
        refuse_full_size(asked, [item for item in items if isinstance(item, Picture)])
    values = {name: asked.values[name] for name in SENT[verb] if name in asked.typed}
    fields = {
        name: asked.one(name) if isinstance(value, tuple) and (verb, name) not in SEVERAL else value
        for name, value in values.items()
    }
    net = {"net": asked.one("net")} if "net" in asked.typed else {}
    question, first = Question(client(asked.server, asked.token).service, verb, net | fields, items), list[Any]()
    steps = iter(question)
    with bar(f"asking {question.service.url}"):
        for step in steps:
            first.append(step)
            if question.settings:
                break
    return question.settings, chain(first, steps)
