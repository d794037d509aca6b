"""fovea look."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fovea.cli.commands import Asked, command
from fovea.cli.common import brief, show
from fovea.cli.remote import ask_service


@command(
    "look",
    arguments=("pictures",),
    options=(
        "net", "method", "index", "glimpses", "forwards", "trust", "out", "files", "json", "batch", "fit", "weights",
        "untrained", "device", "max_pixels", "server", "token",
    ),
    usual={"out": Path("out/look"), "index": None, "glimpses": (4,)},
    help={
        "net": "Any classifier: a name from 'fovea models', or a .safetensors file. 'fovea calibrate' corrects "
        "its probabilities.",
        "method": "Heatmap method; if not given, a map of what each patch adds to the answer's score.",
        "index": "An index of 'fovea index': also show its nearest pictures, and where they are alike.",
        "glimpses": "Regions to look at closely, where a picture has more pixels than the network took.",
    },
    examples=(
        "fovea look cat.jpg",
        "fovea look photos/ --net mine.safetensors --index photos.fovea",
    ),
)  # fmt: skip
def look(asked: Asked) -> None:
    """Explain one answer with all of its evidence, in words and as a page.

    What the picture is taken for, and where that is visible; which part is enough, and which is needed; what speaks for
    the answer against the runner-up; what a closer look says; and whether the heatmap can be trusted."""
    asked.folder()
    if asked.index is not None:
        from fovea.retrieval import demand_index

        demand_index(asked.index)
    glimpses, method = asked.one("glimpses"), asked.one("method")
    if asked.server is not None:
        _ask(asked)
        return
    network = asked.network()
    from fovea.evidence import LookOptions, look_steps, settings_of
    from fovea.pictures import gather
    from fovea.retrieval import open_index

    opened = None if asked.index is None else open_index(asked.index)
    options = LookOptions(method, opened, glimpses, asked.forwards, asked.trust)
    writer = asked.writer("look", settings_of(network, options))
    (pictures,) = asked.left(writer, [network], gather(asked.pictures))
    steps = look_steps(network, pictures, options, asked.batch, asked.max_pixels) if pictures else []
    show(steps, writer, "looking", asked, _told)


def _ask(asked: Asked) -> None:
    """The same of a service's network."""
    from fovea.pictures import gather

    settings, steps = ask_service(asked, "look", gather(asked.pictures))
    show(steps, asked.writer("look", settings), "looking", asked, _told)


def _told(found: Any) -> Sequence[str]:
    return (f"{brief(found.name, 60)}: {found.words}",)
