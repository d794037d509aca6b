"""fovea localize: pictures, text and sounds; and why a network was wrong."""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from fovea import heatmaps, networks, patches
from fovea.basics import BadChoice
from fovea.cli.bulk import BULK, in_bulk, is_bulk
from fovea.cli.commands import Asked, command
from fovea.cli.common import Lines, bar, finish, refuse_full_size, say, show, warn
from fovea.cli.glossary import spelled
from fovea.cli.remote import ask_service

if TYPE_CHECKING:
    from rich.text import Text as RichText

    from fovea.networks import Network
    from fovea.patches import LocalizeOptions, Media, Medium
    from fovea.results import Results, Step

PICTURES, TEXTS, SOUNDS = "efficientnet_lite0", "anchornet_text-mr", "anchornet_sound"
CHOICES = ("count", "overlap", "share", "branch", "target", "method", "side", "evidence")
AROUND = 300  # characters shown on either side of the span of a long text


@command(
    "localize",
    arguments=("given?",),
    options=(
        "net", *CHOICES, "out", "files", "full_size", "json", "why", "data", "split", "class_", "limit", "batch", "fit",
        "all", "resolution", "device", "max_pixels", "weights", "untrained", "server", "token", *BULK,
    ),
    usual={"net": None, "out": "out/localize"},
    help={
        "net": "A name from 'fovea models', or a .safetensors file. If not given: "
        f"{PICTURES} for pictures, {TEXTS} for text; with --why, the anchornet trained on --data.",
        "count": "At most this many patches (K in the paper's LIP); with --why, how many are shown.",
        "target": "The class to find patches for, instead of the network's answer; with --why, the true class.",
        "method": "Heatmap method, for a network without branches; l2caf if not given, cam with --why.",
        "data": "With --why: labeled pictures, a folder or a name such as imagenette.",
        "class_": "With --why and --data: the class to explain.",
        "out": "Folder for the page (index.html) and results.json.",
    },
    examples=(
        "fovea localize bird.jpg --net anchornet-cub100",
        "fovea localize 'a film that is merely bland'",
        "fovea localize --why --data imagenette --split test --class church --net anchornet-imagenette",
    ),
)  # fmt: skip
def localize(asked: Asked) -> None:
    """Find the patches, words or moments that speak for the answer: a line each, and a page to open."""
    single = {name: asked.one(name) if name in ("target", "method") else getattr(asked, name) for name in CHOICES}
    options = patches.LocalizeOptions(**single)  # which refuses what is out of range before any work
    if is_bulk(asked):
        if asked.why or not asked.given:
            raise BadChoice("--parquet and --engine ray take pictures: name files, folders or addresses, without --why")
        network = asked.network(asked.one("net") or PICTURES)
        in_bulk(asked, "localize", network, **single, all=asked.all, resolution=asked.resolution)
        return
    asked.folder()
    if not asked.why and (asked.data or asked.split or asked.class_ or asked.limit):
        raise BadChoice("--data, --split, --class and --limit go with --why; give pictures to localize in as paths")
    media = patches.sort_out(asked.given or [])
    if asked.server is not None:
        _ask(asked, media, single)
        return
    if asked.why:
        _why(asked, media, options)
        return
    if not asked.given:
        raise BadChoice("nothing was given: name pictures, sounds or .txt files, or write a sentence in quotes")
    patches.refuse_unused(media.present or ["pictures"], single)
    loaded = _networks(asked, media.present)
    from fovea.pictures import gather
    from fovea.results import Step

    nets = {medium: network.name for medium, network in loaded.items()}
    seen = networks.input_of(loaded["pictures"]) if "pictures" in loaded else None
    notes = "; ".join(filter(None, (network.knows for network in loaded.values())))
    closely = heatmaps.Closer(asked.all, asked.resolution).asked
    about = {"net": nets, **single, **closely, "input": seen, **({"note": notes} if notes else {})}
    refuse_full_size(asked, media.pictures)
    writer = asked.writer("localize", about)
    given = (gather(media.pictures) if medium == "pictures" else getattr(media, medium) for medium in loaded)
    left = zip(loaded.items(), asked.left(writer, [*loaded.values()], *given), strict=True)
    steps = chain(*(_steps(medium, network, items, options, asked) for (medium, network), items in left))
    show(chain([Step([], media.missing, 0, 0)], steps), writer, "localizing", asked, _marked)


def _ask(asked: Asked, media: "Media", single: dict[str, Any]) -> None:
    """The same of a service's network."""
    from fovea.pictures import gather
    from fovea.results import Step

    if len(media.present) != 1 or media.sounds:
        raise BadChoice("--server takes pictures or texts, not both, and no sounds: name some of one kind")
    (medium,) = media.present
    settings, steps = ask_service(asked, "localize", media.texts or gather(media.pictures))
    told = {name: settings[name] for name in ("note",) if name in settings}
    about = {"net": {medium: settings.get("net")}, **single, "input": settings.get("input"), **told}
    writer = asked.writer("localize", about)
    show(chain([Step([], media.missing, 0, 0)], steps), writer, "localizing", asked, _marked)


def _networks(asked: Asked, media: "list[Medium]") -> "dict[Medium, Network]":
    """One for each medium that is there: the one asked for where it takes that medium, else the usual one."""
    usual = {"pictures": PICTURES, "texts": TEXTS, "sounds": SOUNDS}
    net = asked.one("net")
    name = net if net is not None or asked.weights is None or len(media) != 1 else usual[media[0]]
    if asked.weights is not None and name is None and media:
        raise BadChoice("--weights are for one network: name it with --net")
    given = asked.network(name) if name is not None and media else None
    if given is not None and patches.medium_of(given) not in media:
        raise BadChoice(f"{given.name} takes {patches.medium_of(given)}, and {' and '.join(media)} were given")
    return {
        medium: given if given is not None and patches.medium_of(given) == medium else asked.network(_usual(medium))
        for medium in media
    }


def _usual(medium: "Medium") -> str:
    if medium == "pictures":
        return PICTURES
    name, recipe = (TEXTS, "anchornet_text-mr") if medium == "texts" else (SOUNDS, "anchornet_sound-made")
    shipped = [one for one in sorted(networks.ours()) if one == name or (medium == "sounds" and one.startswith(name))]
    if not shipped:
        raise BadChoice(
            f"no weights for {medium} come with this fovea: train them (fovea train recipes/{recipe}.toml) and name "
            "the file, --net FILE.safetensors"
        )
    return shipped[0]


def _steps(
    medium: "Medium", network: "Network", given: list[Any], options: "LocalizeOptions", asked: Asked
) -> "Iterator[Step[Any]]":
    if medium == "texts":
        return patches.text_steps(network, given, options.target, options.branch)
    if medium == "sounds":
        return patches.sound_steps(network, given, 1 if options.count is None else options.count)
    closer = heatmaps.Closer(asked.all, asked.resolution)
    return patches.localize_steps(network, given, options, asked.batch, asked.max_pixels, closer)


def _marked(result: Any) -> "Sequence[str | RichText]":
    """A text is shown with its span marked."""
    if not isinstance(result, patches.LocalizedText):
        return ()
    return [result.marked(AROUND), *(f"  {line}" for line in (result.about(), result.ignored) if line)]


def _why(asked: Asked, media: "Media", options: "LocalizeOptions") -> None:
    """For a class of a data set; for pictures; or for pictures of a data set on which the branches disagree."""
    label = asked.one("class_")
    if media.texts or media.sounds:
        raise BadChoice("--why is about pictures; leave texts and sounds out")
    if media.pictures and label is not None:
        raise BadChoice("--class is for a data set as a whole; the true class of a picture is --target")
    if not media.pictures and not media.missing and asked.data is None:
        raise BadChoice("--why needs pictures, or --data: a data set, or with --class one class of it")
    unused = {"overlap", "share"} | ({"count"} if media.pictures else {"target"})
    unused |= set() if label is not None else {"branch", "side", "method"}
    for option in sorted(unused):
        if getattr(options, option) is not None:
            raise BadChoice(f"{spelled(option)} has no effect with --why; leave it out")
    network = asked.network(asked.one("net") or _trained_on(asked.data))
    data = None if asked.data is None else asked.dataset(network.labels)
    about = {"net": network.name, "data": asked.data, **{name: getattr(options, name) for name in CHOICES}}
    with asked.writer("why", about) as writer:
        writer.add((), media.missing)
        reports = _reports(asked, network, media, data, options)
        for line in Lines(asked.one_folder()).of(reports):
            say.print(line)
        writer.add(reports, reports.skipped)
    if not writer.rows and data is not None and not media.pictures:
        warn.print("nothing to show: the narrowest and the widest branch agree on every picture")
        raise typer.Exit(1)
    finish(writer, asked.json)


def _reports(asked: Asked, network: "Network", media: "Media", data: Any, options: "LocalizeOptions") -> "Results[Any]":
    from dataclasses import replace

    from fovea.patches import why
    from fovea.results import Results

    label = asked.one("class_")
    with bar("looking for reasons") as advance:
        if media.pictures:
            pictures = list(media.pictures)
            return why.for_pictures(network, pictures, options.target, data, batch=asked.batch, progress=advance)
        if data is None:  # none of the pictures is there
            return Results(())
        if label is not None:
            given = replace(options, method=options.method or "cam")
            most = options.count or 8
            report = why.for_class(network, data, label, most=most, options=given, batch=asked.batch, progress=advance)
            return Results((report,), report.skipped)
        return why.disagreements(network, data, most=options.count or 6, batch=asked.batch, progress=advance)


def _trained_on(data: str | None) -> str:
    """A network with branches that was trained on the data, where one comes with fovea."""
    wanted = f"anchornet-{Path((data or '').partition(':')[0]).name}"
    return wanted if wanted in networks.ours() else PICTURES
