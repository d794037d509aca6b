"""What training costs beside the network itself: the loop of a recipe against bare steps, in one run, turn by turn."""

import json
from collections.abc import Sequence
from contextlib import chdir
from itertools import chain, islice
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from fovea.basics import BadChoice
from fovea.data import MOTIONS, DataSet, Pixels, Sample, held_by, layout, parsed
from fovea.measures import Figures, Run, measure
from fovea.measures.timing import now, timed
from fovea.networks import load
from fovea.training.loop import Running, running
from fovea.training.recipe import Recipe, check, read
from fovea.training.together import part_ways

CLASSES, WORDS, SIDE = 100, 2000, 256  # of made pictures, of made sentences, and a picture's side in pixels
WARM = 4  # steps before any is timed


@measure(
    "bench train",
    title="Time of training",
    about="Pictures per second of training by a recipe, beside bare steps (forward, loss, backward, optimizer) on one "
    "batch: what the rest of the loop costs. Data is made, and weights do not matter.",
    example="--recipe recipes/digits.toml --steps 10",
    nets="none",
    data="none",
)
def bench_train(
    run: Run,
    *,
    recipe: Sequence[str] = (
        "recipes/efficientnet_lite0-cub100.toml",
        "recipes/efficientnet_lite0-imagenette-patches.toml",
        "recipes/anchornet-imagenette.toml",
        "recipes/tnet-cub100.toml",
        "recipes/saccader-imagenette.toml",
        "recipes/dram-imagenette.toml",
        "recipes/bagnet77-imagenette.toml",
        "recipes/twostream-cub100.toml",
        "recipes/protopnet-cub100.toml",
        "recipes/embedding_lite0-cub100.toml",
        "recipes/textcnn-mr.toml",
        "recipes/anchornet_sound-made.toml",
        "recipes/videonet-digits.toml",
        "recipes/digits.toml",
    ),
    batch: int | None = None,
    steps: int = 10,
    rounds: int = 3,
    processes: Sequence[int] = (),
) -> Figures:
    """One row per recipe; a folder stands for all in it. In every round the loop takes `steps` steps, and as many bare
    ones, on batches of the same shapes, are taken before and after. `batch` is the recipe's unless given, and at most 8
    on a processor, where it does not matter. With `processes`, one row per number of them, each with such a batch of
    its own, and no bare steps."""
    files = [sorted(given.glob("*.toml")) if given.is_dir() else [given] for given in map(Path, recipe)]
    recipes = [(path.stem, read(path)) for path in chain(*files)]
    if not recipes:
        raise BadChoice(f"name recipes, or a folder that holds some; got {', '.join(recipe) or 'none'}")
    rows: list[dict[str, Any]] = []
    if processes:
        return _together(run, recipes, batch, steps, rounds, processes)
    for name, each in recipes:
        run.tell(name)
        with TemporaryDirectory() as folder, chdir(folder):  # where patches of two streams are kept, too
            ready = _with_made_data(each, batch or _usual(each, run.device), WARM + steps * rounds, Path(folder))
            with running(ready, Path(folder) / "out", device=run.device) as loop:
                rows.append({"recipe": name, **_row(loop, steps, rounds)})
        run.progress(len(rows), len(recipes))
    settings = {
        "device": run.device,
        "threads": torch.get_num_threads(),
        "steps": steps,
        "rounds": rounds,
        "x_bare": "images per second of the loop in those of the bare steps before and after, median over the rounds",
        "data": "made",
        "weights": "random",
    }
    return Figures("bench train", settings, rows)


def _usual(recipe: Recipe, device: str) -> int:
    return min(recipe.batch, 8) if device == "cpu" else recipe.batch


def _together(
    run: Run,
    recipes: Sequence[tuple[str, Recipe]],
    batch: int | None,
    steps: int,
    rounds: int,
    processes: Sequence[int],
) -> Figures:
    """In every round each number of processes is started anew, so that a busy machine is so for all of them."""
    if min(processes) < 1 or 1 not in processes:
        raise BadChoice(f"several processes are compared with one: --processes 1,2,4; got {list(processes)}")
    rows: list[dict[str, Any]] = []
    for name, recipe in recipes:
        run.tell(name)
        share, speeds = batch or _usual(recipe, run.device), dict[int, list[float]]()
        for _ in range(rounds):
            for count in processes:
                row = _launched(recipe, share, steps, count, run.device)
                speeds.setdefault(count, []).append(row.pop("images_per_second"))
                rows += [{"recipe": name, **row}] if len(speeds[count]) == 1 else []
        for row in rows[-len(processes) :]:
            ours = speeds[row["processes"]]
            row["images_per_second"] = round(median(ours), 1)
            row["per_process"] = round(median(ours) / row["processes"], 1)
            row["x_one"] = round(median(many / one for many, one in zip(ours, speeds[1], strict=True)), 3)
        run.progress(len(rows), len(recipes) * len(processes))
    settings = {
        "device": run.device,
        "threads": 1,
        "steps": steps,
        "rounds": rounds,
        "batch": "pictures of a step, the same for each process",
        "x_one": "images per second of all processes in those of one, in the same round; median over the rounds",
        "gradient_mb": "what is averaged over the processes at every step, in single precision",
        "data": "made",
        "weights": "random",
    }
    return Figures("bench train", settings, rows)


def _launched(recipe: Recipe, batch: int, steps: int, count: int, device: str) -> dict[str, Any]:
    """By what torchrun is made of; what the first process measured."""
    config = LaunchConfig(
        1, 1, count, run_id=str(uuid4()), rdzv_backend="c10d", rdzv_endpoint="localhost:0", max_restarts=0
    )
    launched: dict[int, dict[str, Any]] = elastic_launch(config, _process)(
        recipe.model_dump_json(exclude_unset=True), batch, steps, count, device
    )
    return launched[0]


def _process(recipe: str, batch: int, steps: int, count: int, device: str) -> dict[str, Any]:
    """What one of several processes does: all take their steps, and the last one's end counts."""
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder, chdir(folder):
        ready = _with_made_data(check(json.loads(recipe)), batch * count, WARM + steps, Path(folder))
        ready = ready.model_copy(update={"threads": 1, "log_every": 10**6})
        with running(ready, Path(folder) / "out", device=device) as loop:
            loop.go(WARM)
            loop.fabric.barrier()
            start = now(loop.fabric.device)
            loop.go(steps)
            loop.fabric.barrier()
            seconds = now(loop.fabric.device) - start
            trained = sum(weight.numel() for weight in loop.stepper.parameters() if weight.requires_grad)
            row = {
                "net": ready.network.name,
                "strategy": ready.strategy,
                "processes": count,
                "batch": loop.order.batch,
                "device": loop.fabric.device.type,
                "precision": loop.job.precision.precision,
                "gradient_mb": round(trained * 4 / 1e6, 2),
                "images_per_second": loop.order.batch * steps / seconds,
            }
            part_ways(loop.fabric)
    return row


def _row(loop: Running, steps: int, rounds: int) -> dict[str, Any]:
    device, batch = loop.fabric.device, loop.order.batch
    parts, lying, shapes = loop.recipe.accumulate, dict[Any, Any](), list[Any]()
    for each in islice(loop.feed.batches(loop.order.wanted(0)), parts * (WARM + steps * rounds)):
        shapes.append(getattr(each.inputs, "shape", None))  # patches of different branches differ
        if shapes[-1] not in lying:
            lying[shapes[-1]] = loop.shown(each)

    def bare(start: int) -> float:
        turns = [lying[shape] for shape in shapes[start * parts :][: steps * parts]]
        return timed(lambda: _bare(loop, turns), device)[0] / steps

    loop.go(WARM)
    bare(0)
    ours, beside = list[float](), list[float]()
    for start in range(WARM, WARM + steps * rounds, steps):
        before = bare(start)
        ours.append(timed(lambda: loop.go(steps), device)[0] / steps)
        beside.append((before + bare(start)) / 2)
    return {
        "net": loop.recipe.network.name,
        "batch": batch,
        "device": device.type,
        "precision": loop.job.precision.precision,
        "images_per_second": round(batch / median(ours), 1),
        "bare_images_per_second": round(batch / median(beside), 1),
        "x_bare": round(median(other / own for own, other in zip(ours, beside, strict=True)), 3),
    }


def _bare(loop: Running, batches: Sequence[tuple[Any, Tensor]]) -> None:
    """Steps of the network, its loss and its optimizer alone."""
    for i, (inputs, target) in enumerate(batches, 1):
        with loop.job.precision.forward_context():
            loss, _ = loop.stepper(inputs, target)
        loss.backward()
        if i % loop.recipe.accumulate == 0:
            loop.optimizer.step()
            loop.optimizer.zero_grad()


def _with_made_data(recipe: Recipe, batch: int, steps: int, folder: Path) -> Recipe:
    """The recipe with random weights, on data of the same shape that is made for so many steps."""
    content, each = recipe.model_dump(exclude_unset=True), recipe.per_class or 1
    batch, texts = max(batch // each, 2) * each, held_by(recipe.data.train) == "texts"
    distil = content.get("loss", {}).get("distil")
    like = distil["teacher"] if distil else recipe.data.localizer
    made = _texts(folder, batch) if texts else _made(recipe, 2 * batch, like, batch // each)
    content["data"] |= {"train": made, "validation": None, "test": None}
    content["network"] |= {"weights": None, "keep": False, "pretrained": texts}  # a vocabulary is in the weights
    if "source" in recipe.network.options:
        content["network"]["options"]["source"] = "random:seed=0"
    off = dict.fromkeys(("best", "place", "principal", "project"), False)
    return check(content | off | {"batch": batch, "epochs": max(recipe.epochs, steps), "save_every": 1e6})


def _made(recipe: Recipe, count: int, like: str | None, classes: int) -> str:
    """What stands for the data of a recipe that holds pictures, sounds or clips: made anyway, or made here."""
    name, options = parsed(recipe.data.train)
    if held_by(recipe.data.train) == "clips":
        name, count = "moving", max(count, 3 * len(MOTIONS) * (recipe.per_class or 1))  # some of every class
    if name in ("sounds", "moving", "megapixel"):
        options = {key: options[key] for key in options if key not in ("source", "file", "seconds")}
        options |= {"count": str(count)} | ({} if name == "sounds" else {"source": "digits"})
        return f"{name}:" + ",".join(f"{key}={value}" for key, value in options.items())
    named = f",like={like}" if like else f",classes={min(classes, CLASSES)}"
    return f"{__name__}:noise:count={count},side={recipe.data.side or SIDE}{named}"


@layout("noise", about="made: pictures of noise, to time what is done with them")
def noise(*, count: int, side: int = SIDE, classes: int = CLASSES, like: str | None = None) -> DataSet:
    labels = tuple(map(str, range(classes))) if like is None else tuple(load(like).labels or ())
    random = np.random.default_rng(0)
    pixels = [random.integers(0, 256, (side, side, 3), np.uint8) for _ in range(min(count, 8))]
    samples = (Sample(f"{i:06}", i % len(labels), Pixels(pixels[i % len(pixels)])) for i in range(count))
    return DataSet("noise", tuple(samples), labels)


def _texts(folder: Path, batch: int) -> str:
    """Sentences of made words with vectors beside them."""
    random = np.random.default_rng(0)
    for end in ("pos", "neg"):
        lines = [" ".join(f"w{i}" for i in random.integers(WORDS, size=20)) for _ in range(4 * batch)]
        (folder / f"rt-polarity.{end}").write_text("\n".join(lines))
    rows = (f"w{i} " + " ".join(f"{x:.3f}" for x in random.standard_normal(300)) for i in range(WORDS))
    (folder / "vectors.txt").write_text("\n".join(rows))
    return f"{folder}:split=train"
