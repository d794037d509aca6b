"""Every number from outside is refused in one line where it is out of bounds, whichever door it comes through."""

import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import fovea
from checks import refused
from fovea.basics import ANY, BOUNDS, BadChoice, Bound, FoveaError, bound_of, demand_options
from fovea.cli.glossary import OPTIONS
from fovea.data import Size, open_clips, open_data, open_sounds, typed
from fovea.data.layouts import layout
from fovea.measures.registry import find, measure
from fovea.patches import patch_source
from fovea.patches.opening import open_source
from fovea.pictures import read_clip
from fovea.training.losses import loss, settings_of
from fovea.training.parts import Part
from fovea.training.recipe import Recipe, check
from made_recipes import HEAD, small

LARGE = (10**12, 1e300, float("inf"), float("nan"), 10**5000)
TYPED = ("9" * 13, "1e300", "inf", "nan", "9" * 10_000, "-" + "9" * 13, "1_0", "１２", "0x10", "", "1 2", "true")


def refused_shortly(call: Callable[..., object], *given: object, words: str | None = None, **how: object) -> None:
    with pytest.raises(FoveaError, match=words) as caught:
        call(*given, **how)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.integers() | st.floats() | st.text() | st.none() | st.binary(), st.booleans())
def test_a_bound_lets_through_what_is_within_and_nothing_else(value: Any, real: bool) -> None:
    bound = Bound(-3, 7, real)
    is_within = isinstance(value, (int, float) if real else int) and -3 <= value <= 7
    if is_within:
        bound.check("it", value)
        assert abs(value) < 1e-99 or bound.read("it", repr(value)) == value
    else:
        refused_shortly(bound.check, "it", value)


@pytest.mark.parametrize("name", [name for name, option in OPTIONS.items() if option.type in ANY])
def test_numbers_of_the_command_line(name: str) -> None:
    option, bound = OPTIONS[name], BOUNDS[name]
    for text in (*TYPED, str(int(bound.least) - 1), str(int(bound.most) + 1)):
        refused_shortly(option.values, name, [text or "x"] if option.many else text)
    within = str(bound.most)
    assert option.values(name, [within] if option.many else within) == ((bound.most,) if option.many else bound.most)
    if option.many:
        refused_shortly(option.values, name, ["1"] * 2000)


LAYOUTS = [
    (name, key, parameter)
    for name in layout
    for key, parameter in inspect.signature(layout.get(name).open, eval_str=True).parameters.items()
    if any(kind in (*ANY, Size) for kind in (parameter.annotation, *get_args(parameter.annotation)))
    or bound_of(parameter.annotation)
]


@pytest.mark.parametrize(("name", "key", "parameter"), LAYOUTS, ids=lambda part: str(part)[:12])
def test_options_of_data(name: str, key: str, parameter: inspect.Parameter) -> None:
    bound, made = bound_of(parameter.annotation), layout.get(name)
    assert bound is not None
    assert bound.most <= 2**32
    for text in (*TYPED, str(int(bound.least) - 1), str(int(bound.most) + 1)):
        refused_shortly(typed, name, made.open, {key: text})
    for value in LARGE if made.is_made else ():
        refused_shortly(made.open, **{key: value})


SOURCES = [(kind, key, kind_of) for kind in patch_source for key, kind_of in patch_source.get(kind).options.items()]


@pytest.mark.parametrize(("kind", "key", "kind_of"), [*SOURCES, *(("whole", key, "") for key in ("pad", "least"))])
def test_options_of_patch_sources(kind: str, key: str, kind_of: object) -> None:
    net = "anchornet-cub100," if patch_source.get(kind).needs_network else ""
    for text in TYPED:
        refused_shortly(open_source, f"{kind}:{net}{key}={text}", words=f"{key}=,? (is|takes|as) |^{key} is ")


def test_products_of_options_have_bounds() -> None:
    for name in ("moving:count=1000000,frames=1000", "segments:file=x.mp4,count=1000000,frames=1000"):
        refused("times frames= is .* to 1,000,000; got 1000000000", open_clips, name)
    refused("samples, .* is 8,000 to 10,000,000", open_sounds, "sounds:rate=768000,length=600000")


@pytest.mark.parametrize("labels", ["0-999999999", "9" * 10_000, "0-" + "9" * 29, "５", "-1", "1e3", "0-1+99999999"])
def test_labels(labels: str) -> None:
    refused_shortly(open_data, f"digits:labels={labels}")


def leaves(part: type[Part], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Where numbers stand in a recipe."""
    for name, one in part.model_fields.items():
        kinds = [one.annotation, *get_args(one.annotation)]
        inner = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Part)]
        if inner and name != "loss":
            yield from leaves(inner[0], (*path, name, *(["0"] if "list" in str(one.annotation) else [])))
        elif any(word in str(one.annotation) for word in ("int", "float")):
            yield (*path, name)


RECIPE = [path for path in leaves(Recipe) if path[0] != "loss"]
LOSSES = [(name, path) for name in loss for path in leaves(settings_of(name))]


def test_the_walk_over_a_recipe_meets_its_numbers() -> None:
    walked = {".".join(path) for path in RECIPE}
    assert {"epochs", "threads", "network.size", "data.workers", "optimizer.groups.0.lr", "schedule.at"} <= walked
    assert len(RECIPE) >= 40
    assert check(placed(("epochs",), 2)).epochs == 2
    assert {("triplet", ("margin",)), ("cross_entropy", ("distil", "temperature"))} <= set(LOSSES)


@pytest.mark.parametrize("path", RECIPE, ids=".".join)
def test_numbers_of_a_recipe(path: tuple[str, ...]) -> None:
    for value in (-(10**12), *LARGE):
        for written in (value, [value], [value, value], {"top1": value}):  # one of these is its form
            refused_shortly(check, placed(path, written), "a recipe", words=rf"^a recipe: {'.'.join(path)}\b")


@pytest.mark.parametrize(("name", "path"), LOSSES, ids=str)
def test_numbers_of_a_loss(name: str, path: tuple[str, ...]) -> None:
    for value in (-1, *LARGE):
        for written in (value, {"both": value}):
            recipe = placed(("loss", *path), written)
            recipe["loss"]["name"] = name
            refused_shortly(check, recipe, words=rf"\b{path[-1]}\b")


def placed(path: tuple[str, ...], value: object) -> dict[str, Any]:
    """A recipe with this value at this place."""
    recipe = deepcopy(HEAD | small())
    place: Any = recipe
    for name in path[:-1]:
        place = place[0] if name == "0" else place.setdefault(name, [{"match": "*"}] if name == "groups" else {})
    place[path[-1]] = value
    return recipe


MEASURES = [
    (name, key)
    for name in measure
    for key, usual in find(name).options.items()
    if type(usual) in ANY or (key in OPTIONS and OPTIONS[key].type in ANY)
]


@pytest.mark.parametrize(("name", "key"), MEASURES)
def test_options_of_measures(name: str, key: str) -> None:
    for value in (-1, *LARGE, "3", [10**12]):
        refused_shortly(fovea.measure, name, data="nowhere", **{key: value})


VERBS: dict[str, Callable[..., object]] = {
    "explain": lambda net, **how: fovea.explain(net, torch.zeros(1, 3, 8, 8), **how),
    "audit": lambda net, **how: fovea.audit(net, "nowhere", **how),
    "look": lambda net, **how: fovea.look(net, torch.zeros(1, 3, 8, 8), **how),
    "zoom": lambda net, **how: fovea.zoom(net, torch.zeros(1, 3, 8, 8), **how),
    "localize": lambda net, **how: fovea.localize(net, torch.zeros(1, 3, 8, 8), **how),
    "classify_patches": lambda net, **how: fovea.classify_patches(net, net, torch.zeros(1, 3, 8, 8), **how),
    "look_longer": lambda net, **how: fovea.look_longer(net, torch.zeros(1, 3, 8, 8), **how),
    "watch": lambda net, **how: fovea.watch(net, "nowhere.mp4", **how),
    "index": lambda net, **how: fovea.index(net, "nowhere", **how),
    "load": lambda net, **how: fovea.load("smallnet", pretrained=False, **how),
    "read_clip": lambda net, **how: read_clip("nowhere.mp4", **how),
}
NUMBERS = [
    (verb, name)
    for verb in VERBS
    for name, one in inspect.signature(read_clip if verb == "read_clip" else getattr(fovea, verb)).parameters.items()
    if one.annotation in (int, float, int | None, float | None)
]


def test_every_number_of_a_verb_has_bounds() -> None:
    assert {name for _, name in NUMBERS} <= BOUNDS.keys()


@pytest.mark.parametrize(("verb", "name"), NUMBERS)
def test_numbers_of_verbs(verb: str, name: str) -> None:
    net = fovea.wrap(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 2)))
    for value in (-1, *LARGE, "3"):
        with pytest.raises(BadChoice, match=f"^{name} (is|takes) "):
            VERBS[verb](net, **{name: value})


def test_options_of_networks() -> None:
    for value in (10**12, float("inf"), float("nan"), [8, 10**9]):
        refused_shortly(fovea.load, "smallnet", pretrained=False, options={"widths": value})
        refused_shortly(fovea.load, "timm/resnet10t", pretrained=False, options={"stem_width": value})
    demand_options({"words": ["a"] * 100_000, "rate": 44_100, "side": 448, "share": True})
    refused("rate is 1,000 to 768,000", demand_options, {"rate": 10**9})


ATTACKS = [
    "measure classify --net smallnet --data digits:labels=0-999999999",
    "measure classify --net smallnet --data megapixel:count=1000000000",
    "measure classify --net smallnet --data megapixel:clutter=100000000",
    "measure classify --net smallnet --data megapixel:canvas=1000000",
    "measure classify --net smallnet --data digits --limit " + "9" * 10_000,
    "measure cost --net smallnet --classes 100000000000",
    "measure cost --net smallnet --option width=1e300",
    "measure cost --net smallnet --size 1000000",
    "bench zoom --batches 1,1000000000000",
    "train RECIPE --set epochs=inf",
    "train RECIPE --set epochs=1e300",
    "train RECIPE --set threads=100000",
    "train RECIPE --set data.workers=100000",
    "train RECIPE --set seed=" + "9" * 10_000,
]
RUN = """
import io, sys, contextlib, resource
resource.setrlimit(resource.RLIMIT_AS, (GIB << 30, GIB << 30))
import fovea.cli
from fovea.cli import common
common.EVERY = 1e6  # seconds: a busy machine says nothing of how long it takes
for words in sys.stdin.read().splitlines():
    sys.argv, out = ["fovea", *words.split()], io.StringIO()
    common.warn.file = out
    try:
        fovea.cli.main()
    except SystemExit as done:
        print(done.code, out.getvalue().strip().replace(chr(10), "NEWLINE"))
"""


def test_attacks_on_the_command_line_take_no_memory(tmp_path: Path) -> None:
    recipe = Path(__file__).parents[2] / "recipes/digits.toml"
    words = "\n".join(ATTACKS).replace("RECIPE", str(recipe))
    done = subprocess.run(
        [sys.executable, "-c", RUN.replace("GIB", "6")], input=words, capture_output=True, text=True, cwd=tmp_path
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(ATTACKS), done.stderr[-2000:]
    for line, attack in zip(lines, ATTACKS, strict=True):
        assert line.startswith("2 error: "), (attack[:80], line[:500])
        assert "NEWLINE" not in line
        assert len(line) < 400
