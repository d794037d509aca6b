"""Recipes of tests: what every one must have, and small data."""

import json
from pathlib import Path
from typing import Any

from fovea.training.recipe import Recipe, check

DIGITS = "megapixel:canvas=48,digit=24,clutter=1,noise=1,count={count},split={split}"
SMALLNET = {"name": "smallnet", "options": {"side": 32, "widths": [8, 8]}}
TEN_T = {"channels": [8, 8, 16, 16], "stem_width": 8}  # of timm/resnet10t, a very small one
HEAD = {"about": "a test", "command": "fovea train recipes/tiny.toml", "epochs": 1}


def recipe(**content: Any) -> Recipe:
    return check(HEAD | content)


def digits(train: int, test: int) -> dict[str, str]:
    return {"train": DIGITS.format(count=train, split="train"), "test": DIGITS.format(count=test, split="test")}


def small(test: int = 20) -> dict[str, Any]:
    """A small network on a few canvases."""
    optimizer = {"lr": 0.05, "momentum": 0.9}
    return {"batch": 16, "log_every": 1, "network": SMALLNET, "data": digits(64, test), "optimizer": optimizer}


def written(folder: Path, content: dict[str, Any]) -> Path:
    """The recipe as a file."""
    path = folder / "tiny.toml"
    path.write_text("\n".join(_lines(HEAD | content)), encoding="utf-8")
    return path


def _lines(content: dict[str, Any], above: str = "") -> list[str]:
    """TOML with dotted keys, whose plain values are written as JSON's."""
    return [
        line
        for key, value in content.items()
        for line in (
            _lines(value, f"{above}{key}.") if isinstance(value, dict) else [f"{above}{key} = {json.dumps(value)}"]
        )
    ]
