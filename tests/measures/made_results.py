"""A folder of results that can be worked out by hand, and what a paper says of one of them."""

from pathlib import Path
from typing import Any

from fovea.measures.figures import Figures

FIGURE = '[[figure]]\nresult = "one"\nrow = { net = "b" }\nkey = "top1"\npaper = "P"\nsays = 0.6\ndiffers = "d"\n'
ITEM = '[[item]]\nitem = "P, Table 1"\nabout = "a and b"\nfound = "as it is"\n'
CARD = {"name": "n", "tested_on": "d", "changes": [], "minutes": 1, "processor": "p", "commit": "c"}


def small(folder: Path) -> Path:
    rows = [{"net": "a", "top1": 0.75, "top5": 0.875}, {"net": "b", "top1": 0.5, "top5": 0.875, "zero": 0}]
    found = Figures("classify", {"data": "three"}, rows)
    found.write(folder / "one.json", seed=3, recipe="recipes/a.toml", command="fovea measure classify")
    return folder


def add(folder: Path, name: str, *rows: dict[str, Any]) -> None:
    """One more result."""
    Figures("classify", {}, rows).write(folder / f"{name}.json")
