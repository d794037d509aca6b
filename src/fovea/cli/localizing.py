"""fovea localize: pictures, text and sounds; and why a network was wrong."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fovea.basics.errors import BadChoice
from fovea.cli.common import Batch, Json, Limit, Split, Untrained, Weights, bar, load, say, warn, write

if TYPE_CHECKING:
    from fovea.networks.network import Network
    from fovea.patches.found import Found
    from fovea.patches.media import Media, Medium
    from fovea.patches.text import TextFound
    from fovea.patches.writing import Writer

app = typer.Typer()

PICTURES, TEXTS, SOUNDS = "efficientnet_lite0", "anchornet_text-mr", "anchornet_sound"
AROUND = 300  # characters shown on either side of the span of a long text


@app.command(
    epilog="Examples:  fovea localize bird.jpg --net anchornet-cub100  |  fovea localize 'a film that is merely bland'"
    "  |  fovea localize --why --data imagenette --split test --class church --net anchornet-imagenette"
)
def localize(
    given: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PICTURES_OR_TEXT…",
            help="Pictures, folders of them or 'globs'; .wav sounds; .txt files, a text a line; or texts themselves.",
        ),
    ] = None,
    net: Annotated[
        str | None,
        typer.Option(
            "--net",
            help="A name from 'fovea models', or a .safetensors file. If not given: "
            f"{PICTURES} for pictures, {TEXTS} for text; with --why, the anchornet trained on --data.",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(metavar="K", help="At most so many patches; with --why, so many are shown.")
    ] = None,
    overlap: Annotated[
        float | None, typer.Option(metavar="T", help="Patches overlap by an IoU below this; 0.5 if not given.")
    ] = None,
    share: Annotated[
        float | None, typer.Option(metavar="P", help="Among this share of the best cells; 0.05 if not given.")
    ] = None,
    branch: Annotated[
        int | None,
        typer.Option(metavar="SIDE", help="By AnchorNet's branch of this side: 63, 95, 111 pixels; 3, 5, 7 words."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="CLASS", help="For this class, not for the decided one; with --why, the true class."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(help="The map of a network without branches: l2caf if not given (cam with --why), gradcam, …"),
    ] = None,
    side: Annotated[
        int | None, typer.Option(metavar="N", help="Of the patches of a network without branches, in its own pixels.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for overlays, crops, values, texts.html, regions.json.")] = Path(
        "out/localize"
    ),
    json: Json = None,
    why: Annotated[
        bool, typer.Option("--why", help="What each branch saw in a picture; or, with --data, what speaks for a class.")
    ] = False,
    data: Annotated[str | None, typer.Option(help="With --why: labelled pictures, as imagenette or a folder.")] = None,
    split: Split = None,
    named: Annotated[str | None, typer.Option("--class", metavar="NAME", help="With --why and --data.")] = None,
    limit: Limit = None,
    batch: Batch = 16,
    weights: Weights = None,
    untrained: Untrained = False,
) -> None:
    """Find the patches, words or moments that speak for the answer: crops, an overlay, the marked text, and JSON."""
    from fovea.patches.localize import choice
    from fovea.patches.media import refuse_unused, sort_out

    options = {
        "count": count,
        "overlap": overlap,
        "share": share,
        "branch": branch,
        "target": target,
        "method": method,
        "side": side,
    }
    settings = choice(count, overlap, share)  # refuses what is out of range before any work
    if out.exists() and not out.is_dir():
        raise BadChoice(f"--out {out} is a file; name a folder")
    if not why and (data or split or named or limit):
        raise BadChoice("--data, --split, --class and --limit go with --why; give pictures to localise in as paths")
    media = sort_out(given or [])
    if why:
        _why(media, net, options, out, json, data, split, named, limit, batch, weights, untrained)
        return
    if not given:
        raise BadChoice("nothing was given: name pictures, sounds or .txt files, or write a sentence in quotes")
    refuse_unused(media.present or ["pictures"], options)
    networks = _networks(media.present, net, weights, untrained)
    from fovea.patches.writing import Writer

    about = {"net": {medium: one.name for medium, one in networks.items()}, **options}
    with Writer(out, about) as writer:
        writer.skip("given", media.missing)
        if media.pictures:
            _pictures(networks["pictures"], media.pictures, settings, options, batch, writer)
        if media.texts:
            _texts(networks["texts"], media.texts, branch, target, writer)
        if media.sounds:
            _sounds(networks["sounds"], media.sounds, count, writer)
    _report(writer, json, about)


def _networks(
    media: "Sequence[Medium]", net: str | None, weights: Path | None, untrained: bool
) -> "dict[Medium, Network]":
    """One for each medium that is there: the one asked for where it takes that medium, else the usual one."""
    from fovea.patches.media import medium_of

    usual = {"pictures": PICTURES, "texts": TEXTS, "sounds": SOUNDS}
    asked = net if net is not None or weights is None or len(media) != 1 else usual[media[0]]
    if weights is not None and asked is None and media:
        raise BadChoice("--weights are for one network: name it with --net")
    given = load(asked, weights, untrained) if asked is not None and media else None
    if given is not None and medium_of(given) not in media:
        raise BadChoice(f"{given.name} takes {medium_of(given)}, and {' and '.join(media)} were given")
    found: dict[Medium, Network] = {}
    for medium in media:
        found[medium] = given if given is not None and medium_of(given) == medium else _usual(medium, untrained)
    return found


def _usual(medium: "Medium", untrained: bool) -> "Network":
    from fovea.networks.loading import ours

    if medium == "pictures":
        return load(PICTURES, None, untrained)
    name, recipe = (TEXTS, "anchornet_text-mr") if medium == "texts" else (SOUNDS, "anchornet_sound-made")
    shipped = [one for one in sorted(ours()) if one == name or (medium == "sounds" and one.startswith(name))]
    if not shipped:
        raise BadChoice(
            f"no weights for {medium} come with this fovea: train them (fovea train recipes/{recipe}.toml) and name "
            "the file, --net FILE.safetensors"
        )
    return load(shipped[0], None, untrained)


def _pictures(
    network: "Network", given: Sequence[str], settings: Any, options: dict[str, Any], batch: int, writer: "Writer"
) -> None:
    from fovea.heatmaps.explain import find
    from fovea.patches.localize import localize_batches

    branch, target, side = options["branch"], options["target"], options["side"]
    method = None if options["method"] is None else find(options["method"]).name
    notes: dict[str, None] = {}
    with bar("localizing") as advance:
        for step in localize_batches(network, list(given), settings, branch, target, method, side, batch):
            for one in step.found:
                say.print(_line(one), markup=False)
                notes |= {one.note: None} if one.note else {}
            writer.add(step)
            advance(step.done, step.total)
    for note in notes:
        warn.print(f"note: {note}", markup=False)


def _line(found: "Found") -> str:
    number = f"{len(found.patches)} {'patch' if len(found.patches) == 1 else 'patches'}"
    return (
        f"{found.shown.name}: {found.label} {found.probability:.2f}, {number} of {found.side} x {found.side} "
        "of the network's pixels"
    )


def _texts(network: "Network", given: Sequence[str], branch: int | None, target: str | None, writer: "Writer") -> None:
    from fovea.patches.text import in_texts

    regions = in_texts(network, given, target, branch)
    writer.add_texts(regions)
    for one in regions:
        _show(one)


def _show(found: "TextFound") -> None:
    say.print(found.marked(AROUND))
    say.print(f"  {found.about()}", markup=False)
    if found.ignored:
        say.print(f"  {found.ignored}", markup=False)


def _sounds(network: "Network", given: Sequence[str], count: int | None, writer: "Writer") -> None:
    from fovea.patches.sound import in_sounds

    regions = in_sounds(network, given, 1 if count is None else count)
    writer.add_sounds(regions)
    for one in regions:
        spans = ", ".join(f"{span.start:.3f} to {span.stop:.3f} s" for span in one.spans)
        say.print(f"{one.name}: {one.label} {one.probability:.2f}, {spans}", markup=False)


def _report(writer: "Writer", json: Path | None, about: dict[str, Any]) -> None:
    for row in writer.skipped[:10]:
        warn.print(f"skipped: {row['reason']}", markup=False)
    if len(writer.skipped) > 10:
        warn.print(f"… and {len(writer.skipped) - 10} more, listed in regions.json")
    if json is not None:
        from fovea.measures.figures import Figures

        write(Figures("localize", about, writer.rows), json)
    kinds = {"picture": writer.pictures, "text": writer.texts, "sound": writer.sounds}
    done = ", ".join(f"{len(rows)} {kind}(s)" for kind, rows in kinds.items() if rows) or "nothing"
    where = writer.folder / "regions.json"
    say.print(f"localised in {done}, skipped {len(writer.skipped)}: {where}", markup=False)
    if not writer.rows:
        raise typer.Exit(1)


def _trained_on(data: str | None) -> str:
    """A network with branches that was trained on the data, where one comes with fovea."""
    from fovea.networks.loading import ours

    wanted = f"anchornet-{Path((data or '').partition(':')[0]).name}"
    return wanted if wanted in ours() else PICTURES


def _why(
    media: "Media",
    net: str | None,
    options: dict[str, Any],
    out: Path,
    json: Path | None,
    data: str | None,
    split: str | None,
    named: str | None,
    limit: int | None,
    batch: int,
    weights: Path | None,
    untrained: bool,
) -> None:
    """For a class of a data set; for pictures; or for pictures of a data set on which the branches disagree."""
    from fovea.data import open_data
    from fovea.measures.figures import Figures
    from fovea.patches import why
    from fovea.patches.reasons import ClassReport, PictureReport, save_all

    if media.texts or media.sounds:
        raise BadChoice("--why is about pictures; leave texts and sounds out")
    if media.pictures and named is not None:
        raise BadChoice("--class is for a data set as a whole; the true class of a picture is --target")
    if not media.pictures and not media.missing and data is None:
        raise BadChoice("--why asks about pictures, or about --data (with --class, or for those it gets wrong)")
    unused = {"overlap", "share"}
    unused |= {"count"} if media.pictures else {"target"}
    unused |= set() if named is not None else {"branch", "side", "method"}
    for option in sorted(unused):
        if options[option] is not None:
            raise BadChoice(f"--{option} has no say in --why; leave it out")
    network = load(net or _trained_on(data), weights, untrained)
    opened = None if data is None else open_data(data, split, network.labels).first(limit)
    reports: list[ClassReport | PictureReport] = []
    skipped = list(media.missing)
    with bar("looking for reasons") as advance:
        if media.pictures:
            found, bad = why.for_pictures(network, media.pictures, options["target"], opened, batch, advance)
            reports += found
            skipped += bad
        elif named is not None and opened is not None:
            most, method = options["count"] or 8, options["method"] or "cam"
            side, branch = options["side"], options["branch"]
            about = why.for_class(network, opened, named, most, method, side, branch, batch, advance)
            reports.append(about)
            skipped += about.skipped
        elif opened is not None:
            found, bad = why.disagreements(network, opened, options["count"] or 6, batch, advance)
            reports += found
            skipped += bad
    for one in save_all(reports, out):
        say.print(str(one), markup=False)
    for _, reason in skipped[:10]:
        warn.print(f"skipped: {reason}", markup=False)
    if len(skipped) > 10:
        warn.print(f"… and {len(skipped) - 10} more")
    if json is not None:
        write(Figures("why", {"net": network.name, "data": data, **options}, [one.row() for one in reports]), json)
    if not reports:
        searched = opened is not None and not media.pictures
        warn.print("the narrowest and the widest branch never disagreed" if searched else "nothing was done")
        raise typer.Exit(1)
