"""AnchorNet-T on MR: spans for classification (Table 4 of Yang et al. 2020) and what attention brings (Table 7).

Every seed divides the sentences anew and starts from other weights; the networks are trained by their recipes."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch

from fovea.basics import student
from fovea.data import open_sentences
from fovea.measures import Figures, Run, measure
from fovea.measures.figures import printed
from fovea.models.anchornet_text import WINDOWS, localized
from fovea.models.textcnn import WINDOWS as FILTERS
from fovea.networks import Network, macs, reading_of
from fovea.training import loop
from fovea.training.recipe import read

Tell = Callable[[str], None]
CNN, SPANS = "textcnn-mr", "textcnn-mr-spans"
ANCHOR = "anchornet_text"  # whichever recipe trained it
ABLATION = {  # Table 7, from the bottom: the recipe's own network has both
    "+ attention": ("network.options.auxiliary=false",),
    "baseline": ("network.options.attention=false",),
}
HEADS = tuple(f"b{window}" for window in WINDOWS)


@dataclass(frozen=True)
class Seed:
    """What one seed gave: scores by network, and the cost of a sentence on average."""

    cnn: float
    anchor: dict[str, float]  # top1, b3, b5, b7
    spans: float
    ablation: dict[str, dict[str, float]]
    by_branch: dict[str, int]  # sentences, by the branch that localized them
    sentences: int
    macs: dict[str, int]  # padded to the networks' length, as in the paper
    bare: dict[str, int]  # of the sentences as long as they are


@measure(
    "text",
    title="Text",
    about="How AnchorNet-T and the text CNN do on film reviews (MR), trained anew by their recipes: a few CPU minutes "
    "per seed.",
    example="--seeds 5 --recipe anchornet_text-mr",
    nets="none",
    data="none",
    seed=0,
)
def text(
    run: Run,
    *,
    seeds: int = 5,
    device: str = "auto",
    out: str | Path | None = None,
    recipe: Sequence[str] = ("anchornet_text-mr",),
    recipes: str | Path = "recipes",
    ablation: bool = True,
    set: Sequence[str] = (),
) -> Figures:
    """Rows of Tables 4 and 7, the latter whole with `ablation`, as means over the seeds 0, 1, … with 95 % intervals.
    `recipe` names AnchorNet-T's in the folder `recipes`, as anchornet_text-mr-paper; each gives its rows. `out` keeps
    the runs, one folder per seed and network, and finished ones are not made again; without it they are thrown away.
    `set` changes every recipe, as `epochs=1`."""
    names, about = [Path(given).stem for given in recipe], f"means over {seeds} seed{'s' if seeds > 1 else ''}"
    tables = {}
    with TemporaryDirectory() as folder:
        for name in names:
            trainer = Trainer(name, device, Path(out or folder), Path(recipes), ablation, tuple(set), run.tell)
            found = [trainer.one_seed(seed) for seed in range(seeds)]
            tables[f"text for classification, {name}, {about}"] = _table_4(found, name)
            tables[f"what attention brings, {name}, {about}"] = _table_7(found, name)
    settings = {
        "data": "mr, 80 / 10 / 10 % divided by each seed; accuracy on its test part",
        "device": "cuda" if device != "cpu" and torch.cuda.is_available() else "cpu",
        "seeds": seeds,
        "recipes": [CNN, *names, SPANS],
        "changes": list(set),
        "interval": "95 % of the mean over the seeds, by Student's t; one seed has none",
        "macs": "multiplications a sentence, padded to the networks' length; a span to the widest filter at least",
        "macs_unpadded": "the same of sentences without padding, on average over the test sentences",
        "macs_ratio": f"to {CNN}: without the localizer, and with it (macs_ratio_all)",
        "localized_b3": "test sentences whose span this branch gave, on average over the seeds; b5, b7 alike",
    }
    shown = {title: printed(rows, [*rows[0]][2:]) for title, rows in tables.items()}  # the title says the first two
    return Figures("text", settings, [row for rows in tables.values() for row in rows], tables=shown)


@dataclass(frozen=True)
class Trainer:
    """Trains the networks of a seed, or takes those that are there."""

    anchor: str  # AnchorNet-T's recipe
    device: str
    out: Path
    recipes: Path
    ablation: bool
    changes: tuple[str, ...]
    tell: Tell

    def trained(self, seed: int, name: str, called: str, *more: str) -> loop.Trained:
        changes = [f"seed={seed}", *more, *self.changes]
        recipe = read(self.recipes / f"{name}.toml", changes)
        train, test = (_dealt(given, seed) for given in (recipe.data.train, recipe.data.test or recipe.data.train))
        changes += [f"data.train={train}", f"data.test={test}"]
        folder = self.out / f"{called}-{seed}"
        done = loop.train(
            read(self.recipes / f"{name}.toml", changes), folder, name, resume=(folder / "checkpoint.pt").exists(),
            device=self.device, changes=[change for change in changes if str(self.out) not in change],
        )  # fmt: skip
        self.tell(f"seed {seed}, {called}: {loop.said(done.score)} in {done.minutes:g} min")
        return done

    def one_seed(self, seed: int) -> Seed:
        cnn, anchor = self.trained(seed, CNN, CNN), self.trained(seed, self.anchor, self.anchor)
        files = f"network.weights={cnn.weights}", f"data.localizer={anchor.weights}"
        spans = self.trained(seed, SPANS, f"{self.anchor}-spans", "network.name=textcnn", *files)
        parts = {}
        for called, more in ABLATION.items() if self.ablation else ():
            folder = f"{self.anchor}-{called.replace('+ ', 'with-')}"
            parts[called] = self.trained(seed, self.anchor, folder, *more).score
        recipe = read(self.recipes / f"{CNN}.toml", self.changes)
        test = open_sentences(_dealt(recipe.data.test or recipe.data.train, seed))
        found = localized(anchor.network, [reading_of(anchor.network)(line) for line in test.texts])
        counts = Counter(HEADS[span.branch] for span in found)
        lengths = [min(len(tokens), reading_of(cnn.network).length) for tokens in test.tokens]
        spanned = average(spans.network, [max(WINDOWS[span.branch], FILTERS[-1]) for span in found])
        both = {CNN: cnn.network, ANCHOR: anchor.network}
        whole = {name: average(network, [reading_of(network).length]) for name, network in both.items()}
        bare = {
            CNN: average(cnn.network, [max(length, FILTERS[-1]) for length in lengths]),
            ANCHOR: average(anchor.network, [max(length, WINDOWS[-1]) for length in lengths]),
        }
        return Seed(
            cnn.score["top1"], anchor.score, spans.score["top1"], parts, {head: counts[head] for head in HEADS},
            len(test), whole | {SPANS: spanned}, bare | {SPANS: spanned},
        )  # fmt: skip


def average(network: Network, lengths: Sequence[int]) -> int:
    """Multiplications of a sentence on average over these lengths."""
    each = Counter(lengths)
    one = {length: macs(network, torch.ones(1, length, dtype=torch.long, device=network.device)) for length in each}
    return round(sum(one[length] * times for length, times in each.items()) / len(lengths))


def mean_with_interval(values: Sequence[float]) -> tuple[float, float | None, float | None]:
    """The mean and its 95 % interval, where there is more than one value."""
    return mean(values), *(student(values, -inf, inf) if len(values) > 1 else (None, None))


def _dealt(given: str, seed: int) -> str:
    """The same part of the data, divided by another seed."""
    name, _, options = given.partition(":")
    kept = [one for one in options.split(",") if one and not one.startswith("seed=")]
    return f"{name}:{','.join([*kept, f'seed={seed}'])}"


def _table_4(found: Sequence[Seed], recipe: str) -> list[dict[str, Any]]:
    def row(net: str, accuracies: Sequence[float], *parts: str) -> dict[str, Any]:
        accuracy, low, high = mean_with_interval(accuracies)
        own = parts[-1:]  # what reads the words last; before it stands who chose them

        def cost(kind: str, names: Sequence[str]) -> float:
            return mean(float(sum(getattr(one, kind)[name] for name in names)) for one in found)

        line: dict[str, Any] = {"table": "4", "recipe": recipe, "net": net}
        line |= {"accuracy": accuracy, "low": low, "high": high}
        for kind, key in (("macs", "macs"), ("bare", "macs_unpadded")):
            line[key] = round(cost(kind, own))
            line |= {f"{key}_ratio": cost(kind, own) / cost(kind, [CNN])}
            line |= {f"{key}_ratio_all": cost(kind, parts) / cost(kind, [CNN])}
        return line

    by_branch = {f"localized_{head}": mean(one.by_branch[head] for one in found) for head in HEADS}
    sentences = {"sentences": found[0].sentences}
    return [
        row("CNN", [one.cnn for one in found], CNN) | sentences,
        row("AnchorNet-T", [one.anchor["top1"] for one in found], ANCHOR) | sentences,
        row("AnchorNet-T + CNN", [one.spans for one in found], ANCHOR, SPANS) | sentences | by_branch,
    ]


def _table_7(found: Sequence[Seed], recipe: str) -> list[dict[str, Any]]:
    scores = {called: [one.ablation[called] for one in found] for called in reversed(found[0].ablation)}
    scores["+ attention + auxiliary"] = [one.anchor for one in found]
    rows = []
    for called, each in scores.items():
        row: dict[str, Any] = {"table": "7", "recipe": recipe, "net": f"AnchorNet-T {called}"}
        for head in ("top1", *HEADS):
            middle, low, high = mean_with_interval([one[head] for one in each])
            row |= {head: middle, f"{head}_low": low, f"{head}_high": high}
        rows.append(row)
    return rows
