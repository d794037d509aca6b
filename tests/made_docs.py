"""The snippets of README and docs, and everything that their words name: pictures, clips, weights, data."""

import re
import shlex
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import copy, copytree
from typing import Any

import numpy as np
from PIL import Image

import fovea
from fovea.data.examples import PHOTOGRAPHS, SENTENCES, photograph
from made_data import make_mnist, write_pack

ROOT = Path(__file__).parents[1]
PAGES = [
    path
    for path in (*(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY")), *(ROOT / "docs").rglob("*"))
    if path.suffix == ".md"
]
PAGES[3:] = sorted(PAGES[3:])
BLOCK = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.S | re.M)
PROGRAMS = (
    "fovea", "make", "pip", "python", "bash", "curl", "torchrun", "docker", "kubectl", "serve", "export", "git", "ray",
)  # fmt: skip
COMMAND = re.compile(rf"(\$ )?({'|'.join(PROGRAMS)})\b(?! *[=(])")
TABLE = re.compile(r"^(\|.*\|)\n\|[-| :]+\|\n((?:\|.*\|\n)+)", re.M)
COLUMNS = {"command": "command", "Python": "python"}  # of tables: in which language are their cells


@dataclass(frozen=True)
class Snippet:
    """One command, or one block in a language."""

    page: str
    line: int
    language: str  # "command", or that of the block
    text: str

    def __str__(self) -> str:
        first = next(line for line in self.text.splitlines() if line.strip())
        return f"{self.page}:{self.line} {first[:60]}"

    @property
    def words(self) -> str:
        return self.text if self.language == "command" else f"```{self.language}\n{self.text}"


def snippets(path: Path) -> Iterator[Snippet]:
    """In the order of the page. A block without a language that has no command is something to look at."""
    text, page = path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix()
    yield from sorted((*_in_blocks(page, text), *_in_tables(page, text)), key=lambda snippet: snippet.line)


def _in_tables(page: str, text: str) -> Iterator[Snippet]:
    """Tables with commands: the cells of theirs that are code from end to end; others are prose."""
    for match in TABLE.finditer(text):
        header, *table = ([cell.strip() for cell in row.split("|")] for row in (match[1], *match[2].splitlines()))
        if "command" not in header:
            continue
        line = text.count("\n", 0, match.start()) + 3
        for number, cells in enumerate(table):
            for column, cell in zip(header, cells, strict=True):
                if column in COLUMNS and (code := re.fullmatch(r"`([^`]+)`", cell)):
                    yield Snippet(page, line + number, COLUMNS[column], code[1])


def _in_blocks(page: str, text: str) -> Iterator[Snippet]:
    for match in BLOCK.finditer(text):
        indent, language, body = match.groups()
        body = re.sub(rf"^{indent}", "", body, flags=re.M)
        line = text.count("\n", 0, match.start()) + 2
        if language in ("", "sh", "bash", "shell", "console"):
            yield from _commands(page, line, body)
        else:
            yield Snippet(page, line, language, body)


def _commands(page: str, line: int, body: str) -> Iterator[Snippet]:
    if not any(COMMAND.match(one) for one in body.splitlines()) and not re.match(r"\w+\(\) \{", body):
        return
    transcript = any(one.startswith("$ ") for one in body.splitlines())
    for number, one in enumerate(re.sub(r"\\\n *", lambda cut: "\0" * cut[0].count("\n"), body).split("\n")):
        spread = one.count("\0")
        words = one.replace("\0", " ").strip()
        for part in re.split(r" && ", words):
            if part and not part.startswith("#") and (part.startswith("$ ") or not transcript):
                yield Snippet(page, line + number, "command", part.removeprefix("$ "))
        line += spread


def crops(name: str, count: int, size: tuple[int, int], seed: int = 0) -> list[Image.Image]:
    """Parts of one of the photographs that come with the package, most of it each."""
    random, whole = np.random.default_rng(seed), Image.open(photograph(name)).convert("RGB")
    found = []
    for _ in range(count):
        share = random.uniform(0.7, 0.95)
        w, h = round(whole.width * share), round(whole.height * share)
        x, y = random.integers(0, whole.width - w + 1), random.integers(0, whole.height - h + 1)
        found.append(whole.crop((int(x), int(y), int(x) + w, int(y) + h)).resize(size))
    return found


# data by name, below FOVEA_DATA


def pack(
    root: Path, labels: Sequence[str], counts: dict[int, dict[str, int]], size: tuple[int, int] = (96, 72)
) -> None:
    """Pictures of some classes, with a box each: how many of every split."""
    root.mkdir(parents=True)
    kinds = [*PHOTOGRAPHS]
    rows = [
        (f"{split}/{label}-{i}.png", picture, str(label), f"10 10 {size[0] - 10} {size[1] - 8}", split)
        for label, splits in counts.items()
        for split, count in splits.items()
        for i, picture in enumerate(crops(kinds[label % len(kinds)], count, size, 2 * label + (split == "test")))
    ]
    write_pack(root, rows, labels)


def make_home(root: Path) -> None:
    """A few pictures of every data set that the docs name; of made ones there are as many as one asks for."""
    birds = fovea.load("efficientnet_lite0-cub100", pretrained=False).labels
    ten = fovea.load("anchornet-imagenette").labels
    assert birds is not None
    assert ten is not None
    cardinal = next(i for i, name in enumerate(birds) if name.endswith("Cardinal"))
    few = {"train": 10, "test": 2}  # ten, so that there is one in every fold
    pack(root / "cub100", birds, {label: few for label in (0, 1, 2, cardinal, 50, 51)})
    pack(root / "imagenette", ten, {label: few if label < 2 else {"train": 2, "test": 1} for label in range(10)})
    pack(root / "imagenet-val-3k", [str(i) for i in range(1000)], {285: {"val": 3}, 967: {"val": 3}})
    root.joinpath("gtsdb").mkdir()
    random = np.random.default_rng(0)
    scenes = [
        (f"{label}{i}.png", picture, label, "" if label == "none" else "60 40 90 70", "train" if i < 8 else "test")
        for seed, label in enumerate(("danger", "mandatory", "none", "prohibitory"))
        for i, picture in enumerate(crops("motorcycle", 10, (170, 100), seed))
    ]
    write_pack(root / "gtsdb", scenes)
    make_birds(root / "cub")
    root.joinpath("mnist").mkdir()
    make_mnist(root / "mnist")
    make_reviews(root / "mr", random)


def make_birds(root: Path) -> None:
    """CUB-200-2011 as it is published: two pictures of some of its classes, one of each split."""
    kept = (1, 101, 102)
    files = [f"{label:03}.Bird_{label}/{label}_{i}.jpg" for label in kept for i in range(2)]
    for file, picture in zip(files, crops("cat", len(files), (96, 72)), strict=True):
        (root / "images" / file).parent.mkdir(parents=True, exist_ok=True)
        picture.save(root / "images" / file)
    lists = {
        "images": files,
        "image_class_labels": [str(int(file[:3])) for file in files],
        "train_test_split": [str(i % 2) for i in range(len(files))],
        "bounding_boxes": ["10.0 10.0 70.0 50.0"] * len(files),
        "classes": [f"{label:03}.Bird_{label}" for label in range(1, 201)],
    }
    for name, lines in lists.items():
        (root / f"{name}.txt").write_text("".join(f"{i} {line}\n" for i, line in enumerate(lines, 1)))


def make_reviews(root: Path, random: np.random.Generator) -> None:
    """Forty kind and forty unkind sentences, and vectors of most of their words."""
    root.mkdir()
    bad, _, _, good, _ = SENTENCES
    for kind, text in (("pos", good), ("neg", bad)):
        words = [text.split() for _ in range(40)]
        for line in words:
            random.shuffle(line)
        (root / f"rt-polarity.{kind}").write_text("".join(f"{' '.join(line)}\n" for line in words), "latin-1")
    known = sorted({*good.split(), *bad.split()} - {"a"})
    rows = "".join(f"{word} {' '.join(f'{x:.3f}' for x in random.normal(size=100))}\n" for word in known)
    (root / "vectors.txt").write_text(f"{len(known)} 100\n{rows}")


# files that stand in for a reader's own

PHOTO_CLASSES = {"Egyptian cat": "cat", "espresso": "coffee"}  # as ImageNet calls them


def make_photos(root: Path) -> None:
    for label, name in PHOTO_CLASSES.items():
        for split, count, seed in (("train", 2, 0), ("val", 2, 1), ("test", 1, 2)):
            for i, picture in enumerate(crops(name, count, (120, 90), seed)):
                place = root / split / label / f"{name}-{i}.jpg"
                place.parent.mkdir(parents=True, exist_ok=True)
                picture.save(place)


def make_pictures(root: Path) -> None:
    root.mkdir()
    for name in ("cat", "rocket", "coffee", "motorcycle"):
        crops(name, 1, (160, 120))[0].save(root / f"{name}.jpg")


def of_photograph(path: Path) -> None:
    kind = path.stem if path.stem in PHOTOGRAPHS else "coffee"
    Image.open(photograph(kind)).convert("RGB").save(path)


def make_clip_of(path: Path) -> None:
    import av

    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=5)
        stream.width, stream.height, stream.pix_fmt = 160, 120, "yuv420p"
        for picture in crops("cat", 12, (160, 120)) * (4 if path.stem == "solidWhiteRight" else 1):
            file.mux(stream.encode(av.VideoFrame.from_image(picture)))
        file.mux(stream.encode())


def make_sound(path: Path) -> None:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        time = np.arange(16000) / 16000
        file.writeframes(np.int16(8000 * np.sin(2 * np.pi * 440 * time) * (time > 0.5)).tobytes())


def large(side: int = 900) -> Image.Image:
    return Image.open(photograph("motorcycle")).convert("RGB").resize((side, side * 2 // 3))


def make_slide(path: Path) -> None:
    """Tiles and levels, as Aperio writes them."""
    import tifffile

    values = np.asarray(large(1200))
    with tifffile.TiffWriter(path) as file:
        how: dict[str, Any] = {"photometric": "rgb", "metadata": None}
        file.write(values, tile=(256, 256), description="Aperio Image Library v12", **how)
        file.write(values[::8, ::8], rowsperstrip=16, **how)
        file.write(values[::4, ::4], tile=(256, 256), **how)


def make_aerial(path: Path) -> None:
    import rasterio
    from rasterio.transform import from_origin

    values = np.moveaxis(np.asarray(large(750)), -1, 0)
    shape = {"width": values.shape[2], "height": values.shape[1], "count": 3, "dtype": "uint8"}
    placed: dict[str, Any] = {"crs": "EPSG:32633", "transform": from_origin(500_000, 5_000_000, 0.5, 0.5)}
    with rasterio.open(path, "w", driver="COG", BLOCKSIZE=256, **shape, **placed) as file:
        file.write(values)


def make_canvas(path: Path) -> None:
    from fovea.data import open_data

    sample = open_data("megapixel:canvas=896,clutter=50,noise=0,count=1,split=test").samples[0]
    sample.read().save(path)


def make_weights(path: Path, home: Path, called: str) -> None:
    """A small network with random weights, for the data that the lines with its name are about."""
    name, data, options = next(how for pattern, how in WEIGHTS.items() if re.search(pattern, called))
    labels = labels_of(home / data) if data else tuple(PHOTO_CLASSES)
    embeds = name.startswith("embedding/")
    network = fovea.load(name, pretrained=False, classes=None if embeds else len(labels), options=options)
    if not embeds:
        network.labels = labels
    network.save(path)


def labels_of(folder: Path) -> tuple[str, ...]:
    from fovea.data import open_data

    return open_data(folder).labels


def make_vit(folder: Path) -> None:
    """As transformers writes it."""
    import torch
    import transformers

    torch.manual_seed(0)
    vit = transformers.ViTConfig(**SEEN, id2label={0: "tabby", 1: "lynx", 2: "fox"})
    transformers.ViTForImageClassification(vit).save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder)


def make_clip_model(folder: Path) -> None:
    """Likewise, with the words that the pages ask for."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    torch.manual_seed(0)
    known = ["<pad>", "<unk>", "<eos>", "a", "red", "bicycle"]
    words = Tokenizer(models.WordLevel({word: i for i, word in enumerate(known)}, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="$A <eos>", special_tokens=[("<eos>", 2)])
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", eos_token="<eos>"
    )
    text = {**SIDES, "vocab_size": len(known), "max_position_embeddings": 16}
    text |= {"eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 0}
    clip = transformers.CLIPConfig(text_config=text, vision_config=SEEN, projection_dim=16)
    sizes = transformers.CLIPImageProcessor(size={"shortest_edge": 64}, crop_size={"height": 64, "width": 64})
    transformers.CLIPModel(clip).save_pretrained(folder)
    transformers.CLIPProcessor(sizes, tokenizer).save_pretrained(folder)


def make_index(path: Path) -> None:
    make_pictures(path.parent / "indexed")
    fovea.index("efficientnet_lite0", str(path.parent / "indexed"), path)


SIDES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
SEEN = {**SIDES, "image_size": 64, "patch_size": 16}
TNET = {"base": 32, "side": 96, "levels": 2, "channels": [8, 8, 16, 16], "stem_width": 8}
TWO = {"side": 64, "patch": 64, "hidden": 16, "source": "random"}
WEIGHTS: dict[str, tuple[str, str, dict[str, Any]]] = {  # network, data whose classes it knows, options
    "reader|bagnet": ("timm/test_resnet", "imagenette", {}),
    "gap|adl": ("gap/timm/test_resnet", "cub100", {}),
    "triplet|npair": ("embedding/timm/test_resnet", "", {}),
    "whole-fold": ("timm/test_resnet", "gtsdb", {}),
    "tnet-fold": ("tnet/resnet10t", "gtsdb", TNET),
    "table/none-": ("twostream/timm/test_resnet", "cub100", {**TWO, "local": "none"}),
    "table/": ("twostream/timm/test_resnet", "cub100", TWO),
    "": ("timm/test_resnet", "", {}),  # the classes of photos/
}
NETWORK = '''"""A network of the reader's own."""
import fovea


def my_network(classes=10):
    return fovea.load("timm/test_resnet", pretrained=False, classes=classes)
'''
FILES: dict[str, Callable[[Path], None]] = {  # what a name is taken for; other names by how they end
    "canvas.png": make_canvas,
    "slide.svs": make_slide,
    "slide.tif": make_slide,
    "aerial.tif": make_aerial,
    "photos": make_photos,
    "DATA": make_photos,
    "my-vit": make_vit,
    "my-clip": make_clip_model,
    "FOLDER": make_clip_model,
    "solidWhiteRight.mp4": make_clip_of,
}
ENDS: dict[str, Callable[[Path], None]] = {
    ".jpg": of_photograph,
    ".png": of_photograph,
    ".tif": lambda path: large().save(path),
    ".mp4": make_clip_of,
    ".wav": make_sound,
    ".fovea": make_index,
    "": make_pictures,
    ".safetensors": lambda path: None,  # by WEIGHTS
}
NAME = re.compile(
    r"""(?P<written>(--(out|json|sheet|into)[ =]|save\w*\(|page\(|[^-]>)\s*(Path\()?["']?)?"""
    r"""(?<![\w/.:-])(?P<name>[\w.*{}-][\w./*{}-]*?(\.(jpg|png|tif|svs|mp4|wav|fovea|safetensors)|/)|my-vit|my-clip|[A-Z]{4,}|photos)"""
    r"""(?=["'\s,)]|$)"""
)


def named(given: Sequence[Snippet]) -> list[str]:
    """Files and folders that a page's snippets take from their reader: named before they are written."""
    found: dict[str, bool] = {}
    for snippet in given:
        text = " ".join(shlex.split(snippet.text, comments=True)) if snippet.language == "command" else snippet.text
        if snippet.language in ("command", "python"):
            for match in NAME.finditer(text):
                for name in spread(match["name"].rstrip("/")):
                    found.setdefault(name, match["written"] is None)
    return [name for name, taken in found.items() if taken]


def spread(name: str) -> list[str]:
    """A name with the seeds of a table in it, or with a star, as names."""
    return [re.sub(r"\{\w+\}", str(seed), name).replace("*", "a") for seed in range(3 if "{" in name else 1)]


class Shop:
    """Stand-ins, each made when a page first names it."""

    def __init__(self, root: Path) -> None:
        self.root, self.home = root, root / "data"
        make_home(self.home)
        self.stand_in("video/solidWhiteRight.mp4", self.home)

    def stand_in(self, name: str, folder: Path) -> None:
        """In a page's folder."""
        path, at = Path(name), folder / name
        known = path.name in FILES or (path.suffix in ENDS and path.stem != "weights") or "table/" in name
        if at.exists() or not known:  # weights.safetensors is what a training leaves
            return
        at.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".safetensors":
            key = next(f"{number}.safetensors" for number, p in enumerate(WEIGHTS) if re.search(p, name))
            made = self.root / key
            if not made.exists():
                make_weights(made, self.home, name)
        else:
            made = self.root / "made" / path.name
            if not made.exists():
                made.parent.mkdir(exist_ok=True)
                (FILES.get(path.name) or ENDS[path.suffix])(made)
        copytree(made, at) if made.is_dir() else copy(made, at)
        if path.name == "holiday":
            self.stand_in("holiday/clip.mp4", folder)

    def projected(self, file: Path) -> Path:
        """A ProtoPNet whose prototypes are patches of the made pictures."""
        from fovea.data import open_data
        from fovea.training.prototypes import project

        made = self.root / file.name
        if not made.exists():
            network = fovea.load(file)
            project(network, open_data(self.home / "cub100", "train"))
            network.save(made)
        return made

    def page(self, folder: Path, given: Sequence[Snippet]) -> None:
        """All that a page needs beside what it makes itself."""
        for name in named(given):
            self.stand_in(name, folder)
        (folder / "package").mkdir()
        (folder / "package/module.py").write_text(NETWORK)
        for kept in ("recipes", "results"):
            copytree(ROOT / kept, folder / kept)
        (folder / "src").symlink_to(ROOT / "src")
