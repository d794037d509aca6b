"""Prototypes, or answers by them, into a folder: a page to open in a browser, a sheet, and JSON."""

import html
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from PIL import Image

from fovea.basics.files import Names, write_json
from fovea.data import DataSet
from fovea.prototypes import figure
from fovea.prototypes.found import Answers, Likeness, LooksLike, Nearest, Patch, Prototype
from fovea.results.folder import told
from fovea.results.pages import breaking, page
from fovea.results.pages import figure as figure_of

PAGE, SHEET, JSON = "index.html", "sheet.jpg", "prototypes.json"
STYLE = """.strip { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 14px;
margin: 14px 0 24px; align-items: end } .strip img { width: auto; max-width: 100% }
figcaption { overflow-wrap: anywhere; min-height: 3em }
.own { border-right: 1px solid var(--line); padding-right: 14px } .same { color: var(--bar); font-weight: 600 }"""


def write_prototypes(found: Nearest, data: DataSet, folder: Path, settings: Mapping[str, Any]) -> Path:
    """`folder`/index.html, sheet.jpg and prototypes.json; the page's path comes back."""
    shelf = figure.Shelf(data)
    classes: dict[str, list[Prototype]] = {}
    for one in found.prototypes:
        classes.setdefault(one.label, []).append(one)
    sections = (
        f"<section><h2>{html.escape(label)}</h2>{''.join(_prototype(one, shelf) for one in own)}</section>"
        for label, own in classes.items()
    )
    lead = (
        "Every prototype is a part of one training picture, the box in the first picture of a row. Beside it are the "
        "parts of other pictures that look most like it. A box holds the top 5 percent of the prototype's map."
    )
    folder.mkdir(parents=True, exist_ok=True)
    figure.prototype_sheet(found.prototypes, shelf).save(folder / SHEET, quality=88)
    rows = [asdict(one) for one in found.prototypes]
    write_json(folder / JSON, {**settings, "prototypes": rows, "skipped": told(list(found.skipped))})
    return _write(folder, "Prototypes", lead, sections, settings)


def write_answers(found: Answers, data: DataSet, folder: Path, settings: Mapping[str, Any]) -> Path:
    """`folder`/index.html, a sheet for each picture and prototypes.json; the page's path comes back."""
    shelf, names = figure.Shelf(data), Names()
    lead = (
        "Each picture is named for the prototypes that its parts look like: similarity x weight is what a prototype "
        "contributes to the answer's logit."
    )
    folder.mkdir(parents=True, exist_ok=True)
    rows, sections = [], []
    for answer in found.pictures:
        sheet = f"{names.take(Path(answer.name).stem or 'picture', answer.name)}.jpg"
        figure.answer_sheet(answer, shelf).save(folder / sheet, quality=88)
        reasons = [asdict(one) | {"contribution": one.contribution} for one in answer.reasons]
        known = {"picture": answer.name, "label": answer.label, "probability": answer.probability}
        rows.append({**known, "logit": answer.logit, "reasons": reasons, "sheet": sheet})
        sections.append(_answer(answer, shelf))
    write_json(folder / JSON, {**settings, "pictures": rows, "skipped": told(list(found.skipped))})
    return _write(folder, "This looks like that", lead, sections, settings)


def _write(folder: Path, title: str, lead: str, sections: Iterable[str], settings: Mapping[str, Any]) -> Path:
    about = ", ".join(f"{key}: {value}" for key, value in settings.items())
    heading = f"""<h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p><p class="dim">{html.escape(about)}</p>
"""
    index = folder / PAGE
    index.write_text(page(title.lower(), [heading, *sections], STYLE), encoding="utf-8")
    return index


def _prototype(one: Prototype, shelf: figure.Shelf) -> str:
    words = f"<b>prototype {one.number}</b><br>weight {one.weight:.2f}"
    if one.own is None:
        own = f'<p class="dim">{words}, not projected on a picture</p>'
    else:
        own = figure_of(shelf.whole(one.own), f"{words}, {breaking(one.own.name)}")
        own += figure_of(shelf.part(one.own), "<b>the prototype</b><br>itself", "own")
    return f'<div class="strip">{own}{"".join(_neighbour(patch, one.label, shelf) for patch in one.nearest)}</div>'


def _neighbour(patch: Patch, label: str, shelf: figure.Shelf) -> str:
    kind = ' class="same"' if patch.label == label else ""
    return figure_of(
        shelf.part(patch), f"<span{kind}>{breaking(patch.label)}</span><br>similarity {patch.similarity:.2f}"
    )


def _answer(answer: LooksLike, shelf: figure.Shelf) -> str:
    image = answer.image()
    shown = sum(one.contribution for one in answer.reasons)
    reasons = "".join(_reason(image, one, shelf) for one in answer.reasons)
    return f"""<section><h2>{html.escape(answer.label)} {answer.probability:.2f}</h2>
<p class="dim">{html.escape(Path(answer.name).name)}; logit {answer.logit:.2f}: {shown:.2f} of these prototypes,
{answer.logit - shown:+.2f} of all others</p>{reasons}</section>"""


def _reason(image: Image.Image, one: Likeness, shelf: figure.Shelf) -> str:
    sum_ = f"{one.similarity:.2f} x {one.weight:.2f} = {one.contribution:.2f}"
    this = figure_of(figure.boxed(image, one.box), f"<b>{sum_}</b><br>similarity x weight")
    this += figure_of(figure.cropped(image, one.box), "<b>this</b><br>looks like", "own")
    if one.own is None:
        that = f'<p class="dim">prototype {one.prototype} of {html.escape(one.label)}, not projected on a picture</p>'
    else:
        that = figure_of(shelf.part(one.own), f"<b>that</b><br>prototype {one.prototype}")
        that += figure_of(shelf.whole(one.own), f"<b>{breaking(one.label)}</b><br>{breaking(one.own.name)}")
    return f'<div class="strip">{this}{that}</div>'
