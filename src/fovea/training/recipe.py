"""A recipe: one small TOML file that says how a network is trained; those that come with fovea also say what it should
score and how long that took."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import Field, JsonValue, PlainValidator, PrivateAttr, SerializeAsAny, ValidationError, model_validator
from pydantic_core import ErrorDetails

from fovea.basics import BOUNDS, SEED, BadChoice, nearest, shortened, shown, within
from fovea.training.losses import DEFAULT, Loss, chosen, settings_of
from fovea.training.parts import Batch, Called, Count, NotNegative, Part, Positive, Share, Side, Smoothing, bounds

Name = Annotated[str, Field(min_length=1, max_length=10_000)]
Threads = Annotated[int, Field(ge=1, le=512)]  # each takes room for its stack
Range = Annotated[list[NotNegative], Field(min_length=2, max_length=2)]
Seed = Annotated[int, bounds(SEED)]
Workers = Annotated[int, bounds(BOUNDS["workers"])]
Score = Annotated[float, Field(ge=-1e6, le=1e6)]
Whole = Annotated[int, Field(ge=0, le=1_000_000)]
LONGEST = 1_000_000  # bytes of a recipe
MOST = 8  # mistakes that are said at once


class NetworkPart(Part):
    name: str
    pretrained: bool = True  # start from the network's own weights where it has some
    weights: str | None = None  # or from this file
    # the last layer starts from what these weights know of the data's classes, found by name; "all": it stays as it is,
    # and the data's classes are found among its own
    keep: Literal[True, False, "all"] = False
    options: dict[str, JsonValue] = {}  # for whoever builds it
    size: Side | None = None  # the input's side in pixels; the network's own unless given
    crop: Annotated[float, Field(gt=0, le=1)] | None = None  # share of the short side seen when it is used
    squash: bool = False  # the whole picture, squashed into the input


class DataPart(Part):
    train: Name  # as fovea.data.open_data takes it
    more: list[Name] = []  # further pictures to train on, whose classes do not matter where a teacher names them
    validation: Name | None = None  # held out of training, and looked at after every epoch
    test: Name | None = None  # looked at once at the end where there is validation data
    hold: Literal["auto", True, False] = "auto"  # decode once, keep bytes in memory (on the GPU where there is one)
    side: Side | None = None  # of the square that a held picture is kept in; 8/7 of the input unless given
    workers: Workers | None = None  # that decode, where pictures are not held; by the cores, 2 to 8, unless given
    localizer: str | None = None  # train on what this network localizes
    branch: Side | None = None  # of the localizer, by its patches' side: the only one; all by turns unless given
    together: Count = 1  # patches of a picture in a step, whose answers are added up as when they are read


class AugmentPart(Part):
    area: Range = [1.0, 1.0]  # share of the picture that a random crop keeps
    aspect: Range | None = None  # width to height of the crop; unless given, the picture's own
    patch_area: Range = [1.0, 1.0]  # likewise of a patch, for networks of two streams
    flip: bool = False
    brightness: Share = 0.0
    contrast: Share = 0.0
    saturation: Share = 0.0
    brightness_added: Share = 0.0  # light added to or taken from all of a picture, up to this share of white
    hue: Share = 0.0  # up to this share of the circle, at most half of it, either way
    kernels: bool = False  # resized by one of eight kernels, drawn for each picture, in place of bilinearly
    mixup: NotNegative = 0.0  # alpha; 0 is off. With both, each batch takes one of the two
    cutmix: NotNegative = 0.0
    hide: Share = 0.0  # Hide-and-Seek: the chance of each square of a grid to be hidden; 0 is off
    hide_sizes: list[Whole] = [0, 16, 32, 44, 56]  # of the squares, in pixels; 0 hides nothing

    @model_validator(mode="after")
    def _ranges(self) -> "AugmentPart":
        for name, area in (("area", self.area), ("patch_area", self.patch_area)):
            if not 0 < area[0] <= area[1] <= 1:
                raise ValueError(f"{name} is [least, most] with 0 < least <= most <= 1; got {area}")
        if self.hue > 0.5:
            raise ValueError(f"hue is turned by up to half of the circle, 0.5; got {self.hue}")
        if not self.hide_sizes:
            raise ValueError("hide_sizes holds at least one size")
        if self.aspect is not None and not 0 < self.aspect[0] <= self.aspect[1]:
            raise ValueError(f"aspect is [least, most] with 0 < least <= most; got {self.aspect}")
        return self


class GroupPart(Part):
    match: str  # a glob over parameter names
    lr: NotNegative | None = None  # 0 freezes them
    weight_decay: NotNegative | None = None


class OptimizerPart(Part):
    name: Literal["sgd", "adam", "adamw", "adadelta", "rmsprop"] = "sgd"
    lr: Positive = 0.1
    weight_decay: NotNegative = 0.0
    decay_all: bool = False  # also biases and the weights of norms
    momentum: Share | None = None
    nesterov: bool | None = None
    betas: Range | None = None
    rho: Share | None = None
    eps: Positive | None = None
    clip: Positive | None = None  # the gradient's norm
    groups: list[GroupPart] = []


class SchedulePart(Part):
    name: Literal["cosine", "step", "constant"] = "cosine"
    warmup: NotNegative = 0.0  # epochs
    floor: Share = 0.0  # of cosine, as a share of the learning rate
    at: list[Positive] = []  # epochs at which step multiplies by factor
    factor: Positive = 0.1

    @model_validator(mode="after")
    def _of_one_kind(self) -> "SchedulePart":
        belong = {"at": "step", "factor": "step", "floor": "cosine"}
        stray = [key for key in sorted(self.model_fields_set) if belong.get(key, self.name) != self.name]
        if stray:
            raise ValueError(f"{stray[0]} belongs to the schedule {belong[stray[0]]!r}; this one is {self.name!r}")
        if self.name == "step" and not self.at:
            raise ValueError("step needs at = [epochs at which the rate falls]")
        return self


class TookPart(Part):
    minutes: Positive
    on: str  # kind of processor


class Recipe(Part):
    about: str = ""
    command: str | None = None
    name: Called | None = None  # of the trained network; the file's unless given
    seed: Seed = 0
    epochs: Positive
    batch: Batch = 64  # pictures a step, over all processes
    per_class: Batch | None = None  # so many of each of a few classes in every batch, for losses that compare pictures
    accumulate: Batch = 1  # parts that a process's share of the batch is taken in
    ema: Smoothing = 0.0  # decay of the averaged weights; 0: none
    precision: Literal["auto", "fp64", "fp32", "bf16", "fp16"] = "auto"
    threads: Threads | None = None  # of the CPU; torch takes as many as there are cores
    sync_norm: bool = True  # batch norm over all processes
    strategy: Literal["ddp", "fsdp"] = "ddp"  # of several processes: each has the whole network, or a shard of it
    compile: bool = False  # by torch.compile: a minute at the start, faster steps on a GPU
    settle: Whole = 0  # batches by which batch norm's statistics are taken anew at the end
    place: bool = False  # at the start, prototypes are cells of training pictures
    principal: bool = False  # at the start, an embedding's layer projects on the features' principal directions
    project: bool = False  # at the end, prototypes become the nearest cells of training pictures
    best: bool = False  # keep the weights of the epoch that did best on the validation data
    half: bool = False  # the weights file in fp16; the score is measured with what is in it
    test_every: Positive = 1.0  # epochs
    save_every: NotNegative = 30.0  # seconds between checkpoints; 0: at every step
    log_every: Count = 10  # steps
    network: NetworkPart
    data: DataPart
    augment: AugmentPart = AugmentPart()
    # which loss, by its name, says which settings there are
    loss: Annotated[SerializeAsAny[Loss], PlainValidator(chosen)] = Field(default_factory=lambda: chosen({}))
    optimizer: OptimizerPart = OptimizerPart()
    schedule: SchedulePart = SchedulePart()
    expected: dict[str, Score] = {}  # the score, as measured on the test data
    took: TookPart | None = None
    _source: str | None = PrivateAttr(None)  # the file it was read from, without the place where that lies

    @property
    def source(self) -> str | None:
        return self._source

    @model_validator(mode="after")
    def _chosen_by(self) -> "Recipe":
        if self.best and self.data.validation is None:
            raise ValueError("best = true chooses the epoch by the validation data: give data.validation")
        return self

    @model_validator(mode="after")
    def _divisible(self) -> "Recipe":
        if self.strategy == "fsdp":
            unfit = {"project": self.project, "compile": self.compile, "sync_norm": not self.sync_norm}
            for key in (key for key, stray in unfit.items() if stray):
                raise ValueError(
                    f"strategy = 'fsdp' is not for {key} = {str(getattr(self, key)).lower()}: leave it out"
                )
        return self

    @model_validator(mode="after")
    def _together(self) -> "Recipe":
        if self.data.together > 1 and (self.data.localizer is None or self.augment.mixup or self.augment.cutmix):
            raise ValueError(
                "data.together is of patches, without mixing: give data.localizer, leave mixup, cutmix out"
            )
        if self.data.together > 1 and self.loss.traits["reads"] != "logits":
            raise ValueError(f"data.together adds up probabilities, and the loss {self.loss.name!r} reads none")
        if self.data.branch is not None and self.data.localizer is None:
            raise ValueError("data.branch is of the localizer: give data.localizer, an AnchorNet")
        return self

    @model_validator(mode="after")
    def _classes_known(self) -> "Recipe":
        if self.data.more and (self.network.keep != "all" or not self.loss.model_dump().get("taught_by")):
            raise ValueError("data.more is of other classes: give network.keep = 'all' and a loss with taught_by")
        return self

    @model_validator(mode="after")
    def _comparable(self) -> "Recipe":
        """Losses that compare embeddings need pictures of the same class, and mixed pictures are of none."""
        name, own = self.loss.name, self.loss.traits
        least = own.get("per_class")
        if least is not None and (self.per_class is None or self.per_class < least):
            raise ValueError(f"the loss {name!r} compares pictures of a class: give per_class = {least} or more")
        if own.get("pairs") and self.per_class != least:
            raise ValueError(f"the loss {name!r} takes one pair per class: per_class is {least}; got {self.per_class}")
        if own["reads"] == "embedding" and (self.augment.mixup or self.augment.cutmix):
            raise ValueError(f"the loss {name!r} needs pictures of one class: leave mixup and cutmix out")
        return self


def read(path: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """A recipe from its file, with `key=value` changes such as `optimizer.lr=0.05`."""
    path = Path(path)
    if not path.is_file():
        near = [one.name for one in path.parent.glob("*.toml")] if path.parent.is_dir() else []
        raise BadChoice(f"no recipe {str(path)!r}{nearest(path.name, near)}")
    within(f"bytes of the recipe {path}", path.stat().st_size, 0, LONGEST)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a number of thousands of digits is a ValueError
        raise BadChoice(f"{path} is not TOML: {error}") from None
    for change in changes:
        _change(content, change)
    found = check(content, str(path))
    found._source = shortened(str(path))
    return found


def check(content: dict[str, Any], source: str = "the recipe") -> Recipe:
    try:
        return Recipe.model_validate(content)
    except ValidationError as error:
        wrong = error.errors()
        more = f"; and {len(wrong) - MOST} more" if len(wrong) > MOST else ""
        raise BadChoice(f"{source}: " + "; ".join(_said(one, content) for one in wrong[:MOST]) + more) from None


def _change(content: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals or not key.strip():
        raise BadChoice(f"a change is written key=value, such as optimizer.lr=0.05; got {change!r}")
    try:
        (value,) = tomllib.loads(f"value = {text}").values()
    except (ValueError, RecursionError):
        value = text.strip()  # a plain word needs no quotes on a command line
    *above, last = key.strip().split(".")
    place = content
    for name in above:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise BadChoice(f"--set {change}: {name} has a value and no keys of its own")
    place[last] = value


def _said(error: ErrorDetails, content: dict[str, Any]) -> str:
    where = ".".join(map(str, error["loc"]))[:200]
    if error["type"] == "extra_forbidden":
        *above, last = error["loc"]
        return f"no key {where!r}{nearest(str(last), _part_at(above, content).model_fields)}"
    if error["type"] == "missing":
        return f"{where} is missing"
    if error["type"] == "value_error":
        return f"{where}: {error['msg'].removeprefix('Value error, ')}"
    said = re.sub(r"^\w+ should ", "", error["msg"])
    near = nearest(str(error["input"]), re.findall(r"'(\w+)'", said)) if error["type"] == "literal_error" else ""
    return f"{where} should {said}; got {shown(error['input'])}{near}"


def _part_at(path: Sequence[int | str], content: dict[str, Any]) -> type[Part]:
    """The part of the recipe that a key stands in."""
    model: type[Part] = Recipe
    for key in path:
        if isinstance(key, int):
            continue
        if key == "loss" and model is Recipe:
            model = settings_of(content["loss"].get("name", DEFAULT))
            continue
        wanted: Any = model.model_fields[key].annotation
        choices = [wanted, *get_args(wanted)] if get_origin(wanted) else [wanted]
        model = next(choice for choice in choices if isinstance(choice, type) and issubclass(choice, Part))
    return model
