"""A recipe for a folder of one's own pictures: how it is divided, and settings that do for small folders.

The settings were chosen on parts of training splits (docs/decisions.md). Nothing here needs torch."""

import json
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fovea.basics import BadChoice, plain, printable, shown
from fovea.data import DataSet, held_by, open_data, parsed

RECIPE, CHECKPOINT = "recipe.toml", "checkpoint.pt"  # of a run
VALIDATION = ("val", "valid", "validation")  # what a split for validation may be called
LEAST = 4  # pictures of a class: two to train, one for validation, one to test
EPOCHS = ((200, 12), (1000, 8), (5000, 5))  # up to so many pictures to train; 3 of more


@dataclass(frozen=True)
class Parts:
    """What is trained on, what chooses among epochs, and what is reported: data as `open_data` takes it."""

    given: str
    whole: DataSet
    train: str
    validation: str
    test: str

    @property
    def name(self) -> str:
        """Of the network, as the folder is called."""
        return plain(self.whole.name)

    def counts(self) -> list[Counter[int]]:
        """Pictures of each class, part by part."""
        parts = (open_data(part, names=self.whole.labels) for part in (self.train, self.validation, self.test))
        return [Counter(sample.label for sample in part.samples) for part in parts]


def divided(given: str) -> Parts:
    """A data set's own splits where it has them; what is missing is held out, tenth by tenth of every class."""
    if (holds := held_by(given)) != "pictures":
        raise BadChoice(f"{given} holds {holds}: write a recipe for it (docs/train.md), as recipes/ has some")
    options, whole = parsed(given)[1], open_data(given)
    if {"folds", "part"} & set(options):
        raise BadChoice(
            f"{given} is divided by folds= or part= already: write a recipe that names its parts (docs/train.md)"
        )
    _check_classes(whole, "labels" in options)

    def part(**more: str) -> str:
        added = ",".join(f"{key}={value}" for key, value in more.items())
        return f"{given}{',' if options else ':'}{added}"

    splits = {sample.row.get("split") for sample in whole.samples} if "split" not in options else set()
    if "train" not in splits or len(splits) == 1:
        parts = Parts(given, whole, part(folds="0-5"), part(folds="6-7"), part(folds="8-9"))
    else:
        others = [name for name in (*VALIDATION, "test") if name in splits]
        train, test = part(split="train"), part(split=others[-1])
        if len(others) > 1:
            parts = Parts(given, whole, train, part(split=others[0]), test)
        else:
            parts = Parts(given, whole, f"{train},folds=0-7", f"{train},folds=8-9", test)
    _check_counts(parts)
    return parts


def _check_classes(whole: DataSet, chosen: bool) -> None:
    used = {whole.labels[sample.label] for sample in whole.samples}
    if len(used) < 2:
        raise BadChoice(f"{whole.name} holds one class, {next(iter(used), '')!r}: two or more are needed")
    empty = [label for label in whole.labels if label not in used and not label.isdecimal()]
    if empty and not chosen:
        raise BadChoice(f"{whole.name}: no picture of the class {shown(empty[0])}: put some there, or take it away")
    alike: dict[str, str] = {}
    for label in whole.labels:
        key = unicodedata.normalize("NFKC", label).casefold().strip()
        if key in alike:
            raise BadChoice(
                f"{whole.name}: the classes {alike[key]!r} and {label!r} have the same name but for case: rename one"
            )
        alike[key] = label


def _check_counts(parts: Parts) -> None:
    train, validation, test = parts.counts()
    labels, whole = parts.whole.labels, train + validation + test
    few = {label: count for label, count in sorted(whole.items()) if count < LEAST or train[label] < 2}
    if few:
        said = ", ".join(f"{labels[label]} ({count})" for label, count in list(few.items())[:5])
        mend = f"training, validation and test take {LEAST} of every class or more, and twenty or more do better"
        raise BadChoice(f"{parts.whole.name}: too few pictures of {said}: {mend}")


def text_of(parts: Parts, net: str, name: str, heads: Sequence[str]) -> str:
    """The recipe, with words for those who want to change it; `heads` are the layers that are new."""
    train = sum(parts.counts()[0].values())
    epochs, batch = next((epochs for most, epochs in EPOCHS if train <= most), 3), 16 if train <= 1000 else 32
    labels = sorted({sample.label for sample in parts.whole.samples})
    groups = "".join(f"\n    {{ match = {_quoted(f'{head}.*')}, lr = 3e-3 }}," for head in heads)
    return f"""\
# Written by fovea for {printable(parts.whole.name)}; docs/train.md says what else can stand here.
name = {_quoted(name)}
about = {_quoted(f"{net} fine-tuned to tell {len(labels)} classes apart")}
epochs = {epochs}
batch = {batch}
best = true           # keep the epoch that does best on the validation pictures
save_every = 10       # seconds
log_every = {max(1, min(train // batch, 10))}         # steps

[network]
name = {_quoted(net)}
squash = true         # whole pictures, not their middle

[data]                # folds are tenths of every class; fold_seed=1 beside them divides otherwise
train = {_quoted(parts.train)}
validation = {_quoted(parts.validation)}
test = {_quoted(parts.test)}

[augment]
area = [0.35, 1.0]
aspect = [0.75, 1.333]
flip = true           # false where left and right matter, as in writing

[loss]
smoothing = 0.1

[optimizer]
name = "adamw"
lr = 3e-4             # of what was trained before; what is new learns faster
weight_decay = 0.01
groups = [{groups}{chr(10) if groups else ""}]

[schedule]
name = "cosine"
warmup = 1            # epochs
"""


def _quoted(text: str) -> str:
    """As TOML writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
