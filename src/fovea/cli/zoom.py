"""fovea zoom."""

from fovea.basics import BadChoice
from fovea.cli.commands import Asked, command
from fovea.cli.common import say, show, warn

USUAL = "tnet-imagenette"


@command(
    "zoom",
    arguments=("pictures",),
    options=("net", "glimpses", "out", "files", "json", "weights", "untrained", "device", "max_pixels"),
    usual={"net": (USUAL,), "out": "out/zoom"},
    help={
        "net": "A TNet that comes with fovea ('fovea models tnet'), or the file of a TNet, a Saccader or a "
        "DRAM that you trained."
    },
    epilog="Examples:  fovea zoom photo.jpg --glimpses 3  |  fovea zoom canvases/ --net tnet-digits --out zooms/",
)
def zoom(asked: Asked) -> None:
    """Classify pictures from a few regions read closely: a line per picture, and a page of the descents."""
    asked.folder()
    from fovea.glimpses import Route, zoom_steps
    from fovea.networks import is_untrained, ours
    from fovea.pictures import gather

    name, glimpses = asked.one("net"), asked.one("glimpses")
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
    writer = asked.writer("zoom", network.settings(glimpses=glimpses))
    (pictures,) = asked.left(writer, [network], gather(asked.pictures))
    steps = zoom_steps(network, pictures, Route(glimpses), max_pixels=asked.max_pixels)
    show(steps, writer, "zooming", asked)
