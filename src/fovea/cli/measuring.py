"""fovea measure WHAT: figures for a network on data."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fovea.cli.common import (
    Batch,
    Data,
    Json,
    Limit,
    Net,
    Seed,
    Split,
    Untrained,
    Weights,
    bar,
    is_shipped,
    listed,
    load,
    part_of,
    report,
    say,
    warn,
    write,
)
from fovea.cli.glossary import OPTIONS

if TYPE_CHECKING:
    from fovea.data import DataSet
    from fovea.measures.figures import Figures

app = typer.Typer(help="Figures for a network on data.", no_args_is_help=True)

Squash = Annotated[
    bool, typer.Option("--squash", help="Squash the whole picture in, instead of the network's own crop.")
]
Crop = Annotated[bool, typer.Option("--crop", help="The network's own crop instead of squashing the whole picture in.")]
Features = Annotated[
    str | None,
    typer.Option(
        "--features",
        metavar="output|pooled",
        help="The embedding: the output, or what the last layer reads, which is the default for a classifier.",
    ),
]
Nets = Annotated[
    list[str] | None,
    typer.Option("--net", help="A name, or a .safetensors file; repeat for several. efficientnet_lite0 if not given."),
]
Raw = Annotated[bool, typer.Option("--raw", help="Embeddings as they are, instead of scaled to unit length.")]


def _warn_of_names(found: "Figures", data: "DataSet") -> None:
    if found.settings["labels"].endswith("differ"):
        name = data.labels[min(sample.label for sample in data.samples)]
        warn.print(f"the network knows no {name!r}: is it for these classes?", markup=False)


@app.command("cost")
def measure_cost(
    net: Net = "efficientnet_lite0",
    size: Annotated[int | None, typer.Option(min=1, help="Side of the input; the network's own if not given.")] = None,
    batch: Annotated[int, typer.Option(min=1, help="Pictures at a time, for time and memory.")] = 1,
    classes: Annotated[int | None, typer.Option(min=1, help="Outputs of the last layer.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Forwards that are timed; the median counts.")] = 11,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A picture file, to tell its pixels and bytes as well.")
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="For whoever builds the network, as se=local. Repeat."),
    ] = None,
    locations: Annotated[
        str | None,
        typer.Option(
            metavar="K,K,…",
            help="Glimpses that a network reads, as 0,1,2,3,5: a row each; as it usually does if not given.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    json: Json = None,
) -> None:
    """Parameters, multiplications, time, memory and what is read. Weights do not matter and are not fetched.

    Of a paper's network whose tables can be read in several ways, each is told, the paper's own first.
    """
    from dataclasses import replace

    from fovea.measures import cost
    from fovea.measures.figures import Figures
    from fovea.networks.devices import placed
    from fovea.networks.loading import load
    from fovea.networks.registry import model

    counts: Sequence[int | None] = [None] if locations is None else OPTIONS["glimpses"].values("locations", [locations])
    rows = []
    readings = model.entry(net).traits.get("readings", ({},)) if net in model else ({},)
    for options in [_options(option)] if option else readings:
        network = placed(load(net, pretrained=False, classes=classes, options=options), device)
        for count in counts:
            with bar("timing") as advance:
                figures = cost.measure(network, size, batch, rounds, picture, advance, count)
            found = figures.rows[0]  # an option may be called as a figure is: DRAM's locations
            row = {**found, **{key: value for key, value in options.items() if key not in found}}
            rows.append(row)
            where, given = figures.settings, "".join(f", {key}={value}" for key, value in options.items())
            told = f"on {where['device']}, {where['threads']} thread(s)"
            title = f"{row['net']}{given} at {row['size']}, batch {batch}, {told}"
            Figures("cost", {}, cost.readable(row)).show(title, say)
    write(replace(figures, rows=rows), json)


def _options(given: list[str]) -> dict[str, object]:
    """key=value as the builder's options; numbers, lists and truth values as TOML writes them."""
    import tomllib

    from fovea.basics.errors import BadChoice

    options: dict[str, object] = {}
    for one in given:
        key, equals, text = one.partition("=")
        if not equals or not key.strip():
            raise BadChoice(f"an option is written key=value, as se=local; got {one!r}")
        try:
            options[key.strip()] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            options[key.strip()] = text.strip()  # a plain word needs no quotes
    return options


@app.command("faithfulness")
def measure_faithfulness(
    data: Data,
    net: Net = "efficientnet_lite0",
    methods: Annotated[
        str, typer.Option(help="Separated by commas; random is the control.")
    ] = "cam,gradcam,l2caf,l2caf-oblivious,random",
    kinds: Annotated[
        str,
        typer.Option(
            help="Curves, separated by commas; another filling (black, mean, blur) after a colon, as in deletion:black."
        ),
    ] = "insertion,deletion,coverage,masking",
    steps: Annotated[int, typer.Option(min=2, help="Of each curve.")] = 20,
    true_class: Annotated[
        bool, typer.Option("--true-class", help="Maps of the true class, instead of the one that comes first.")
    ] = False,
    json: Json = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the curves, as a picture.")] = None,
    split: Split = None,
    limit: Limit = None,
    squash: Squash = False,
    weights: Weights = None,
    untrained: Untrained = False,
    batch: Batch = 16,
    seed: Seed = 0,
) -> None:
    """Faithfulness: does the answer hang on the pixels that the maps call important?"""
    from fovea.data import open_data
    from fovea.measures import curve_figure, faithfulness

    network = load(net, weights, untrained)
    network = network.squashed() if squash else network
    opened = open_data(data, split, network.labels).first(limit)
    own, ways = listed(methods), listed(kinds)
    with bar(f"following the answers in {opened.name}") as advance:
        figures = faithfulness.measure(network, opened, own, ways, steps, true_class, batch, seed, advance)
    report(faithfulness.areas(figures), f"areas under the curves, {figures.rows[0]['net']} on {opened.name}", None)
    say.print("good maps: insertion and coverage high, deletion and masking low; random is the control", markup=False)
    _warn_of_names(figures, opened)
    write(part_of(figures, data, split, limit), json, seed, is_shipped(net, weights, untrained))
    if out:
        curve_figure.save(figures, out)
        say.print(str(out), markup=False)


@app.command("robustness")
def measure_robustness(
    data: Data,
    net: Net = "efficientnet_lite0",
    attacks: Annotated[
        str,
        typer.Option(help="Separated by commas: fgsm:ε and noise:σ in 8-bit units, jpeg:QUALITY, texture:ITERATIONS."),
    ] = "fgsm:0.2,fgsm:2,noise:10,jpeg:30",
    surrogate: Annotated[
        str | None, typer.Option(metavar="NET", help="Attack this network's gradient instead of the network's own.")
    ] = None,
    texture_net: Annotated[
        str | None, typer.Option(metavar="NET", help="Textures match this network's layers; VGG19's if not given.")
    ] = None,
    json: Json = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw some pictures beside their attacked versions.")
    ] = None,
    split: Split = None,
    limit: Limit = None,
    squash: Squash = False,
    weights: Weights = None,
    untrained: Untrained = False,
    batch: Batch = 16,
    seed: Seed = 0,
) -> None:
    """Robustness: do the answers hold when pictures are attacked, noisy, compressed, or mere texture?"""
    from fovea.data import open_data
    from fovea.measures import robustness

    network = load(net, weights, untrained)
    network = network.squashed() if squash else network
    opened = open_data(data, split, network.labels).first(limit)
    own = listed(attacks)
    followed, textured = (None if name is None else load(name, None, False) for name in (surrogate, texture_net))
    with bar(f"attacking {opened.name}") as advance:
        figures = robustness.measure(network, opened, own, batch, followed, textured, seed, advance)
    report(
        part_of(figures, data, split, limit),
        f"robustness on {opened.name}",
        json,
        seed,
        is_shipped(net, weights, untrained),
    )
    _warn_of_names(figures, opened)
    if out:
        figures.save(out)
        say.print(str(out), markup=False)
