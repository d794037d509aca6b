"""Weights files whose metadata, or tensors, say what nobody should believe."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

import fovea

Forge = Callable[..., Path]


def opened(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(str(path), "pt") as file:
        return dict(file.metadata() or {}), {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network of timm's, saved."""
    path = tmp_path_factory.mktemp("honest") / "honest.safetensors"
    fovea.load("timm/test_resnet", pretrained=False, classes=3).save(path)
    return path


@pytest.fixture
def forge(honest: Path, tmp_path: Path) -> Forge:
    """The same file with other metadata: texts as they are, anything else as JSON."""

    def forged(name: str = "forged.safetensors", **said: Any) -> Path:
        about, tensors = opened(honest)
        for key, value in said.items():
            about[f"fovea.{key}"] = value if isinstance(value, str) else json.dumps(value)
        save_file(tensors, str(tmp_path / name), about)
        return tmp_path / name

    return forged
