"""fovea measure patches, patch-sensitivity, patch-attack, patch-curves: figures for a localiser and what reads it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fovea.basics.errors import BadChoice
from fovea.cli.common import Batch, Data, Json, Limit, Seed, Split, bar, load, part_of, report, say, write

if TYPE_CHECKING:
    from fovea.data import DataSet
    from fovea.measures.figures import Figures
    from fovea.networks.network import Network

app = typer.Typer(no_args_is_help=True)

Localizer = Annotated[str, typer.Option("--localizer", metavar="NET", help="An AnchorNet, as anchornet-imagenette.")]
Net = Annotated[str, typer.Option("--net", help="The classifier of patches: a name, or a .safetensors file.")]
Full = Annotated[
    str, typer.Option("--full", metavar="NET", help="The classifier of whole pictures it is compared with.")
]
Picture = Annotated[Path | None, typer.Option("--out", metavar="FILE", help="Draw the figures, as a picture.")]
Count = Annotated[
    int | None, typer.Option(min=1, help="Patches of a picture at most (K); as many as fill it if not given.")
]
Overlap = Annotated[float | None, typer.Option(help="IoU that patches stay below (T); 0.5 if not given.")]
Share = Annotated[float | None, typer.Option(help="Share of the cells that are looked at (P); 0.05 if not given.")]


@app.command("patches")
def measure_patches(
    data: Data,
    localizer: Localizer,
    net: Net,
    full: Full,
    json: Json = None,
    out: Picture = None,
    split: Split = None,
    limit: Limit = None,
    count: Count = None,
    overlap: Overlap = None,
    share: Share = None,
    batch: Batch = 16,
    seed: Seed = 0,
) -> None:
    """Patches against whole pictures: accuracy, cost, where patches lie, patches against rescaled pictures."""
    from fovea.measures import patches, plots
    from fovea.patches.localize import choice

    settings = choice(count, overlap, share)
    finder, judge, whole = _nets(localizer, net, full)
    opened = _opened(data, split, limit, finder)
    with bar(f"localising and classifying {opened.name}") as advance:
        figures = patches.measure(finder, judge, whole, opened, settings, batch, seed, advance)
    _show_kinds(figures)
    for key in ("lip", "macs"):
        say.print(f"{key}: {figures.settings[key]}", markup=False)
    write(part_of(figures, data, split, limit), json, seed)
    if out:
        plots.save(patches.draw(figures), out)
        say.print(str(out), markup=False)


@app.command("patch-sensitivity")
def measure_sensitivity(
    data: Data,
    localizer: Localizer,
    net: Net,
    shares: Annotated[str, typer.Option(help="Of the cells looked at (P), separated by commas.")] = "0.01,0.05,0.1,0.3",
    overlaps: Annotated[
        str, typer.Option(help="IoUs that patches stay below (T), separated by commas.")
    ] = "0.1,0.3,0.5,0.7,0.9",
    forced: Annotated[
        bool, typer.Option("--forced", help="Every picture by every branch, not by the one that localises it.")
    ] = False,
    json: Json = None,
    out: Picture = None,
    split: Split = None,
    limit: Limit = None,
    batch: Batch = 16,
) -> None:
    """How accuracy and cost hang on LIP's settings, for each branch."""
    from fovea.measures import patch_sensitivity, plots
    from fovea.measures.figures import Figures

    wanted = _numbers(shares, "--shares"), _numbers(overlaps, "--overlaps")
    finder, judge = _nets(localizer, net)
    opened = _opened(data, split, limit, finder)
    with bar(f"localising and classifying {opened.name}") as advance:
        figures = patch_sensitivity.measure(finder, judge, opened, *wanted, forced, batch, advance)
    shown: dict[tuple[str, float], dict[str, str | int | float]] = {}
    for row in figures.rows:
        key = row["scale"], row["share"]
        line = shown.setdefault(key, {"scale": row["scale"], "images": row["images"], "P": f"{row['share']:g}"})
        line[f"T {row['overlap']:g}"] = "" if row["top1"] is None else f"{row['top1']:.3f} at {row['macs_ratio']:.2f}×"
    title = f"top-1 and multiplications (× a whole picture's) of {judge.name} on patches of {opened.name}"
    report(Figures(figures.what, {}, list(shown.values()), figures.skipped), title, None)
    write(part_of(figures, data, split, limit), json)
    if out:
        plots.save(patch_sensitivity.draw(figures), out)
        say.print(str(out), markup=False)


@app.command("patch-attack")
def measure_attack(
    data: Data,
    localizer: Localizer,
    net: Net,
    full: Full,
    epsilons: Annotated[str, typer.Option(help="In 8-bit units, separated by commas.")] = "0.2,2",
    json: Json = None,
    split: Split = None,
    limit: Limit = None,
    count: Count = None,
    overlap: Overlap = None,
    share: Share = None,
    batch: Batch = 16,
) -> None:
    """FGSM on the localiser: does the classifier of its patches stay right?"""
    from fovea.measures import patch_attack
    from fovea.measures.figures import Figures
    from fovea.patches.localize import choice

    settings, wanted = choice(count, overlap, share), _numbers(epsilons, "--epsilons")
    finder, judge, whole = _nets(localizer, net, full)
    opened = _opened(data, split, limit, finder)
    with bar(f"attacking {opened.name}") as advance:
        figures = patch_attack.measure(finder, judge, whole, opened, wanted, settings, batch, advance)
    rows = [{key: row[key] for key in row if key not in ("localizer", "data")} for row in figures.rows]
    report(Figures(figures.what, {}, rows, figures.skipped), f"FGSM on the localiser, {opened.name}", None)
    write(part_of(figures, data, split, limit), json)


@app.command("patch-curves")
def measure_curves(
    data: Data,
    localizer: Localizer,
    full: Full,
    numbers: Annotated[
        str, typer.Option(help="Of patches kept or masked, separated by commas; 1,2,3,5,8,12 if not given.")
    ] = "1,2,3,5,8,12",
    json: Json = None,
    out: Picture = None,
    split: Split = None,
    limit: Limit = None,
    batch: Batch = 16,
    seed: Seed = 0,
    rival: Annotated[
        str | None, typer.Option(metavar="NET", help="A network that reads glimpses, as Saccader, to compare with.")
    ] = None,
) -> None:
    """Accuracy when only the best patches are shown, and when they are masked, against l2caf and random patches."""
    from fovea.measures import patch_curves, plots

    wanted = [round(one) for one in _numbers(numbers, "--numbers", whole=True)]
    finder, whole = _nets(localizer, full)
    other = None if rival is None else _nets(rival)[0]
    opened = _opened(data, split, limit, finder)
    with bar(f"following the answers in {opened.name}") as advance:
        figures = patch_curves.measure(finder, whole, opened, wanted, batch, seed, advance, other)
    report(patch_curves.summary(figures), f"mean accuracy over shared areas, {whole.name} on {opened.name}", None)
    say.print("good patches: coverage high, masking low; random is the control", markup=False)
    say.print(f"mean accuracy: {figures.settings['mean accuracy']}", markup=False)
    write(part_of(figures, data, split, limit), json, seed)
    if out:
        plots.save(patch_curves.draw(figures), out)
        say.print(str(out), markup=False)


def _nets(*names: str) -> "list[Network]":
    return [load(name, None, False) for name in names]


def _opened(data: str, split: str | None, limit: int | None, localizer: "Network") -> "DataSet":
    from fovea.data import open_data
    from fovea.measures.patch_parts import demand_anchored

    demand_anchored(localizer)  # before data is opened, which may take long
    return open_data(data, split, localizer.labels).first(limit)


def _numbers(text: str, option: str, whole: bool = False) -> list[float]:
    try:
        return [(int if whole else float)(one) for one in text.split(",") if one.strip()]
    except ValueError:
        kind = "whole numbers" if whole else "numbers"
        raise BadChoice(f"{option} takes {kind} separated by commas; got {text!r}") from None


def _show_kinds(found: "Figures") -> None:
    """A table for each kind of rows, without what is the same in all."""
    from fovea.measures.figures import Figures

    settings = found.settings
    titles = {
        "patches": f"patches by {settings['localizer']} against whole pictures of {settings['data']}",
        "localizer": "what the localiser says itself, and where its best patches lie",
        "rescaled": "top-1 of the one best patch, and of the picture rescaled to its size",
    }
    for kind, title in titles.items():
        own = [row for row in found.rows if row["kind"] == kind]
        kept = [key for key in own[0] if key not in ("kind", "localizer", "data")]
        rows = [{key: row.get(key) for key in kept if any(one.get(key) is not None for one in own)} for row in own]
        report(Figures(kind, {}, rows, found.skipped if kind == "patches" else ()), title, None)
