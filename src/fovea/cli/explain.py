"""fovea explain, fovea sanity."""

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fovea.basics import BadChoice, BadPicture
from fovea.cli.bulk import BULK, in_bulk, is_bulk
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, refuse_full_size, say, show, warn, write
from fovea.cli.glossary import drawable
from fovea.cli.remote import ask_service
from fovea.heatmaps import DEFAULT, in_words

if TYPE_CHECKING:
    from fovea.networks import Network
    from fovea.results import Step, Writer

OUT = "Folder for the page (index.html) and results.json."
SELF_ATTENTION = "self-attention"  # of two-stream networks alone


@command(
    "explain",
    arguments=("pictures",),
    options=(
        "net", "method", "target", "layer", "fit", "frames", "every", "truth", "batch", "max_pixels", "weights",
        "untrained", "device", "out", "files", "full_size", "all", "resolution", "server", "token", *BULK,
    ),
    usual={"out": Path("out/explain")},
    help={
        "pictures": "Pictures and clips: files, folders (searched through), or patterns in quotes, as 'photos/*.jpg'.",
        "method": f"How heatmaps are computed: {in_words()}. 'fovea methods' says what each does. Repeat, or separate "
        f"by commas. Default: {DEFAULT}. A two-stream network takes gradcam (its default), l2caf or {SELF_ATTENTION}.",
        "target": "What to explain: a class name or index, top1 (default for pictures), top5, contrast (the best class "
        "against the second), 'A vs B', output (the whole output, no class; default for clips), pair (two pictures at "
        "a time). Repeat for more.",
        "batch": "Pictures per batch; 64 on a GPU unless given.",
        "out": OUT,
    },
    examples=(
        "fovea explain cat.jpg",
        "fovea explain photos/ --net mine.safetensors",
        "fovea explain cat.jpg --method gradcam,l2caf --target tabby --target lynx",
        "fovea explain clip.mp4 --frames 3",
    ),
)  # fmt: skip
def explain(asked: Asked) -> None:
    """Show where a network looks: heatmaps of pictures and clips, as a page to open in a browser.

    A line per picture says what the network takes it for, with what probability, and where (the box of the heatmap).
    A clip gives a strip of frames and an annotated mp4; a two-stream network gives a strip of its steps."""
    if asked.frames is not None and asked.every is not None:
        raise BadChoice("--frames spreads a number of frames over a clip, --every takes every n-th: give one of them")
    if is_bulk(asked):
        words = {name: asked.values[name] for name in ("method", "target", "layer", "all", "resolution")}
        words["method"] = words["method"] if "method" in asked.typed else DEFAULT
        in_bulk(asked, "explain", asked.network(), **words)
        return
    stills, clips = apart(asked.pictures)
    if (asked.frames or asked.every) and not clips:
        raise BadChoice(f"--{'frames' if asked.frames else 'every'} is for clips, and no clip was given: leave it out")
    asked.folder()
    if asked.server is not None:
        _ask(asked, stills, clips)
        return
    network = asked.network()
    if network.can("streams"):
        _look_longer(asked, network, stills, clips)
        return
    if asked.truth is not None:
        raise BadChoice(
            f"--truth marks steps of two-stream networks right or wrong; {asked.one('net')} has no such steps"
        )
    _explain(asked, network, stills, clips)


def _explain(asked: Asked, network: "Network", stills: list[str], clips: list[Path]) -> None:
    from fovea.heatmaps.methods import chosen
    from fovea.jobs import Taking, task
    from fovea.pictures import gather
    from fovea.results import Step
    from fovea.video.watch import Watching, takes_clips, watch_batches

    methods = chosen(list(asked.method) if "method" in asked.typed else [DEFAULT])
    target: Any = None if not asked.target else asked.target[0] if len(asked.target) == 1 else list(asked.target)
    net, layer = asked.one("net"), asked.layer
    taking = Taking(asked.batch if "batch" in asked.typed else None, asked.max_pixels, net)
    closer = {"all": asked.all, "resolution": asked.resolution}
    doing = task.get("explain")(network, taking, methods, asked.target, layer, **closer)

    def steps() -> "Sequence[Step[Any]] | Any":
        if takes_clips(network) and stills:
            yield Step([], [(name, f"{name}: {net} takes clips, not pictures") for name in stills], 0, len(clips))
        elif pictures:
            yield from doing.steps(pictures)
        if moving:
            how = Watching(asked.frames, asked.every, layer=layer, batch=asked.batch, max_pixels=asked.max_pixels)
            for step in watch_batches(network, moving, methods, target, how):
                for note in (note for result in step.results for note in result.to_dict()["notes"]):
                    warn.print(f"note: {note}")
                yield step

    writer = asked.writer("explain", doing.settings)
    refuse_full_size(asked, stills)
    pictures, moving = asked.left(writer, [network], gather(stills), clips, by=2 if target == "pair" else 1)
    _show(steps(), writer, asked)


def _ask(asked: Asked, stills: list[str], clips: list[Path]) -> None:
    """The same of a service's network."""
    from fovea.pictures import gather

    if clips:
        raise BadChoice(f"--server takes pictures, and {clips[0]} is a clip: explain it without --server")
    settings, steps = ask_service(asked, "explain", gather(stills))
    _show(steps, asked.writer("explain", settings), asked)


def _show(steps: "Iterable[Step[Any]]", writer: "Writer", asked: Asked) -> None:
    show(steps, writer, "explaining", asked)
    if all(row["diagnosis"] for result in writer.rows for row in result["maps"]):
        raise typer.Exit(1)  # nothing to see anywhere


def apart(given: Sequence[str]) -> tuple[list[str], list[Path]]:
    """What pictures, and which clips, were named: files, folders and globs may hold both."""
    from fovea.pictures import expand, expand_clips

    pictures: list[str] = []
    clips: list[Path] = []
    for name in given:
        moving = expand_clips(name)
        clips += moving
        try:
            pictures += [str(path) for path in expand(name) if path not in moving] if moving else [name]
        except BadPicture:  # clips alone
            continue
    return pictures, clips


def _look_longer(asked: Asked, network: "Network", pictures: list[str], clips: list[Path]) -> None:
    """The same of a two-stream network: one strip per picture."""
    from fovea.pictures import gather
    from fovea.results import Step
    from fovea.streams import look_batches

    if asked.layer is not None:
        raise BadChoice("--layer: a two-stream network looks at its own two maps; leave it out")
    if len(asked.method or ()) > 1 or len(asked.target or ()) > 1:
        raise BadChoice("a strip shows one method and one class: name at most one --method and one --target")
    how, target = asked.one("method") or "gradcam", asked.one("target")
    moving = [(str(clip), f"{clip} is a clip, and {asked.one('net')} takes pictures") for clip in clips]
    writer = asked.writer("look_longer", network.settings(method=how, target=target))
    (left,) = asked.left(writer, [network], gather(pictures))
    looks = look_batches(network, left, how, target, asked.truth, asked.batch, asked.max_pixels)
    last = Step[Any]([], moving, len(left), len(left))
    show(chain(looks if left else (), [last]), writer, "looking", asked)


@command(
    "sanity",
    arguments=("pictures",),
    options=("net", "method", "fit", "weights", "device", "out", "json"),
    usual={"method": (DEFAULT,), "out": Path("out/sanity.png")},
    help={"method": "The method to check.", "out": "Where the picture goes."},
    examples=("fovea sanity cat.jpg --method gradcam",),
)
def sanity(asked: Asked) -> None:
    """Check a heatmap method: do its maps change, as they must, when the network's weights are made random?

    The weights are replaced layer by layer, from the last one on. Writes a picture of the maps, and prints how alike
    they stay: the less, the better."""
    drawable("--out", asked.out)
    from fovea.heatmaps.sanity import sanity as check
    from fovea.measures.figures import Figures
    from fovea.networks import input_of

    network = asked.network()
    with bar("explaining copies with random weights") as advance:
        result = check(network, asked.pictures, asked.one("method"), progress=advance)
    result.save(asked.out)
    settings = {"net": asked.one("net"), "method": asked.one("method"), "input": input_of(network)}
    write(Figures("sanity", settings, result.rows, result.true.skipped), asked.json)
    say.print(str(result))
    say.print(str(asked.out))
