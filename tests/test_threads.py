"""Many threads ask one network: each gets what it would get alone, and the network is left as it was."""

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import left_as_found
from conftest import Branching, Pooled, Through, seeded
from fovea.data import DataSet, Pixels, Sample
from fovea.networks import ours
from fovea.pictures import Prepare
from fovea.results import Results
from made_clips import make_clip

PICTURE = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(3))
GRAYS = [(values * 255).byte().numpy() for values in PICTURE.flatten(0, 1)]
DATA = DataSet("grays", tuple(Sample(f"{i}", 0, Pixels(values)) for i, values in enumerate(GRAYS)), ("",))
Ask = Callable[[], Any]
PIXELS = ["guided-backprop", "smoothgrad:samples=3", "rise:masks=5", "integrated-gradients:steps=3"]


@dataclass(frozen=True)
class Given:
    """What networks are asked about."""

    folder: Path
    pictures: list[Image.Image] = field(default_factory=list)

    @property
    def clip(self) -> Path:
        return self.folder / "clip.mp4"


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Given:
    folder = tmp_path_factory.mktemp("given")
    draw = np.random.default_rng(0)
    pictures = [Image.fromarray(draw.integers(0, 256, (90, 120, 3), dtype=np.uint8)) for _ in range(2)]
    for number, picture in enumerate(pictures):
        picture.save(folder / f"{number}.png")
    make_clip(folder / "clip.mp4", 6)
    return Given(folder, pictures)


class Trained(nn.Module):
    """Batch norm and dropout, which a training mode changes; with a branch on values, it is cut by hooks."""

    def __init__(self, traceable: bool) -> None:
        super().__init__()
        self.traceable = traceable
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout2d(0.5))
        self.head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.BatchNorm1d(8), nn.Linear(8, 3))

    def forward(self, x: Tensor) -> Tensor:
        if not self.traceable and x.sum() > 1e9:
            x = x * 0
        return self.head(self.trunk(x))


class Keeping(nn.Module):
    """Leaves what it saw on itself, and reads it again."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Branching()
        self.notes: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.notes.clear()
        self.notes.append(x)
        out = self.inner(x)
        return out + self.notes[-1].mean((1, 2, 3)).unsqueeze(1)


def drawing(x: Tensor, inner: nn.Module) -> Tensor:
    """A network that draws random numbers in eval mode."""
    return inner(x) + torch.rand(1)


def with_hooks() -> nn.Module:
    """A hook on a part, one on a layer in it, and one that gives a layer what another one left."""
    module, left = seeded(Pooled), []
    module.trunk[0].register_forward_hook(lambda _, __, out: left.append(out.mean()))
    module.trunk.register_forward_hook(lambda _, __, out: out + left.pop())
    module.relu.register_forward_hook(lambda _, __, out: out * 2)
    return module


PLAIN: dict[str, Callable[[], nn.Module]] = {
    "graph": lambda: seeded(Pooled),
    "hook": lambda: seeded(Branching),
    "training": lambda: seeded(Trained, True).train(),
    "training, hook": lambda: seeded(Trained, False).train(),
    "user's hooks": with_hooks,
    "keeping": lambda: seeded(Keeping),
    "drawing": lambda: seeded(Through, drawing, seeded(Pooled)),
}


def of_pictures(module: nn.Module, _: Given) -> tuple[list[nn.Module], dict[str, Ask]]:
    """All that is asked of a classifier of pictures."""
    net = fovea.wrap(module, Prepare((64, 64)), labels=len(module(PICTURE)[0]))
    methods = ["l2caf", "gradcam", "l2caf-oblivious"]
    return [module], {
        "explain": lambda: fovea.explain(net, PICTURE, method=methods, target="top2"),
        "explain, anew": lambda: fovea.explain(module, PICTURE, method="gradcam", target=1),
        "explain pixels": lambda: fovea.explain(net, PICTURE, method=PIXELS, target=1),
        "explain a layer": lambda: fovea.explain(net, PICTURE, method="gradcam", layer=next_to_last(module)),
        "localize": lambda: fovea.localize(net, PICTURE),
        "look": lambda: fovea.look(net, PICTURE, forwards=20),
        "audit": lambda: fovea.audit(net, DATA),
        "classify": lambda: net(PICTURE).detach(),
        "classify_patches": lambda: fovea.classify_patches(net, net, PICTURE, side=32),
        "geometry": lambda: net.geometry().boxes(),
    }


def next_to_last(module: nn.Module) -> str:
    return [name for name, layer in module.named_modules() if isinstance(layer, (nn.Conv2d, nn.BatchNorm2d))][-1]


def of_shipped(name: str, given: Given) -> tuple[list[nn.Module], dict[str, Ask]]:
    """Networks that come with fovea, each by what it can do."""
    net = fovea.load(name)
    pixels = given.pictures[:1]
    asks: dict[str, Ask] = {}
    if net.can("texts"):
        asks["classify"] = lambda: net(["a fine film", "dull and far too long"]).detach()
        if net.can("spans"):
            asks["localize"] = lambda: fovea.localize(net, ["a fine film , and never dull"])
    elif net.can("sounds"):
        sound = torch.randn(1, net.transform.bands, 64, generator=torch.Generator().manual_seed(0))
        asks["classify"] = lambda: net(sound).detach()
    elif net.can("frames"):
        asks["watch"] = lambda: fovea.watch(net, given.clip, frames=2, method="gradcam")
    elif net.can("streams"):
        asks["look_longer"] = lambda: fovea.look_longer(net, pixels)
        asks["classify"] = lambda: net(pixels).detach()
    elif net.can("glimpses"):
        asks["zoom"] = lambda: fovea.zoom(net, pixels)
    else:
        searched = net.can("branches") or net.can("prototypes")  # l2caf searches for its filter, for minutes
        asks["explain"] = lambda: fovea.explain(net, pixels, method=["gradcam"] if searched else ["gradcam", "l2caf"])
        asks["classify"] = lambda: net(pixels).detach()
        if net.can("embedding"):
            file = given.folder / f"{name}.fovea"
            fovea.index(net, given.folder, file)
            known = fovea.open_index(file, net)
            asks["search"] = lambda: known.search(pixels, count=2)
        else:
            how = {"method": "gradcam"} if net.can("prototypes") else {}
            asks["localize"] = lambda: fovea.localize(net, pixels, **how)
    return [net.module], asks


def told(answer: Any) -> Any:
    """An answer down to its last digit."""
    if isinstance(answer, dict):
        return {name: told(part) for name, part in answer.items()}
    if isinstance(answer, Tensor):
        return answer.tolist()
    assert isinstance(answer, Results), type(answer)
    values = getattr(answer, "values", None)
    timed = {"seconds": 0} | ({"cost": 0} if answer.what == "look" else {})
    return [row.to_dict() | timed for row in answer], values.tolist() if isinstance(values, Tensor) else None


@contextmanager
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run(make: Callable[[], tuple[list[nn.Module], dict[str, Ask]]], threads: int, rounds: int) -> int:
    """Every thread asks so often, all of them at once, of a network that was asked nothing before."""
    alone = {name: told(ask()) for name, ask in make()[1].items()}
    modules, asks = make()
    start, names = Barrier(threads), list(asks)

    def work(number: int) -> list[tuple[str, Any]]:
        start.wait()
        order = [names[(number + i) % len(names)] for i in range(rounds)]
        return [(name, told(asks[name]())) for name in order]

    with restless(), left_as_found(nn.ModuleList(modules)), ThreadPoolExecutor(threads) as pool:
        answers = [answer for one in pool.map(work, range(threads)) for answer in one]
    wrong = [name for name, answer in answers if answer != alone[name]]
    assert not wrong, f"{len(wrong)} of {len(answers)} differ: {sorted(set(wrong))}"
    return len(answers)


@pytest.mark.parametrize("kind", PLAIN)
def test_threads_get_what_one_gets(kind: str, given: Given) -> None:
    run(lambda: of_pictures(PLAIN[kind](), given), threads=4, rounds=7)


@pytest.mark.parametrize("name", ["embedding-cub100", "anchornet_text-mr", "tnet-digits"])
def test_threads_and_networks_that_come_with_fovea(name: str, given: Given) -> None:
    run(lambda: of_shipped(name, given), threads=4, rounds=3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PLAIN)
def test_many_threads_get_what_one_gets(kind: str, given: Given) -> None:
    print(kind, run(lambda: of_pictures(PLAIN[kind](), given), threads=8, rounds=30))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", ours())
def test_many_threads_and_networks_that_come_with_fovea(name: str, training: bool, given: Given) -> None:
    def make() -> tuple[list[nn.Module], dict[str, Ask]]:
        modules, asks = of_shipped(name, given)
        for module in modules:
            module.train(training)
        return modules, asks

    print(name, run(make, threads=8, rounds=30))
