"""Every reader: how a good file is made, how it is read by the door that people use, and what a right result is."""

import contextlib
import io
import json
import os
import sys
import warnings
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, PngImagePlugin

import fovea
import fovea.cli
from fovea.basics import FoveaError, printable
from fovea.data import open_data, open_sentences, open_vectors
from fovea.networks import hash_of
from fovea.patches import extract
from fovea.pictures import read_clip
from fovea.results import read as read_results
from fovea.training.loop import train
from fovea.training.media import medium_of
from fovea.training.recipe import read as read_recipe
from made_clips import make_clip
from made_data import MAKERS
from made_recipes import digits, recipe, small, written

SMALL = {"side": 32, "widths": [8, 8]}
STEP = recipe(**small() | {"data": digits(16, 8), "save_every": 0.0})  # one step, and its test
PATCHES = "random:count=2"
LABELS = ("ant", "bee", "cat")
WHEN = 1_700_000_000  # all files are of one time, so that a changed byte is all that changed


class Reader(NamedTuple):
    """`make` writes good files into a folder, `read` gives what they hold; it raises AssertionError where that is no
    valid result. Of those that promise it (`exact`), nothing but the good result may come out of changed bytes."""

    make: Callable[[Path], object]
    read: Callable[[Path], object]
    change: str = "*"  # which of the files
    exact: bool = False
    names: bool = False  # what is changed is the name of a file


@cache
def net() -> fovea.Network:
    torch.manual_seed(0)
    network = fovea.load("smallnet", classes=3, options=SMALL)
    network.labels = LABELS
    return network


def pixels(size: tuple[int, int] = (40, 30), shade: int = 0) -> np.ndarray:
    """Slopes and a checkerboard: something for every coder to do."""
    y, x = np.mgrid[: size[1], : size[0]]
    return np.stack([x * 6 + shade, y * 8, (x // 4 + y // 4) % 2 * 200], 2).astype(np.uint8)


def made_picture(
    folder: Path, name: str, convert: Callable[[Image.Image], Image.Image] = lambda i: i, **how: Any
) -> None:
    convert(Image.fromarray(pixels())).save(folder / name, **how)


def sixteen(image: Image.Image) -> Image.Image:
    return Image.fromarray(np.asarray(image.convert("L")).astype(np.uint16) * 257)


def exif(image: Image.Image) -> Any:
    known = image.getexif()
    known[0x0112], known[0x010F] = 6, "maker" * 9
    return known


def texts() -> PngImagePlugin.PngInfo:
    about = PngImagePlugin.PngInfo()
    about.add_text("a", "b" * 200, zip=True)
    about.add_itxt("c", "d" * 200)
    return about


def look(folder: Path) -> object:
    (heatmap,) = fovea.explain(net(), [path for path in folder.iterdir()], method="gradcam")
    assert torch.isfinite(torch.as_tensor(heatmap.values)).all()
    return heatmap.label in LABELS


def frames(folder: Path) -> object:
    (path,) = folder.iterdir()
    clip = read_clip(path, every=3)
    assert len(clip)
    assert all(image.mode == "RGB" and min(image.size) > 1 for image in clip.frames)
    assert list(clip.times) == sorted(clip.times)
    return len(clip)


def animation(name: str) -> Callable[[Path], object]:
    shown = [Image.fromarray(pixels(shade=n * 30)) for n in range(6)]
    return lambda folder: shown[0].save(folder / name, save_all=True, append_images=shown[1:], duration=80)


def wav(folder: Path) -> None:
    from scipy.io import wavfile

    wave = (np.sin(np.arange(4000) / 5) * 20_000).astype(np.int16)
    wavfile.write(folder / "a.wav", 11_025, np.stack([wave, wave // 2], 1))


def hear(folder: Path) -> object:
    sound = fovea.data.read_sound(folder / "a.wav")
    assert sound.ndim == 1
    assert len(sound)
    assert bool(sound.isfinite().all())
    return len(sound)


def held(folder: Path) -> object:
    """What a data set says of itself, and its pictures, or the reasons why they cannot be read."""
    data = open_data(folder)
    assert data.samples
    assert all(0 <= sample.label < len(data.labels) for sample in data.samples)
    assert all(np.isfinite(sample.boxes).all() for sample in data.samples)
    read = [(sample.name, image) for sample, image in data.first(3).read()]
    for _, image in read:
        said(image) if isinstance(image, FoveaError) else image.load()
    shades = [(name, None if isinstance(image, FoveaError) else image.tobytes()) for name, image in read]
    return data.labels, [(sample.name, sample.label) for sample in data.samples], shades


def sentences(folder: Path) -> object:
    found = open_sentences(folder)
    assert len(found.texts) == len(found.labels) == len(found.tokens)
    return len(found.texts)


def vectors(folder: Path) -> None:
    rows = [
        f"{word} {' '.join(f'{n / 7:.3f}' for n in range(k, k + 8))}" for k, word in enumerate(("the", "cat", "sat"))
    ]
    (folder / "glove.txt").write_text("\n".join(rows) + "\n")


def vectors_read(folder: Path) -> object:
    found = open_vectors(folder / "glove.txt", ["cat", "sat", "zebra"])
    assert np.isfinite(found.matrix).all()
    return found.matrix.shape


def weights_read(folder: Path, name: str = "w.safetensors", **how: Any) -> object:
    network = fovea.load(folder / name) if not how else fovea.load("smallnet", folder / name, **how)
    with torch.no_grad():
        assert network(torch.zeros(1, 3, 64, 64)).ndim == 2
    assert network.labels is None or all(isinstance(label, str) for label in network.labels)
    return network.labels, hash_of(network.module.state_dict())


def pth(folder: Path) -> None:
    torch.save({"epoch": 3, "state_dict": dict(net().module.state_dict())}, folder / "w.pth")


def still(folder: Path) -> None:
    for path in folder.rglob("*"):
        os.utime(path, (WHEN, WHEN))


def index(folder: Path) -> None:
    for n, name in enumerate(("warm/a.png", "warm/b.png", "cold/c.png", "cold/bad.png")):
        (folder / name).parent.mkdir(exist_ok=True)
        Image.fromarray(pixels(shade=n * 40)).save(folder / name)
    (folder / "cold/bad.png").write_bytes(b"no picture")
    net().save(folder / "w.safetensors")
    still(folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fovea.index(folder / "w.safetensors", [folder / "warm", folder / "cold"], folder / "i.fovea", device="cpu")


def search(folder: Path) -> object:
    opened = fovea.open_index(folder / "i.fovea", device="cpu")
    (found,) = opened.search(folder / "warm/a.png", count=2)
    names = [neighbor.name for neighbor in found.neighbors]
    assert all(-1 <= neighbor.similarity <= 1 for neighbor in found.neighbors)
    row = found.to_dict() | {"seconds": 0}
    return names, opened.names, [name for name, _ in opened.skipped], json.dumps(row, sort_keys=True)


def index_again(folder: Path) -> object:
    done = fovea.index(folder / "w.safetensors", [folder / "warm", folder / "cold"], folder / "i.fovea", device="cpu")
    return done.pictures, search(folder)


def patches(folder: Path) -> None:
    for kind in ("ant", "bee"):
        (folder / kind).mkdir()
        for n in range(2):
            Image.fromarray(pixels(shade=n * 40)).save(folder / kind / f"{n}.png")
    patches_read(folder)


def patches_read(folder: Path) -> object:
    found = extract(open_data(folder), PATCHES, folder / "p.sqlite")
    for each in found.values():
        assert np.isfinite([*each.scores, *np.ravel(each.boxes)]).all()
        assert len(each.boxes) == len(each.scores)
    return dict(found.patches), found.skipped


def run(folder: Path) -> None:
    """A run that stands at its first step; the seconds that it took are always the same."""
    train(STEP, folder, device="cpu")
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    torch.save(state | {"seconds": 1.0}, folder / "checkpoint.pt")
    rows = [json.loads(line) | {"seconds": 1.0, "images_per_second": 1.0} for line in (folder / "log.jsonl").open()]
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for name in ("card.json", "curves.png", "started", "weights.safetensors"):
        (folder / name).unlink()


def resume(folder: Path) -> object:
    done = train(STEP, folder, device="cpu", resume=True)
    assert all(0 <= share <= 1 for share in done.score.values())
    rows = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert all(isinstance(row, dict) for row in rows)
    return sorted(done.score)


def recipe_file(folder: Path) -> None:
    content = small() | {"data": digits(16, 8), "augment": {"area": [0.5, 1.0], "flip": True}, "epochs": 2.0, "seed": 3}
    written(
        folder, content | {"optimizer": {"lr": 0.1, "betas": [0.9, 0.99]}, "schedule": {"name": "step", "at": [1.0]}}
    )


def recipe_read(folder: Path) -> object:
    """And what can be refused before the first step: the data, and the network."""
    asked = read_recipe(folder / "tiny.toml")
    medium = medium_of(asked)
    assert 0 < asked.epochs < 1e9
    assert len(medium) < 1e9
    medium.network()
    return sorted(medium.labels)


def saved(folder: Path) -> None:
    made_picture(folder, "a.png")
    fovea.explain(net(), folder / "a.png", method="gradcam").save(folder / "out")


def saved_read(folder: Path) -> object:
    """What is there is read, and a second run adds to it."""
    before = read_results(folder / "out")
    made_picture(folder, "b.png")
    fovea.explain(net(), folder / "b.png", method="gradcam").save(folder / "out")
    after = read_results(folder / "out")
    assert {row["name"] for row in after.results} >= {row["name"] for row in before.results}
    return len(after.results)


def measured(folder: Path) -> None:
    row = {"net": "smallnet", "top1": 0.5, "low": 0.4, "high": 0.6, "params": 1234}
    about = {"settings": {"data": "made", "images": 10}, "command": "fovea measure classify", "seed": 0}
    (folder / "classify-a.json").write_text(json.dumps({"what": "classify", "rows": [row, row]} | about))
    (folder / "trained").mkdir()
    card = {"name": "tiny", "tested_on": "made", "changes": ["seed=1"], "score": {"top1": 0.5}, "minutes": 1.0}
    for seed in (1, 2):
        (folder / f"trained/{seed}.json").write_text(json.dumps(card | {"processor": "CPU", "commit": "abc"}))


def command(*words: object) -> str:
    """A command: what it printed. The line that one that fails ends with is raised, as the library raises it."""
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv, code = ["fovea", *map(str, words)], 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            fovea.cli.main()
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    finally:
        sys.argv = argv
    printed = [*out.getvalue().splitlines(), *err.getvalue().splitlines()]
    assert all(line.isprintable() for line in printed), f"raw names on the terminal: {printed}"
    last = [line for line in printed if line.startswith(("error:", "skipped:"))]
    if code:
        assert code in (1, 2), f"status {code}: {printed}"
        assert last, f"no line says why: {printed}"
        raise FoveaError(last[-1])
    return out.getvalue()


def named(folder: Path) -> None:
    (folder / "pictures/below").mkdir(parents=True)
    made_picture(folder, "pictures/a.png")
    made_picture(folder, "pictures/below/b.png")
    net().save(folder / "w.safetensors")


def by_name(folder: Path) -> object:
    """Commands that read names from a folder, write them, and read them again."""
    weights, given, out = folder / "w.safetensors", folder / "pictures", folder / "out"
    command("explain", given, "--net", weights, "--method", "gradcam", "--out", out / "explain")
    command("index", given, "--net", weights, "--out", out / "i.fovea")
    command("search", given, "--index", out / "i.fovea", "--out", out / "search")
    command("patches", given, "--source", PATCHES, "--out", out / "p.sqlite")
    there = {os.path.relpath(Path(root, name), folder) for root, _, names in os.walk(given) for name in names}
    rows = [row["name"] for row in read_results(out / "explain").results]
    assert {os.path.relpath(name, folder) for name in rows} == there, f"{rows} are not {there}"
    return len(rows), len(read_results(out / "search").results)


def page(folder: Path) -> object:
    command("results", "--from", folder, "--out", folder / "page.md")
    return (folder / "page.md").read_text().count("\n")


def spoken(folder: Path) -> None:
    (folder / "a.txt").write_text("a film that is merely bland\nthe best of the year\n")


def words(folder: Path) -> object:
    return command("localize", folder / "a.txt", "--out", folder / "out").count("\n")


def said(error: BaseException) -> str:
    """The words of an error, which are one line of what may be shown."""
    text = str(error)
    assert text == printable(text), f"an error in more than a line, or with raw characters: {text!r}"
    return text


def picture(name: str, convert: Callable[[Image.Image], Image.Image] = lambda image: image, **how: Any) -> Reader:
    return Reader(partial(made_picture, name=name, convert=convert, **how), look)


READERS: dict[str, Reader] = {
    "picture jpeg": picture("a.jpg", quality=80, exif=exif(Image.new("L", (1, 1)))),
    "picture jpeg, progressive CMYK": picture("a.jpg", lambda image: image.convert("CMYK"), progressive=True),
    "picture png": picture("a.png", pnginfo=texts()),
    "picture png, 16 bit": picture("a.png", sixteen),
    "picture png, palette": picture("a.png", lambda image: image.quantize(16), transparency=3),
    "picture png, RGBA": picture("a.png", lambda image: image.convert("RGBA")),
    "picture png, 1 bit": picture("a.png", lambda image: image.convert("1")),
    "picture gif": picture("a.gif", lambda image: image.quantize(16)),
    "picture webp": picture("a.webp", quality=70),
    "picture tiff": picture("a.tif"),
    "picture tiff, lzw": picture("a.tif", compression="tiff_lzw"),
    "picture tiff, jpeg": picture("a.tif", compression="jpeg"),
    "picture bmp": picture("a.bmp"),
    "clip mp4": Reader(lambda folder: make_clip(folder / "a.mp4", count=9), frames),
    "clip gif": Reader(animation("a.gif"), frames),
    "clip apng": Reader(animation("a.apng"), frames),
    "clip webp": Reader(animation("a.webp"), frames),
    "sound": Reader(wav, hear),
    **{f"data {kind}": Reader(make, held) for kind, make in MAKERS.items() if kind not in ("mr", "mnist")},
    "data mnist": Reader(MAKERS["mnist"], held, exact=True),  # gzip has a checksum
    "text data": Reader(MAKERS["mr"], sentences),
    "text": Reader(spoken, words),
    "word vectors": Reader(vectors, vectors_read),
    "weights": Reader(lambda folder: net().save(folder / "w.safetensors"), weights_read),
    "weights pth": Reader(pth, partial(weights_read, name="w.pth", options=SMALL)),
    "index": Reader(index, search, "i.fovea", exact=True),
    "index, written again": Reader(index, index_again, "i.fovea", exact=True),
    "patch cache": Reader(patches, patches_read, "p.sqlite", exact=True),
    "checkpoint": Reader(run, resume, "checkpoint.pt", exact=True),
    "training log": Reader(run, resume, "log.jsonl"),
    "recipe": Reader(recipe_file, recipe_read),
    "results.json": Reader(saved, saved_read, "out/results.json"),
    "figures": Reader(measured, page),
    "names": Reader(named, by_name, "pictures/*", names=True),
}
