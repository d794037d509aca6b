"""Recipes of tests: what every one must have, and small data."""

from typing import Any

from fovea.training.recipe import Recipe, check

DIGITS = "megapixel:canvas=48,digit=24,clutter=1,noise=1,count={count},split={split}"
SMALLNET = {"name": "smallnet", "options": {"side": 32, "widths": [8, 8]}}
TEN_T = {"channels": [8, 8, 16, 16], "stem_width": 8}  # of timm/resnet10t, a very small one


def recipe(**content: Any) -> Recipe:
    return check({"about": "a test", "command": "fovea train recipes/tiny.toml", "epochs": 1, **content})


def digits(train: int, test: int) -> dict[str, str]:
    return {"train": DIGITS.format(count=train, split="train"), "test": DIGITS.format(count=test, split="test")}
