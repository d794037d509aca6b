"""results/*.json as one page: what was measured, beside what the papers say. Nothing on the page is typed by hand."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fovea.basics import BadChoice, Record, student
from fovea.measures import papers, seeds
from fovea.measures.figures import Written, markdown, text_of
from fovea.measures.registry import titles

TRAINED = "trained"
MADE = ("recipe", "commit", "seed", "processor", "date")


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


def page(folder: Path) -> str:
    """The whole page, by the names of the measures, those of time last."""
    found = {name: seeds.result(folder, name) for name in seeds.results(folder)}
    if not found:
        raise BadChoice(f"no results (*.json) in {folder}; 'fovea measure WHAT … --json {folder}/NAME.json' writes one")
    runs = cards(folder)
    scores = {
        f"{TRAINED}/{name}": Written(what="train", settings={}, rows=[run["score"]]) for name, run in runs.items()
    }
    compared = found | scores
    sayings = papers.read(folder / papers.FILE, compared)
    known = titles()
    places = {what: i for i, what in enumerate(known)}
    lines = [
        "# Results",
        "",
        "Made by `fovea results` from the files in `results/`, each of which one command wrote; rates are fractions",
        "of one. The papers' figures are theirs, for their set-ups; the last column says what differs here. Rates from",
        "other data or networks are compared as differences (points lost or gained) or ratios, never directly.",
    ]
    lines += ["", *overview] if (overview := sayings.overview(compared)) else []
    for name, result in sorted(found.items(), key=lambda one: (places.get(one[1].what, 99), one[0])):
        lines += ["", f"## {known.get(result.what, result.what)}: {name}", "", *_section(result)]
        lines += ["", *beside] if (beside := sayings.beside(name, compared)) else []
    if runs:
        lines += ["", "## Training runs whose weights are not kept", "", *_table(trained(runs.values()))]
        told = "means, and Student's 95 % interval of the first score over seeds"
        lines += ["", f"From their cards, as `fovea train` wrote them; {told}."]
    return "\n".join(lines) + "\n"


def cards(folder: Path) -> dict[str, dict[str, Any]]:
    """Of the training runs whose weights are not kept, by their files' names."""
    paths = sorted((folder / TRAINED).glob("*.json"))
    advice = "train it anew, or move it elsewhere"
    return {path.stem: Card.read(path.read_bytes(), path, advice).model_dump() for path in paths}


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
        row |= {"chosen_on": own[0].get("chosen_on"), "seeds": len(own)}
        row |= {key: sum(values) / len(values) for key, values in scores.items()}
        if all(card.get("validation") for card in own):
            row |= {f"{key}_validation": sum(card["validation"][key] for card in own) / len(own) for key in shared}
        if len(own) > 1 and scores:
            row["low"], row["high"] = student(next(iter(scores.values())))
        rows.append(row | {"minutes": own[0]["minutes"], "processor": own[0]["processor"], "commit": own[0]["commit"]})
    return rows


def _section(result: Written) -> list[str]:
    more = result.model_extra or {}
    settings = "; ".join(f"{key}: {text_of(value)}" for key, value in result.settings.items() if value is not None)
    made = ", ".join(f"{key} {more[key]}" for key in MADE if more.get(key) is not None)
    rows = [row for row in result.rows if "area" not in row]  # points of curves are for the picture
    lines = [f"{settings}.", "", *_table(rows)]
    lines += ["", f"`{result.command}`"] if result.command else []
    return [*lines, "", f"*{made}.*"] if made else lines


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(key for row in rows for key in row))
    return markdown(names, ([text_of(row.get(name)) for name in names] for row in rows))
