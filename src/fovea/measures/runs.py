"""Training runs whose weights are not kept, by their cards in results/trained/; and all that was measured."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fovea.basics import Record, student
from fovea.measures import seeds
from fovea.measures.figures import Written

TRAINED = "trained"


class Card(Record, extra="allow"):
    """A training run, as `fovea train` wrote it."""

    name: str
    tested_on: str | None
    chosen_on: str | None = None  # the pictures by which its settings were chosen
    changes: list[str]
    score: dict[str, float]
    minutes: float
    processor: str | None
    commit: str | None


def cards(folder: Path) -> dict[str, dict[str, Any]]:
    """The cards by their files' names."""
    paths = sorted((folder / TRAINED).glob("*.json"))
    advice = "train it anew, or move it elsewhere"
    return {path.stem: Card.read(path.read_bytes(), path, advice).model_dump() for path in paths}


def measured(folder: Path) -> dict[str, Written]:
    """Every result of a folder by its name; that of a training run, trained/NAME, has one row, its score."""
    found = {name: seeds.result(folder, name) for name in seeds.results(folder)}
    scores = {name: Written(what="train", settings={}, rows=[run["score"]]) for name, run in cards(folder).items()}
    return found | {f"{TRAINED}/{name}": score for name, score in scores.items()}


def trained(cards: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each recipe and what was set otherwise, over its seeds."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for card in cards:
        set_otherwise = [one for one in card["changes"] if not one.startswith(("seed=", "network.weights="))]
        groups.setdefault((card["name"], card["tested_on"], *set_otherwise), []).append(card)
    rows = []
    for (name, data, *changes), own in groups.items():
        shared = [key for key in own[0]["score"] if all(key in card["score"] for card in own)]
        scores = {key: [float(card["score"][key]) for card in own] for key in shared}
        row: dict[str, Any] = {"recipe": name, "changes": ", ".join(changes), "tested_on": data}
        row |= {"chosen_on": own[0].get("chosen_on"), "pictures": own[0].get("test_pictures"), "seeds": len(own)}
        row |= {key: sum(values) / len(values) for key, values in scores.items()}
        if all(card.get("validation") for card in own):
            row |= {f"{key}_validation": sum(card["validation"][key] for card in own) / len(own) for key in shared}
        if len(own) > 1 and scores:
            row["low"], row["high"] = student(next(iter(scores.values())))
        rows.append(row | {"minutes": own[0]["minutes"], "processor": own[0]["processor"], "commit": own[0]["commit"]})
    return rows
