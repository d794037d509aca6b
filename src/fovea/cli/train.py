"""fovea train."""

import os
import shlex
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fovea.basics import BadChoice, FoveaError, of_environment, plain, write_text
from fovea.cli.commands import Asked, command
from fovea.cli.common import Bar, bar, say, say_page, shortened_command, warn

if TYPE_CHECKING:
    from fovea.training.loop import Trained
    from fovea.training.recipe import Recipe

NEEDED = ("lightning", "sklearn")  # of the extra `train`
USUAL = "efficientnet_lite0"
FEW = 10  # classes, or pairs of them, that are told one by one


@command(
    "train",
    arguments=("recipe?",),
    options=("data", "net", "name", "set", "out", "resume", "fresh", "device"),
    usual={"net": (USUAL,)},
    help={
        "recipe": "A recipe file (TOML), as those in recipes/; without one, it is written for the pictures of --data.",
        "data": "Pictures of your own, one folder per class: photos/CLASS/*.jpg, or below photos/train, val and test.",
        "net": "Without a recipe: the network to start from, by a name from 'fovea models'.",
        "name": "Name of the trained network; that of the recipe, or of the folder of pictures, if not given.",
        "out": "Folder for recipe, checkpoint, log, curves, weights, card and page; out/train/NAME if not given.",
    },
    examples=(
        "fovea train --data photos/",
        "fovea train recipes/digits.toml --set epochs=2 --set seed=1",
        "torchrun --nproc-per-node 2 -m fovea train recipes/digits.toml",
    ),
)
def train(asked: Asked) -> None:
    """Train a network on a folder of your own pictures, or by a recipe: weights, curves, and a page of its errors.

    A run that was killed goes on with --resume and ends as if nothing had happened."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise FoveaError(f"training needs more packages ({', '.join(missing)}): pip install 'fovea[train]'")
    if asked.recipe is None and asked.data is None:
        raise BadChoice("name a recipe, or the pictures to train on: fovea train --data photos/")
    if asked.recipe is not None and (stray := asked.typed & {"data", "net"}):
        raise BadChoice(
            f"a recipe names its data and network: leave --{min(stray)} out, or use --set, as --set data.train=…"
        )
    if asked.name is not None and plain(asked.name) != asked.name:
        raise BadChoice(f"--name is letters, digits, - and _, such as {plain(asked.name)!r}; got {asked.name!r}")
    recipe, name, out = _by_recipe(asked) if asked.recipe is not None else _by_folder(asked)
    try:
        done = _trained(asked, recipe, name, out)
    except (KeyboardInterrupt, SystemExit):
        warn.print(f"to go on: {_again(asked, out)} --resume")
        raise
    if os.environ.get("RANK", "0") != "0":  # among processes that torchrun started, one speaks for all
        return
    if asked.recipe is None:
        _measure_and_explain(recipe, done, out)


def _by_recipe(asked: Asked) -> "tuple[Recipe, str, Path]":
    from fovea.training import recipe as recipes

    recipe = recipes.read(asked.recipe, asked.set or ())
    name = asked.name or recipe.name or asked.recipe.stem
    return recipe, name, asked.out or Path("out/train") / name


def _by_folder(asked: Asked) -> "tuple[Recipe, str, Path]":
    """By a recipe that is written for the folder; a run that goes on has its own already."""
    from fovea.training import folder
    from fovea.training import recipe as recipes

    parts = folder.divided(asked.data)
    name = asked.name or parts.name
    out = asked.out or Path("out/train") / name
    written = out / folder.RECIPE
    if (out / folder.CHECKPOINT).is_file() and not (asked.resume or asked.fresh or _restarted(out)):
        raise BadChoice(f"{out} holds a run: --resume goes on with it, --fresh throws it away")
    counts = [sum(part.values()) for part in parts.counts()]
    classes = len({sample.label for sample in parts.whole.samples})
    told = f"{counts[0]} to train, {counts[1]} for validation, {counts[2]} to test"
    say.print(f"{asked.data}: {sum(counts)} pictures of {classes} classes: {told}")
    goes_on = asked.resume and written.is_file()
    if not goes_on:
        with bar(f"loading {asked.one('net')}"):
            heads = _heads(asked.one("net"), len(parts.whole.labels))
        try:
            write_text(written, folder.text_of(parts, asked.one("net"), name, heads))
        except UnicodeEncodeError:
            raise BadChoice(f"--data {asked.data!r} is not UTF-8, as recipes are: rename the folder") from None
    say.print(f"recipe: {written}")
    recipe = recipes.read(written, asked.set or ())
    begun = recipe.data.train, recipe.network.name
    if goes_on and begun != (parts.train, asked.one("net") if "net" in asked.typed else begun[1]):
        raise BadChoice(f"{out} was begun with the data {begun[0]} and the network {begun[1]}: name another --out")
    return recipe, asked.name or recipe.name or name, out


def _heads(net: str, classes: int) -> list[str]:
    """The layers whose size follows from the number of classes, which are new."""
    from fovea.networks import load

    ours, others = (load(net, pretrained=False, classes=count).module.state_dict() for count in (classes, classes + 1))
    layers = (name.rpartition(".")[0] for name in ours if ours[name].shape != others[name].shape)
    return list(dict.fromkeys(filter(None, layers)))


def _trained(asked: Asked, recipe: "Recipe", name: str, out: Path) -> "Trained":
    with bar("loading torch"):
        from fovea.training.loop import said, train

    with bar(f"training {name}") as advance:
        restarted = _restarted(out)
        options = asked.resume or restarted, asked.fresh and not restarted
        done = train(recipe, out, name, *options, asked.device, _Shown(advance), asked.set or ())
    if os.environ.get("RANK", "0") == "0":
        if asked.recipe is not None:  # of a folder it is said with its interval
            say.print(f"score: {said(done.score)}{_against(recipe.expected, done.score)}")
        say.print(f"time: {done.minutes:.1f} minutes; weights: {done.weights} (sha256 {done.hash} of its tensors)")
        say.print(f"card: {done.card}; curves: {out / 'curves.png'}; log: {out / 'log.jsonl'}")
    return done


def _again(asked: Asked, out: Path) -> str:
    """The command as it goes on with a run."""
    what = [str(asked.recipe)] if asked.recipe is not None else ["--data", asked.data]
    changes = [word for change in asked.set or () for word in ("--set", change)]
    return shlex.join(["fovea", "train", *what, *changes, "--out", str(out)])


def _restarted(where: Path) -> bool:
    """torchrun starts all processes again when one of them died: then the run that it began goes on by itself."""
    if of_environment("TORCHELASTIC_RESTART_COUNT", 0, 0) == 0:
        return False
    from fovea.training.loop import STARTED
    from fovea.training.together import attempt

    begun = where / STARTED
    return begun.is_file() and attempt() in begun.read_text(encoding="utf-8", errors="replace").splitlines()


def _against(expected: dict[str, float], score: dict[str, float]) -> str:
    known = {key: value for key, value in expected.items() if key in score}
    stated = [f"{key} {value} {'reached' if score[key] >= value else 'NOT reached'}" for key, value in known.items()]
    return f" (stated: {', '.join(stated)})" if stated else ""


class _Shown:
    """How far a run is, on stderr."""

    def __init__(self, bar: Bar) -> None:
        self.bar, self.name = bar, bar.what

    def decoding(self, done: int, total: int) -> None:
        self.bar.tell("decoding pictures" if done < total else "pictures are decoded, training begins")
        self.bar(done, total)

    def step(self, done: int, total: int, facts: dict[str, Any]) -> None:
        speed = f"{facts['images_per_second']:,.0f} images/s"
        self.bar.tell(self.name)
        self.bar(done, total, f"epoch {facts['epoch']:.1f}, loss {facts['loss']:.3f}, {speed}")

    def line(self, text: str) -> None:
        warn.print(text)


def _measure_and_explain(recipe: "Recipe", done: "Trained", out: Path) -> None:
    """How sure the score is, which classes are taken for which, and the page of test pictures, wrong ones first."""
    with bar("measuring") as advance:
        from fovea.data import open_data
        from fovea.measures.registry import measure as registry
        from fovea.measures.runner import draw, measure
        from fovea.training.tested import page_of

        network = done.network
        test = open_data(recipe.data.test or "", names=network.labels)
        found = measure("classify", network, test, progress=advance)
    found.write(out / "test.json", recipe.seed, recipe.source, shortened_command())
    draw(found, registry.get("classify").declared, out / "confusion.png")
    row = found.rows[0]
    interval = f"95 % interval {row['low']:.3f} to {row['high']:.3f}"
    say.print(f"test: {row['top1']:.3f} of {row['images']} pictures right ({interval})")
    for one in found.details["per_class"] if len(found.details["per_class"]) <= FEW else ():
        say.print(f"  {one['class']}: {one['top1']:.3f} of {one['images']}")
    for one in found.details["most_confused"][:FEW]:
        say.print(f"  {one['class']} taken for {one['taken_for']}: {one['times']} of {one['of']}")
    lost = {name for name, _ in found.skipped}
    read = [sample for sample in test.samples if sample.name not in lost]
    answers = zip(read, found.extra.true.tolist(), found.extra.taken.tolist(), strict=True)
    outcomes = [(sample, network.label(true), network.label(taken)) for sample, true, taken in answers]
    with bar("explaining test pictures") as advance:
        page = page_of(network, test, outcomes, out / "page", advance)
    say.print(f"figures: {out / 'test.json'}; which classes are taken for which: {out / 'confusion.png'}")
    say.print(f"to use it: {shlex.join(['fovea', 'explain', 'new.jpg', '--net', str(done.weights)])}")
    say_page(page)
