"""fovea zoom."""

from dataclasses import asdict

from fovea.basics import BadChoice
from fovea.cli.bulk import BULK, in_bulk, is_bulk
from fovea.cli.commands import Asked, command
from fovea.cli.common import say, show, warn
from fovea.cli.remote import ask_service

USUAL = "tnet-imagenet"
ROUTE = ("until", "order", "levels", "budget_ms", "budget_macs")


@command(
    "zoom",
    arguments=("pictures",),
    options=(
        "net", "glimpses", *ROUTE, "out", "files", "json", "weights", "untrained", "device", "max_pixels", "server",
        "token", *BULK,
    ),
    usual={"net": (USUAL,), "out": "out/zoom"},
    help={
        "pictures": "Picture files, folders (searched through), or patterns in quotes, as 'photos/*.jpg'. Tiled files "
        "of any size are read window by window, never whole.",
        "net": "A TNet that comes with fovea ('fovea models tnet'), or the file of a TNet, a Saccader or a "
        "DRAM that you trained.",
        "glimpses": "Regions to read of each picture; the network's usual number if not given, with --until at most "
        "that, with a budget as many as it allows.",
        "max_pixels": "Refuse pictures with more pixels than this, where they must be decoded whole.",
    },
    examples=(
        "fovea zoom photo.jpg --glimpses 3",
        "fovea zoom slide.tif --budget-ms 300 --levels 6",
        "fovea zoom canvases/ --net tnet-digits --until 0.95",
    ),
)  # fmt: skip
def zoom(asked: Asked) -> None:
    """Classify pictures by reading only a few regions closely: a line each, and a page of what was read.

    Each region is chosen by what was read before it. Tiled files too large to load are never loaded whole."""
    bulk = is_bulk(asked)
    if not bulk:
        asked.folder()
    from fovea.glimpses import Route, demand_route, zoom_steps
    from fovea.glimpses import asked as settings_of
    from fovea.networks import is_untrained, ours
    from fovea.pictures import gather

    name = asked.one("net")
    asked_for = asked.one("glimpses"), asked.one("until"), asked.one("order")
    route = Route(*asked_for, asked.levels, asked.budget_ms, asked.budget_macs)
    demand_route(route)
    if asked.server is not None:
        settings, steps = ask_service(asked, "zoom", gather(asked.pictures))
        if "net" not in asked.typed:
            say.print(f"by {settings.get('net')}")
        show(steps, asked.writer("zoom", settings), "zooming", asked)
        return
    if "net" not in asked.typed and USUAL not in ours():
        raise BadChoice(
            f"no TNet for photographs comes with this fovea: train one (fovea train recipes/{USUAL}.toml) and name the "
            "file, --net FILE.safetensors"
        )
    network = asked.network()
    if "net" not in asked.typed:
        say.print(f"by {name}")
    if asked.weights is None and not asked.untrained and is_untrained(name):
        warn.print(f"{name} comes untrained: its answers mean nothing before 'fovea train'")
    if bulk:
        in_bulk(asked, "zoom", network, **asdict(route))
        return
    writer = asked.writer("zoom", network.settings(**settings_of(route)))
    (pictures,) = asked.left(writer, [network], gather(asked.pictures))
    show(zoom_steps(network, pictures, route, max_pixels=asked.max_pixels), writer, "zooming", asked)
