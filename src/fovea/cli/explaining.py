"""fovea explain, fovea sanity."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.basics.errors import BadChoice
from fovea.cli.common import Json, Net, Untrained, Weights, bar, load, say, warn, write
from fovea.cli.watching import apart, watch_clips

if TYPE_CHECKING:
    from fovea.heatmaps.writing import Writer
    from fovea.networks.network import Network
    from fovea.streams.writing import Writer as LookedWriter

app = typer.Typer()


@app.command(
    epilog="Examples:  fovea explain cat.jpg  |  fovea explain photos/ --method gradcam --target top5 --out maps/  |  "
    "fovea explain clip.mp4 --frames 3"
)
def explain(
    pictures: Annotated[
        list[str], typer.Argument(help="Pictures and clips: files, folders (searched through), 'globs'.")
    ],
    net: Net = "efficientnet_lite0",
    method: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="l2caf (default), cam, gradcam, gradcam-abs, l2caf-sum, l2caf-signed, l2caf-oblivious. "
            "Repeat, or separate by commas. Of a two-stream network one: gradcam (default), l2caf or self-attention.",
        ),
    ] = None,
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CLASS",
            help="A class name or index, top1 (default of pictures), top5, output (no class; default of clips), "
            "pair (two by two). Repeat for several.",
        ),
    ] = None,
    layer: Annotated[str | None, typer.Option(help="Where to look, e.g. layer4; found if not given.")] = None,
    out: Annotated[Path, typer.Option(help="Folder for overlays, .npy values and manifest.json.")] = Path(
        "out/explain"
    ),
    weights: Weights = None,
    untrained: Untrained = False,
    squash: Annotated[
        bool | None,
        typer.Option(
            "--squash/--crop",
            show_default=False,
            help="Squash the whole picture in (default of clips), or keep the network's own crop (of pictures).",
        ),
    ] = None,
    frames: Annotated[
        int | None, typer.Option(min=1, help="Of a clip: explain so many frames, evenly spread; 3 if not given.")
    ] = None,
    every: Annotated[int | None, typer.Option(min=1, help="Of a clip: explain every k-th frame instead.")] = None,
    truth: Annotated[
        str | None,
        typer.Option(
            metavar="CLASS", help="What the pictures are: a two-stream network's strips tell right from wrong."
        ),
    ] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pictures at a time.")] = 16,
    max_pixels: Annotated[int, typer.Option(min=1, help="Refuse larger pictures before decoding them.")] = 200_000_000,
) -> None:
    """Show where a network looks: an overlay a map, raw values and a manifest; of a clip a strip of frames and an
    annotated mp4; of a two-stream network a strip, too."""
    from fovea.heatmaps.explain import explain_batches, find
    from fovea.heatmaps.writing import Writer
    from fovea.models.twostream import TwoStream
    from fovea.streams.look import METHODS
    from fovea.video.watch import takes_clips

    if frames is not None and every is not None:
        raise BadChoice("--frames spreads so many frames over a clip, --every takes every k-th: give one of them")
    stills, clips = apart(pictures)
    if (frames or every) and not clips:
        raise BadChoice(f"--{'frames' if frames else 'every'} is of clips, and none was given")
    names = [name.strip() for names in method or [] for name in names.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            find(name)  # a wrong one is told before the weights are read
    network = load(net, weights, untrained)
    if out.exists() and not out.is_dir():
        raise BadChoice(f"--out {out} is a file; name a folder")
    if isinstance(network.module, TwoStream) and network.module.local is not None:
        if layer is not None or squash is not None:
            option = "--layer" if squash is None else "--squash" if squash else "--crop"
            raise BadChoice(
                f"{option}: a two-stream network looks at its own two maps, of its own two windows; leave it out"
            )
        for clip in clips:
            warn.print(f"skipped: {clip} is a clip, and {net} takes pictures", markup=False)
        if len(names) > 1 or len(target or ()) > 1:
            raise BadChoice("a strip is of one method and one class: name one --method and one --target, or none")
        how, of = names[0] if names else "gradcam", target[0] if target else None
        _look_longer(network, stills, how, of, truth, out, batch, max_pixels)
        return
    if truth is not None:
        raise BadChoice(f"--truth is of two-stream networks, whose steps are right or wrong; {net} is none")
    found = [find(name) for name in (names if method else ["l2caf"])]
    aim: Any = None if not target else target[0] if len(target) == 1 else target
    settings = {"net": net, "layer": layer, "methods": [one.name for one in found], "target": target}
    with Writer(out, settings) as writer:
        if takes_clips(network):
            writer.skipped += [(one, f"{one}: {net} takes clips, not pictures") for one in stills]
        elif stills:
            own = network.squashed() if squash else network
            with bar("explaining") as advance:
                for step in explain_batches(own, stills, found, aim, layer, batch, max_pixels=max_pixels):
                    writer.add(step)
                    advance(step.done, step.total)
        own = network if squash is False else network.squashed()
        watch_clips(own, clips, found, aim, layer, frames, every, batch, max_pixels, writer)
    _report(writer, "picture(s) and clip(s)" if stills and clips else "clip(s)" if clips else "picture(s)")


def _look_longer(
    network: "Network",
    pictures: list[str],
    method: str,
    target: str | None,
    truth: str | None,
    out: Path,
    batch: int,
    max_pixels: int,
) -> None:
    """The same of a two-stream network: a strip a picture."""
    from fovea.streams.look import look_batches
    from fovea.streams.writing import Writer

    settings = {"net": network.name, "method": method, "target": target}
    with Writer(out, settings) as writer, bar("looking") as advance:
        for part in look_batches(network, pictures, method, target, truth, batch, max_pixels):
            writer.add(part.looks, part.skipped)
            for one in part.looks:
                say.print(f"{one.name}: {one.line()}", markup=False)
            advance(part.done, part.total)
    _report(writer)


def _report(writer: "Writer | LookedWriter", what: str = "picture(s)") -> None:
    for _, reason in writer.skipped[:10]:
        warn.print(f"skipped: {reason}", markup=False)
    if len(writer.skipped) > 10:
        warn.print(f"… and {len(writer.skipped) - 10} more, listed in the manifest")
    for reason, count in writer.blank.most_common(5):
        warn.print(f"blank: {count} map(s): {reason}", markup=False)
    blanks = f", {writer.blank.total()} map(s) blank" if writer.blank else ""
    where = writer.folder / "manifest.json"
    say.print(f"explained {writer.explained} {what}, skipped {len(writer.skipped)}{blanks}: {where}", markup=False)
    if not writer.explained:
        raise typer.Exit(1)


@app.command()
def sanity(
    pictures: Annotated[list[str], typer.Argument(help="Files, folders or globs.")],
    net: Net = "efficientnet_lite0",
    method: Annotated[str, typer.Option(help="The method to check.")] = "l2caf",
    out: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("out/sanity.png"),
    json: Json = None,
    weights: Weights = None,
) -> None:
    """Randomise the network's weights, layer by layer: do its maps change, as they must?"""
    from fovea.heatmaps.sanity import sanity as check
    from fovea.measures.figures import Figures

    network = load(net, weights, False)
    with say.status("explaining copies with random weights"):
        found = check(network, pictures, method)
    out.parent.mkdir(parents=True, exist_ok=True)
    found.save(out)
    write(Figures("sanity", {"net": net, "method": method}, found.rows), json)
    say.print(str(found), markup=False)
    say.print(str(out), markup=False)
