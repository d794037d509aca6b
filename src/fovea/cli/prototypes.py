"""fovea prototypes."""

from fovea.basics import BadChoice, shortened
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, finish, say, say_page
from fovea.cli.refusals import demand_classes

USUAL = "protopnet-cub100"


@command(
    "prototypes",
    arguments=("pictures?",),
    options=("net", "data", "out", "files", "json", "class_", "nearest", "top", "batch", "fit", "device", "max_pixels"),
    usual={"net": (USUAL,), "out": "out/prototypes"},
    help={
        "pictures": "Pictures to compare with the prototypes; without any, the prototypes themselves are shown.",
        "net": "A ProtoPNet that comes with fovea, or its .safetensors file.",
        "data": "What it was trained on, as cub100:split=train; taken from its card if not given.",
        "class_": "Show all prototypes of this class. Repeat for more. If not given: some of 20 classes.",
    },
    examples=(
        "fovea prototypes",
        "fovea prototypes --class 'Painted Bunting'",
        "fovea prototypes bird.jpg",
    ),
)
def prototypes(asked: Asked) -> None:
    """Show which parts of training pictures a ProtoPNet goes by, or which of them a picture resembles.

    A ProtoPNet is a classifier that compares parts of a picture with parts of training pictures, its prototypes. Writes
    a page, contact sheets and JSON."""
    asked.folder()
    if asked.pictures and asked.class_:
        raise BadChoice("--class shows one class's prototypes, and pictures are compared with all: give one of the two")
    demand_classes(asked.values, "class_")
    from fovea.data import open_data
    from fovea.networks import input_of
    from fovea.prototypes import likeness, page, ranking

    network = asked.network()
    where = asked.data or _trained_on(asked.one("net"))
    data = open_data(where)
    shown = network if asked.pictures else network.fitted("crop")  # prototypes are placed as they were trained
    writer = asked.writer("prototypes", {"net": network.name, "data": shortened(where), "input": input_of(shown)})
    if asked.pictures:
        with bar("comparing") as advance:
            limits = {"count": asked.top, "batch": asked.batch, "max_pixels": asked.max_pixels}
            answers = likeness.looks_like(network, list(asked.pictures), data, **limits, progress=advance)
        for answer in answers:
            say.print(f"{answer.name}: {answer.line()}")
        with writer:
            writer.add(answers, answers.skipped)
        written = page.write_answers(answers, writer.folder, writer.others)
    else:
        numbers = likeness.choose(network, asked.class_ or ())
        words = f"looking for parts of {len(data):,} pictures of {data.name} like {len(numbers)} prototypes"
        with bar(words, "--nearest 0 shows the prototypes alone") as advance:
            limits = {"count": asked.nearest, "batch": asked.batch, "kept": ranking.FOLDER}
            found = likeness.nearest(network, data, prototypes=numbers, **limits, progress=advance)
        with writer:
            writer.add(found, found.skipped)
        written = page.write_prototypes(found, writer.folder, writer.others)
    finish(writer, asked.json)
    say_page(written)


def _trained_on(net: str) -> str:
    from fovea.networks import ours

    if net not in ours():
        raise BadChoice(f"it is not known what {net} was trained on: name the data, as --data cub100:split=train")
    return str(ours()[net]["trained_on"])
