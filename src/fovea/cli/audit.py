"""fovea audit."""

from pathlib import Path

from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, finish, say


@command(
    "audit",
    arguments=("data",),
    options=("net", "boxes", "split", "limit", "out", "files", "json", "batch", "fit", "weights", "device"),
    usual={"out": Path("out/audit"), "fit": "squash"},
    help={
        "net": "A classifier: a name from 'fovea models', or a .safetensors file.",
        "boxes": "Use the data's boxes, where it has any: what lies outside them counts as background.",
        "out": "Folder for the page and results.json; an audit that was stopped goes on there.",
    },
    examples=(
        "fovea audit photos/ --net mine.safetensors",
        "fovea audit cub100 --split test --net efficientnet_lite0-cub100",
    ),
)  # fmt: skip
def audit(asked: Asked) -> None:
    """Find out what a classifier's answers rest on, over a whole data set: in words, and as a page.

    It finds shortcuts (a watermark, a corner), answers that rest on the background, classes that are easily confused,
    and for every class the patches that speak for it."""
    folder = asked.folder()
    network = asked.network()
    with bar("looking for pictures"):
        from fovea.data import open_loosely
        from fovea.evidence.audit import Audit
        from fovea.results import Writer

        data = open_loosely(asked.data, asked.split, network.labels).first(asked.limit)
    with bar("auditing", resumes=True) as advance:
        found = Audit(network.fitted(asked.fit), data, asked.boxes).run(folder, asked.batch, advance)
    writer = Writer(folder, "audit", found.settings, asked.files or False)
    with bar("drawing the page"), writer:
        writer.add(found.items, found.skipped)
    say.print(found.items[0].words)
    finish(writer, asked.json)
