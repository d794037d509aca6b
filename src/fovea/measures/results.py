"""results/*.json as one page: what was measured, beside what the papers say. Nothing on the page is typed by hand."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fovea.basics import BadChoice, nearest, student
from fovea.measures.figures import text_of
from fovea.measures.registry import titles

PAPERS, TRAINED = "papers.toml", "trained"
MADE = ("recipe", "commit", "seed", "processor", "date")


def page(folder: Path) -> str:
    """The whole page, by the names of the measures, those of time last."""
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))}
    if not found:
        raise BadChoice(f"no results (*.json) in {folder}; 'fovea measure WHAT … --json {folder}/NAME.json' writes one")
    papers = figures_of_papers(folder / PAPERS, found)
    known = titles()
    places = {what: i for i, what in enumerate(known)}
    lines = [
        "# Results",
        "",
        "Made by `fovea results` from the files in `results/`, each of which one command wrote; rates are fractions",
        "of one. The papers' figures are theirs, for their set-ups; the last column says what differs here.",
    ]
    for name, result in sorted(found.items(), key=lambda one: (places.get(one[1]["what"], 99), one[0])):
        lines += ["", f"## {known.get(result['what'], result['what'])}: {name}", "", *_section(result)]
        ours = [paper for paper in papers if paper["result"] == name]
        if ours:
            lines += ["", *_beside(ours, result)]
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((folder / TRAINED).glob("*.json"))]
    if runs:
        lines += ["", "## Training runs whose weights are not kept", "", *_table(trained(runs))]
        told = "means, and Student's 95 % interval of the first score over seeds"
        lines += ["", f"From their cards, as `fovea train` wrote them; {told}."]
    return "\n".join(lines) + "\n"


def trained(cards: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A row for each recipe and what was set otherwise, over its seeds."""
    groups: dict[tuple[str, ...], list[Mapping[str, Any]]] = {}
    for card in cards:
        set_otherwise = [one for one in card["changes"] if not one.startswith(("seed=", "network.weights="))]
        groups.setdefault((card["name"], card["tested_on"], *set_otherwise), []).append(card)
    rows = []
    for (name, data, *changes), own in groups.items():
        scores = {key: [float(card["score"][key]) for card in own] for key in own[0]["score"]}
        row: dict[str, Any] = {"recipe": name, "changes": ", ".join(changes), "tested_on": data, "seeds": len(own)}
        row |= {key: sum(values) / len(values) for key, values in scores.items()}
        if len(own) > 1:
            row["low"], row["high"] = student(next(iter(scores.values())))
        rows.append(row | {"minutes": own[0]["minutes"], "processor": own[0]["processor"], "commit": own[0]["commit"]})
    return rows


def figures_of_papers(path: Path, results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The papers' own numbers, each beside the row and key of ours that it is compared with."""
    if not path.is_file():
        return []
    figures: list[dict[str, Any]] = tomllib.loads(path.read_text(encoding="utf-8")).get("figure", [])
    for figure in figures:
        missing = {"result", "key", "paper", "says", "differs"} - set(figure)
        if missing:
            raise BadChoice(f"{path}: a figure lacks {', '.join(sorted(missing))}: {figure}")
        if figure["result"] not in results:
            raise BadChoice(f"{path}: no result {figure['result']!r}{nearest(figure['result'], results)}")
    return figures


def _section(result: Mapping[str, Any]) -> list[str]:
    settings = "; ".join(f"{key}: {text_of(value)}" for key, value in result["settings"].items() if value is not None)
    made = ", ".join(f"{key} {result[key]}" for key in MADE if result.get(key) is not None)
    rows = [row for row in result["rows"] if "area" not in row]  # points of curves are for the picture
    lines = [f"{settings}.", "", *_table(rows)]
    lines += ["", f"`{result['command']}`"] if result.get("command") else []
    return [*lines, "", f"*{made}.*"] if made else lines


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    names = list(dict.fromkeys(key for row in rows for key in row))
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    return lines + ["| " + " | ".join(text_of(row.get(name)) for name in names) + " |" for row in rows]


def _beside(papers: Sequence[Mapping[str, Any]], result: Mapping[str, Any]) -> list[str]:
    lines = ["| | ours | the paper's | difference | paper | how the set-ups differ |", "|---|---|---|---|---|---|"]
    for paper in papers:
        ours, what = _ours(paper, result), " ".join(map(str, paper.get("row", {}).values()))
        scale = paper.get("scale", 1)
        cells = [f"{what} {paper['key']}".strip(), f"{ours / scale:.4g}", f"{paper['says']:.4g}"]
        cells += [f"{ours / scale - paper['says']:+.3g}", paper["paper"], paper["differs"]]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def _ours(one: Mapping[str, Any], result: Mapping[str, Any]) -> float:
    wanted = one.get("row", {})
    rows = [row for row in result["rows"] if all(row.get(key) == value for key, value in wanted.items())]
    if len(rows) != 1 or one["key"] not in rows[0]:
        raise BadChoice(f"{one['result']}: {len(rows)} rows with {wanted} and {one['key']!r}; one is needed")
    return float(rows[0][one["key"]])
