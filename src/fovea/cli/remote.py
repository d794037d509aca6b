"""--server: a command that asks a service instead of loading a network."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from fovea.basics import BadChoice
from fovea.cli.commands import Asked
from fovea.cli.common import bar, refuse_full_size
from fovea.cli.glossary import spelled

if TYPE_CHECKING:
    from fovea.pictures import Picture
    from fovea.results import Step

HERE = {"pictures", "given", "server", "token", "net", "out", "files", "full_size", "json"}  # what is not the service's


def refuse_words(asked: Asked, known: Iterable[str]) -> None:
    """What was typed that no service is told."""
    for name in sorted(asked.typed - HERE - set(known)):
        words = "networks, devices and limits are the service's own, and it takes pictures and texts"
        raise BadChoice(f"{spelled(name)} does not go with --server: {words}; leave one of the two out")


def ask_service(
    asked: Asked, verb: str, items: "Sequence[Picture | str]"
) -> "tuple[dict[str, Any], Iterator[Step[Any]]]":
    """Settings and steps as the verb has them in process. Some are asked for at once, since settings come with them."""
    from fovea.remote import QUESTIONS

    fields = QUESTIONS[verb].model_fields
    refuse_words(asked, fields)
    from fovea.pictures import Picture
    from fovea.remote import Question, client

    if "full_size" in asked.values:
        refuse_full_size(asked, [item for item in items if isinstance(item, Picture)])
    typed = {name: asked.values[name] for name in fields if name in asked.typed}
    words = {
        name: asked.one(name) if isinstance(value, tuple) and name not in QUESTIONS[verb].lists else value
        for name, value in typed.items()
    }
    question, first = Question(client(asked.server, asked.token).service, verb, words, items), list[Any]()
    steps = iter(question)
    with bar(f"asking {question.service.url}"):
        for step in steps:
            first.append(step)
            if question.settings:
                break
    return question.settings, chain(first, steps)
