"""The vocabulary of the command line: every option of every command, with its one type, default and meaning.

A command names the options that it takes (cli/commands.py). What a command does when an option is left out is its
`usual` value, which the help tells: the command's own where it declares one, else the one here.
"""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fovea.basics import ANY, BOUNDS, BadChoice, replaceable, spelled_device
from fovea.heatmaps import methods
from fovea.pictures.fits import FIT, FITS

DRAWN = (".png", ".jpg", ".jpeg", ".webp", ".tif", ".tiff", ".pdf")  # what Pillow and matplotlib both write


def makeable(option: str, path: Path) -> None:
    """Refused before hours of work, not after."""
    above = next(place for place in (*path.absolute().parents, Path("/")) if os.path.lexists(place))
    if not os.path.isdir(above):
        raise BadChoice(f"{option} {path} cannot be written to: {above} is no folder")
    try:
        os.lstat(path)
    except FileNotFoundError:
        pass
    except OSError as error:  # too long a name
        raise BadChoice(f"{option} {path} cannot be written to: {error.strerror}") from None
    if not os.access(above, os.W_OK | os.X_OK):
        raise BadChoice(f"{option} {path} cannot be written to: {above} does not allow it")


def writable(option: str, path: Path) -> None:
    """A file that is there, or can be made."""
    makeable(option, path)
    if os.path.isdir(path):
        raise BadChoice(f"{option} {path} is a folder; name a file")
    if not replaceable(path):
        raise BadChoice(f"{option} {path} is a pipe or a device; name a file")


def fillable(option: str, path: Path) -> None:
    """A folder that is there, or can be made."""
    makeable(option, path)
    if os.path.lexists(path) and not path.is_dir():
        raise BadChoice(f"{option} {path} is a file; name a folder")


def drawable(option: str, path: Path, ends: Sequence[str] = (*DRAWN, ".gif", ".bmp")) -> None:
    """A file for a picture, in a format that can be written."""
    writable(option, path)
    if path.suffix.lower() not in ends:
        raise BadChoice(f"{option} {path} is no name for a picture: one ends in {', '.join(ends)}")


def device(option: str, given: str) -> None:
    """As it is spelled; whether there is one is known with torch."""
    try:
        spelled_device(given)
    except BadChoice as error:
        raise BadChoice(f"{option}: {error}") from None


@dataclass(frozen=True)
class Option:
    """`many`: may be repeated; `commas`: and its values separated by commas. A number has the bounds of its name."""

    help: str
    type: type = str
    usual: Any = None
    metavar: str | None = None
    many: bool = False
    commas: bool = False
    choices: tuple[str, ...] = ()
    check: Callable[[str, Any], None] | None = None

    def values(self, name: str, given: Any) -> Any:
        """What was typed as what a command works with: checked, lists as tuples."""
        if self.check is not None:
            self.check(spelled(name), given)
        words = [word for text in given for word in _words(text, self.commas)] if self.many else [given]
        if wrong := [word for word in words if self.choices and word not in self.choices]:
            known = " or ".join(map(repr, self.choices))
            raise BadChoice(f"{spelled(name)} takes {known}; got {wrong[0]!r}")
        if self.type in ANY:
            bound = BOUNDS.get(name, ANY[self.type])
            words = [bound.read(spelled(name), word) for word in words]
            bound.check(spelled(name), words)
        return tuple(words) if self.many else words[0]


def _words(text: str, commas: bool) -> list[str]:
    if not commas or os.path.exists(text):  # a file may be called a,b.safetensors
        return [text]
    return [word.strip() for word in re.split(r",(?!\s*\w+=)", text) if word.strip()]


def spelled(name: str) -> str:
    """An option as it is typed: max_pixels is --max-pixels, class_ is --class."""
    return f"--{name.strip('_').replace('_', '-')}"


def flag(help: str, usual: bool = False) -> Option:
    return Option(help, bool, usual)


def names(help: str, metavar: str = "NAME", usual: Any = None) -> Option:
    return Option(help, str, usual, metavar, many=True, commas=True)


def numbers(help: str, type: type = int, usual: Any = None) -> Option:
    return Option(help, type, usual, "N,N,…", many=True, commas=True)


def number(help: str, usual: Any = None, metavar: str = "N") -> Option:
    return Option(help, int, usual, metavar)


PICTURES = "Files, folders (searched through) or 'globs'."
SOURCE = (
    "KIND:NET,key=value,…, as l2caf:efficientnet_lite0-cub100, anchornet:anchornet-cub100, "
    "prototypes:FILE.safetensors,count=5, whole, random:seed=0. Repeat to compare."
)

ARGUMENTS = {
    "pictures": Option(PICTURES, many=True, metavar="PICTURES…"),
    "given": Option(
        "Pictures, folders of them or 'globs'; .wav sounds; .txt files, one text per line; or texts themselves.",
        many=True,
        metavar="PICTURES_OR_TEXT…",
    ),
    "data": Option("A folder with a folder of pictures per class, or a data set by name, as --data.", metavar="FOLDER"),
    "pattern": Option("Part of a name, or a glob such as 'timm/*vit*'."),
    "recipe": Option("A recipe (TOML). Those that come with fovea are in recipes/.", Path),
    "picture": Option("A picture file of any size.", Path, metavar="PICTURE"),
    "to": Option("The file to write.", Path, metavar="FILE.tif", check=writable),
}

OPTIONS = {
    # networks
    "net": names("A name from 'fovea models', or a .safetensors file.", "NET", ("efficientnet_lite0",)),
    "weights": Option("Your own weights for --net.", Path, metavar="FILE"),
    "untrained": flag("Random weights instead of trained ones."),
    "fit": Option(
        f"How a picture comes in. {'; '.join(f'{name}: {words}' for name, words in FITS.items())}.",
        usual=FIT,
        choices=tuple(FITS),
    ),
    "device": Option("cpu, cuda, cuda:1, mps; auto: the GPU where there is one.", usual="auto", check=device),
    "classes": number("Outputs of the last layer."),
    "option": Option("For whoever builds the network, as se=local. Repeat.", metavar="KEY=VALUE", many=True),
    "layer": Option("Where to look, e.g. layer4; the last feature map if not given."),
    "features": Option(
        "The embedding: the output, or what the last layer reads (a classifier's default).",
        choices=("output", "pooled"),
    ),
    "raw": flag("Embeddings as they are, instead of scaled to unit length."),
    # data
    "data": Option("A path, or a name below $FOVEA_DATA; options after a colon, as in cub100:split=test,labels=50-99."),
    "split": Option("One split of the data only."),
    "boxes": flag("Use the data's boxes, where it has any.", True),
    "limit": number("So many pictures, spread evenly."),
    "batch": number("Pictures at a time.", 16),
    "max_pixels": number("Refuse larger pictures before decoding them.", 200_000_000),
    "class_": Option("A class by name. Repeat.", metavar="NAME", many=True),
    "index": Option("What 'fovea index' made.", Path, Path("out/index.fovea"), "PATH"),
    "folder": Option("Where the indexed pictures are now, if they were moved without the index.", Path),
    # what is looked at
    "method": names(f"Of heatmaps: {methods.in_words()} ('fovea methods' lists them). Repeat, or separate by commas."),
    "target": Option(
        "A class name or index, top1, top5, contrast (why the best, not the second), 'A vs B', output (no class), pair "
        "(two by two). Repeat.",
        metavar="CLASS",
        many=True,
    ),
    "truth": Option("What the pictures are: strips then tell right from wrong.", metavar="CLASS"),
    "frames": number("Of a clip: explain so many frames, evenly spread."),
    "every": number("Of a clip: explain every k-th frame instead."),
    "forwards": number("Passes through the network for one picture, at most; more find smaller parts.", 60),
    "trust": flag("Check the maps: random weights, other methods, a shifted, mirrored and compressed picture.", True),
    "glimpses": numbers("Regions read of each picture; as the network usually does if not given.", int),
    "until": Option("Read no more once the answer is this certain, as 0.95.", float, None, "CERTAINTY", True, True),
    "budget_ms": Option("Read no more once so many milliseconds per picture would be spent.", float, metavar="MS"),
    "budget_macs": Option("Likewise of multiplications, as 2e9.", float, metavar="MACS"),
    "order": Option(
        "What is read next. best: the most promising region of any level (with --until, --levels and budgets if not "
        "given); levels: so many of each level, as planned.",
        metavar="best|levels",
        many=True,
        commas=True,
        choices=("best", "levels"),
    ),
    "of": number("How many folds each has.", 5),
    "control": names("Also networks that have not learned where to look: random, center; in steps: untrained."),
    "levels": number("How deep; as the network was trained if not given. Big pictures have more detail below."),
    "count": number("At most so many.", metavar="K"),
    "overlap": Option("LIP's T: patches overlap by an IoU below this.", float, metavar="T"),
    "share": Option("LIP's P: among this share of the best cells.", float, metavar="P"),
    "branch": number("By AnchorNet's branch of this side: 63, 95, 111 pixels; 3, 5, 7 words.", metavar="SIDE"),
    "evidence": Option(
        "Of a network without branches: its map, crops that it sees alone (slow), or few-crops, a tenth of them.",
        metavar="map|crops|few-crops",
    ),
    "side": number("Of the patches of a network without branches, in its own pixels.", metavar="N"),
    "why": flag("What each branch saw in a picture; or, with --data, what speaks for a class."),
    "source": Option(SOURCE, many=True),
    "nearest": number("Patches beside each prototype.", 4),
    "top": number("Prototypes told for each picture.", 5),
    # measures
    "seed": number("Of the random numbers drawn.", 0),
    "seeds": number("Each divides the data and starts the weights anew.", 5),
    "rounds": number("Measurements of each row; the median counts."),
    "batches": numbers("Pictures at a time.", int, (1, 16)),
    "counts": numbers("Pictures of a folder: memory is told for each number."),
    "pack": Option("Pictures in tar files, as fovea.data opens them."),
    "processes": numbers("Train by so many together, as torchrun starts them, and compare with one: 1,2,4."),
    "dtype": names("Precision of the network: fp32, bf16, fp16."),
    "adam": number("Also compare iterated L2-CAF with so many iterations of Adam on the head."),
    "sides": numbers("Of made pictures, in pixels: powers of two."),
    "into": Option(
        "Make files in this folder, and use those that are there; else a temporary one.", Path, None, "FOLDER"
    ),
    "size": number("Side of the input; the network's own if not given."),
    # graphs
    "with_": Option(
        "The method of heatmaps that goes with it: l2caf, cam, gradcam, …",
        usual=methods.DEFAULT,
        metavar="METHOD",
        check=lambda _, given: methods.known(given),
    ),
    "precision": Option("Of a graph: fp32, fp16, or int8.", usual="fp32", choices=("fp32", "fp16", "int8")),
    "precisions": names("Of graphs: fp32, fp16, int8.", "NAME"),
    "calibrate": Option("Pictures that show an int8 graph which values are usual.", metavar="PICTURES"),
    "page": flag(
        "A page as well, NAME.html, that explains pictures dropped on it, with the graph inside and no server."
    ),
    "picture": Option("A picture file, to tell its pixels and bytes as well.", Path, metavar="FILE"),
    "steps": number("Of each curve."),
    "kinds": names("Curves; another filling (black, mean, blur) after a colon, as in deletion:black."),
    "clip": flag("What speaks against a class counts as 0; without it, a map counts from its least value on.", True),
    "true_class": flag("Maps of the true class, instead of the one that comes first."),
    "attacks": names("fgsm:ε and noise:σ in 8-bit units, jpeg:QUALITY, texture:ITERATIONS."),
    "surrogate": Option("Attack this network's gradient instead of the network's own.", metavar="NET"),
    "texture_net": Option("Textures match this network's layers; VGG19's if not given.", metavar="NET"),
    "curve_pictures": number("How many, spread evenly, for insertion, deletion and sanity."),
    "localizer": Option("A network with branches, as anchornet-imagenette.", metavar="NET"),
    "full": Option("The classifier of whole pictures to compare with.", metavar="NET"),
    "rival": Option("A network that reads glimpses, as Saccader, to compare with.", metavar="NET"),
    "against": Option("A network that reads the full picture.", metavar="NET"),
    "shares": numbers("Of the cells looked at (P).", float),
    "overlaps": numbers("IoUs that patches stay below (T).", float),
    "forced": flag("Every picture by every branch, not by the one that localizes it."),
    "crops": flag("Also the patches that the network for whole pictures is surest of when it sees them alone."),
    "numbers": numbers("Of patches kept or masked."),
    "time": flag("Time and peak memory, which take a while.", True),
    "ablation": flag("Also without attention, and without auxiliary training.", True),
    "recipe": names("Recipes (TOML). Repeat, or separate by commas.", "FILE"),
    "recipes": Option("Folder of the recipes.", Path, Path("recipes")),
    # training
    "set": Option("Change a key, as optimizer.lr=0.05. Repeat.", metavar="KEY=VALUE", many=True),
    "name": Option("What it is called."),
    "resume": flag("Go on where a run in this folder was stopped."),
    "fresh": flag("Start anew, whatever is there."),
    # a service
    "server": Option("Ask the service at this address ('fovea serve') instead of loading a network.", metavar="URL"),
    "host": Option("The address to listen at; 0.0.0.0 is all of this machine's.", usual="127.0.0.1", metavar="ADDRESS"),
    "token": Option("What a service wants to be told by whoever asks; also taken from $FOVEA_TOKEN."),
    "port": number("Where to listen; 0 finds one that is free.", 8000),
    "allow_host": names("Another name by which the service is called, as that of a proxy.", "NAME"),
    "allow_origin": names("Another page that may ask, as https://example.org.", "URL"),
    "max_bytes": number("Of one request.", 256 << 20),
    "timeout": Option("Seconds for one request, at most.", float, 60.0, "SECONDS"),
    "queue": number("Requests at work or waiting; more are refused for the moment.", 64),
    # who does the work
    "engine": Option(
        "local: this machine's cores; ray: a Ray cluster ('--address'; one on this machine if none is named).",
        usual="local",
        choices=("local", "ray"),
    ),
    "address": Option("Of a Ray cluster, as auto or ray://HOST:10001."),
    "workers": number("Of a Ray cluster that hold the network; as many as there is room for if not given."),
    "parquet": flag(
        "Rows and maps as Parquet instead of a page, for any number of pictures; usual with --engine ray. Pictures may "
        "then lie in .tar or .parquet files, too, and at addresses as s3://bucket/folder."
    ),
    "replicas": Option("Copies of the networks on a Ray cluster: 2, or as many as are needed of 1-4.", usual="1-4"),
    # what is written
    "out": Option("What is drawn and written goes here.", Path, metavar="PATH", check=makeable),
    "files": flag("Loose files, too: overlays, crops, arrays of values (.npy)."),
    "all": flag("Of a file too large to load: everywhere, not only in the regions that its overview finds."),
    "resolution": Option(
        "Of a file too large to load: how closely, as a share of its own; 1 is every pixel.", float, None, "SHARE"
    ),
    "full_size": flag("As --files, with overlays at the pictures' own size."),
    "json": Option("Write the figures to this file.", Path, metavar="FILE", check=writable),
    "tile": number("Side of the tiles, a multiple of 16.", 256),
    "quality": number("Of JPEG tiles.", 90),
    "lossless": flag("Keep every value, at several times the bytes of JPEG tiles."),
    "layout": Option(
        "Where smaller copies are stored: pages, which most programs know, or sub-IFDs.",
        usual="pages",
        choices=("pages", "subifds"),
    ),
    "sheet": Option("Draw 24 pictures with their patches.", Path, metavar="FILE", check=drawable),
    "from_": Option("Folder of the JSON files that 'fovea measure' wrote.", Path, Path("results"), "FOLDER"),
}

# Spellings of the version before, with what they are now; a value where the option had none.
OLD: dict[str, tuple[str, ...]] = {
    "--methods": ("--method",),
    "--nets": ("--net",),
    "--squash": ("--fit", "squash"),
    "--crop": ("--fit", "crop"),
    "--pictures": ("--limit",),
    "--locations": ("--glimpses",),
    "--figure": ("--out",),
}
