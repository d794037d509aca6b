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
        raise BadChoice(f"{option} {path} is not the name of a picture file, which ends in {', '.join(ends)}")


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


PICTURES = "Picture files, folders (searched through), or patterns in quotes, as 'photos/*.jpg'."
SOURCE = (
    "Where patches come from: KIND:NET,key=value,…, as l2caf:efficientnet_lite0-cub100, anchornet:anchornet-cub100, "
    "prototypes:FILE.safetensors,count=5, whole, random:seed=0. Repeat to compare."
)

ARGUMENTS = {
    "pictures": Option(PICTURES, many=True),
    "given": Option(
        "Pictures, folders of them or patterns in quotes; .wav sounds; .txt files, one text per line; or texts "
        "themselves, in quotes.",
        many=True,
        metavar="PICTURES_OR_TEXT",
    ),
    "data": Option(
        "A folder with a folder of pictures per class, or the name of a data set, as with --data.", metavar="FOLDER"
    ),
    "pattern": Option("Part of a name, or a pattern in quotes, as 'timm/*vit*'."),
    "recipe": Option("A recipe file (TOML), as those in recipes/.", Path),
    "picture": Option("A picture file of any size.", Path),
    "to": Option("The file to write.", Path, metavar="FILE.tif", check=writable),
}

OPTIONS = {
    # networks
    "net": names("A name from 'fovea models', or a .safetensors file.", "NET", ("efficientnet_lite0",)),
    "weights": Option("A file of your own weights for the network that --net names.", Path, metavar="FILE"),
    "untrained": flag("Random weights instead of trained ones."),
    "fit": Option(
        "How a picture is fitted to the network's input. "
        f"{'; '.join(f'{name}: {words}' for name, words in FITS.items())}.",
        usual=FIT,
        choices=tuple(FITS),
    ),
    "device": Option("cpu, cuda, cuda:1 or mps; auto takes the GPU where there is one.", usual="auto", check=device),
    "classes": number("Number of classes, the outputs of the last layer."),
    "option": Option(
        "An option of the network's builder, as se=local. Repeat for more.", metavar="KEY=VALUE", many=True
    ),
    "layer": Option("The layer to look at, as layer4; the last feature map if not given."),
    "features": Option(
        "What is compared: the network's output, or pooled, what its last layer reads (the default of a classifier).",
        choices=("output", "pooled"),
    ),
    "raw": flag("Embeddings as they are, not scaled to unit length."),
    # data
    "data": Option(
        "A data set: a path, or a name below the folder $FOVEA_DATA. Options follow a colon, as in "
        "cub100:split=test,labels=50-99."
    ),
    "split": Option("Take one split of the data only, as test."),
    "boxes": flag("Use the data's boxes, where it has any.", True),
    "limit": number("Take this many pictures, evenly spread over the data."),
    "batch": number("Pictures per batch.", 16),
    "max_pixels": number("Refuse pictures with more pixels than this before they are decoded.", 200_000_000),
    "class_": Option("A class by name. Repeat for more.", metavar="NAME", many=True),
    "index": Option("An index that 'fovea index' made.", Path, Path("out/index.fovea"), "PATH"),
    "folder": Option("Where the indexed pictures are now, if they were moved without the index.", Path),
    # what is looked at
    "method": names(
        "Heatmap methods, by their names in 'fovea methods', or your own as package.module:name. Repeat, or separate "
        "by commas."
    ),
    "target": Option(
        "What to explain: a class name or index, top1, top5, contrast (the best class against the second), 'A vs B', "
        "output (the whole output, no class), pair (two pictures at a time). Repeat for more.",
        metavar="CLASS",
        many=True,
    ),
    "truth": Option(
        "The true class, for a two-stream network: its steps are then marked right or wrong.", metavar="CLASS"
    ),
    "frames": number("Explain this many frames of a clip, evenly spread."),
    "every": number("Explain every n-th frame of a clip instead."),
    "forwards": number("Passes through the network per picture, at most; with more, smaller parts are found.", 60),
    "trust": flag(
        "Check the maps against random weights, other methods, and a shifted, mirrored and compressed picture.", True
    ),
    "glimpses": numbers("Regions to read of each picture; the network's usual number if not given.", int),
    "until": Option("Stop reading once the answer is this certain, as 0.95.", float, None, "CERTAINTY", True, True),
    "budget_ms": Option("Stop reading before a picture takes more milliseconds than this.", float, metavar="MS"),
    "budget_macs": Option(
        "Stop reading before a picture takes more multiplications than this, as 2e9.", float, metavar="MACS"
    ),
    "order": Option(
        "What is read next. best: the most promising region of any level (the default with --until, --levels and "
        "budgets); levels: a planned number of regions of each level.",
        metavar="best|levels",
        many=True,
        commas=True,
        choices=("best", "levels"),
    ),
    "of": number("Number of folds of each network.", 5),
    "only": numbers("Folds that count, where not all are trained: 0,1.", int),
    "control": names("Also networks that have not learned where to look: random, center; for steps: untrained."),
    "levels": number(
        "How many levels deep to zoom; as the network was trained if not given. Large pictures have more."
    ),
    "count": number(
        "At most this many: patches where they are localized (K in the paper's LIP), else pictures.", None, "K"
    ),
    "overlap": Option("Patches overlap by an IoU below this (T in the paper's LIP).", float, metavar="T"),
    "share": Option("Patches come from this share of the best cells (P in the paper's LIP).", float, metavar="P"),
    "branch": number("Use AnchorNet's branch of this patch side: 63, 95, 111 pixels; 3, 5, 7 words.", None, "SIDE"),
    "evidence": Option(
        "What patches are chosen by, for a network without branches: its map; crops, each patch shown to it alone "
        "(slow); or few-crops, a tenth of them.",
        metavar="map|crops|few-crops",
    ),
    "side": number("Side of the patches in input pixels, for a network without branches."),
    "why": flag("Show what each branch saw in a picture; or, with --data, what speaks for a class."),
    "source": Option(SOURCE, many=True),
    "nearest": number("Patches shown beside each prototype.", 4),
    "top": number("Prototypes listed for each picture.", 5),
    # measures
    "seed": number("Seed of the random numbers.", 0),
    "seeds": number("Number of runs; each divides the data and starts the weights anew.", 5),
    "rounds": number("How often each row is measured; the median counts."),
    "batches": numbers("Batch sizes to measure.", int, (1, 16)),
    "counts": numbers("Numbers of pictures in the folder; memory is given for each."),
    "pack": Option("A pack of pictures (tar files beside manifest.csv): a path, or a name below $FOVEA_DATA."),
    "processes": numbers("Also train by this many processes together, as torchrun starts them, as 1,2,4."),
    "dtype": names("Precisions of the network: fp32, bf16, fp16."),
    "adam": number("Also compare iterated L2-CAF with this many iterations of Adam on the layers after the cut."),
    "sides": numbers("Sides of the pictures that are made, in pixels: powers of two."),
    "into": Option(
        "Make files in this folder, and use those that are there; a temporary folder if not given.",
        Path,
        None,
        "FOLDER",
    ),
    "size": number("Side of the input in pixels; the network's own if not given."),
    # graphs
    "with_": Option(
        "The heatmap method to include: l2caf, cam, gradcam, …",
        usual=methods.DEFAULT,
        metavar="METHOD",
        check=lambda _, given: methods.known(given),
    ),
    "precision": Option("Precision of the file's numbers.", usual="fp32", choices=("fp32", "fp16", "int8")),
    "precisions": names("Precisions to measure: fp32, fp16, int8."),
    "calibrate": Option("Pictures from which int8 takes its range of values.", metavar="PICTURES"),
    "page": flag(
        "Also write NAME.html, a page that explains pictures dropped on it: all is inside, no server is needed."
    ),
    "picture": Option("A picture file of which pixels and bytes are counted as well.", Path, metavar="FILE"),
    "steps": number("Points on each curve; of training, steps that are timed."),
    "kinds": names("Which curves; after a colon, what hidden pixels become (black, mean, blur), as in deletion:black."),
    "clip": flag("Count evidence against a class as 0; with --no-clip, a map counts from its least value on.", True),
    "true_class": flag("Explain the true class instead of the predicted one."),
    "attacks": names("What is done to pictures: fgsm:ε or noise:σ in 8-bit units, jpeg:QUALITY, texture:ITERATIONS."),
    "surrogate": Option("Attack by this network's gradient instead of the measured network's own.", metavar="NET"),
    "texture_net": Option("The network whose layers textures match; VGG19 if not given.", metavar="NET"),
    "curve_pictures": number("Pictures for insertion, deletion and sanity, evenly spread."),
    "localizer": Option("A network with branches, which finds the patches, as anchornet-imagenette.", metavar="NET"),
    "full": Option("A classifier of whole pictures to compare with.", metavar="NET"),
    "rival": Option("A network that reads glimpses, as Saccader, to compare with.", metavar="NET"),
    "against": Option("A network that reads whole pictures, to compare with.", metavar="NET"),
    "shares": numbers("Shares of the best cells to try (P in the paper's LIP).", float),
    "overlaps": numbers("Overlaps (IoU) to try, below which patches stay (T in the paper's LIP).", float),
    "forced": flag("Use each branch for every picture, not only the branch that localizes it."),
    "crops": flag("Also use the patches that the network for whole pictures is surest of when shown alone."),
    "numbers": numbers("Numbers of patches that are kept or masked."),
    "time": flag("Also measure time and peak memory, which takes a while.", True),
    "ablation": flag("Also train without attention, and without auxiliary training.", True),
    "recipe": names("Recipe files (TOML). Repeat, or separate by commas.", "FILE"),
    "recipes": Option("Folder of the recipes.", Path, Path("recipes")),
    # training
    "set": Option(
        "Change a setting of the recipe, as optimizer.lr=0.05. Repeat for more.", metavar="KEY=VALUE", many=True
    ),
    "name": Option("What it is called."),
    "resume": flag("Go on with the run that was stopped in this folder."),
    "fresh": flag("Start over, and replace what is there."),
    # a service
    "server": Option(
        "Ask the service at this address ('fovea serve') instead of loading a network here.", metavar="URL"
    ),
    "host": Option("The address to listen on; 0.0.0.0 is all of this machine's.", usual="127.0.0.1", metavar="ADDRESS"),
    "token": Option("The token of a service that asks for one; also read from $FOVEA_TOKEN."),
    "port": number("The port to listen on; 0 takes one that is free.", 8000),
    "allow_host": names("Another host name that requests may use, as that of a proxy.", "NAME"),
    "allow_origin": names("Another web page that may send requests, as https://example.org.", "URL"),
    "max_bytes": number("Bytes of one request, at most.", 256 << 20),
    "timeout": Option("Seconds for one request, at most.", float, 60.0, "SECONDS"),
    "queue": number("Requests in progress or waiting, at most; more are refused until there is room.", 64),
    # who does the work
    "engine": Option(
        "local: this machine's cores; ray: a Ray cluster (at --address, or started on this machine).",
        usual="local",
        choices=("local", "ray"),
    ),
    "address": Option("Address of the Ray cluster, as auto or ray://HOST:10001."),
    "workers": number("Workers of the Ray cluster that hold the network; as many as fit if not given."),
    "parquet": flag(
        "Write rows and maps as Parquet instead of a page, for any number of pictures; always so with --engine ray. "
        "Pictures may then also be in .tar or .parquet files, and at addresses as s3://bucket/folder."
    ),
    "replicas": Option(
        "Copies of the networks on the Ray cluster: 2, or 1-4 for as many as the load needs.", usual="1-4"
    ),
    # what is written
    "out": Option("Where results are written.", Path, metavar="PATH", check=makeable),
    "files": flag("Also write separate files: overlays, crops, and arrays of values (.npy)."),
    "all": flag("For a file too large to load: go through all of it, not only the regions that its overview finds."),
    "resolution": Option(
        "For a file too large to load: how closely to look, as a share of its full resolution; 1 is every pixel.",
        float,
        None,
        "SHARE",
    ),
    "full_size": flag("As --files, with overlays at the pictures' own size."),
    "json": Option("Also write the figures to this file.", Path, metavar="FILE", check=writable),
    "tile": number("Side of the tiles in pixels, a multiple of 16.", 256),
    "quality": number("JPEG quality of the tiles.", 90),
    "lossless": flag("Keep every pixel value, at several times the bytes of JPEG tiles."),
    "layout": Option(
        "How smaller copies are stored: as pages, which most programs read, or as sub-IFDs.",
        usual="pages",
        choices=("pages", "subifds"),
    ),
    "sheet": Option("Also draw 24 pictures with their patches into this file.", Path, metavar="FILE", check=drawable),
    "from_": Option("Folder of the JSON files that 'fovea measure' wrote.", Path, Path("results"), "FOLDER"),
}
ELSEWHERE = {"server", "token", "engine", "address", "workers", "parquet", "replicas"}  # a panel of every help

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
