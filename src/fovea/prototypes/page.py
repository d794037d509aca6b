"""Prototypes, or answers by them, as one page to open in a browser, with its pictures inside."""

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from fovea.basics import BadPicture, write_text
from fovea.prototypes import figure
from fovea.prototypes.reasons import Likeness, LooksLike, Prototype
from fovea.results import Results, breaking, page, strip
from fovea.results import figure as figure_of

PAGE = "prototypes.html"
STYLE = """.strip { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 14px;
margin: 14px 0 24px; align-items: end } .strip img { width: auto; max-width: 100% }
figcaption { overflow-wrap: anywhere; min-height: 3em }
.own { border-right: 1px solid var(--line); padding-right: 14px } .same { color: var(--bar); font-weight: 600 }"""


Rows = Sequence[Mapping[str, Any]]  # of earlier runs into the folder, whose sheets the page shows last


def write_prototypes(found: Results[Prototype], folder: Path, before: Rows = ()) -> Path:
    """`folder`/prototypes.html: one section per class, one row per prototype; the page's path comes back."""
    classes: dict[str, list[Prototype]] = {}
    for prototype in found:
        classes.setdefault(prototype.label, []).append(prototype)
    sections = [
        f"<section><h2>{html.escape(label)}</h2>{''.join(map(_prototype, members))}</section>"
        for label, members in classes.items()
    ]
    lead = (
        "Every prototype is a part of one training picture, the box in the first picture of a row. Beside it are the "
        "parts of other pictures that look most like it. A box holds the top 5 percent of the prototype's map."
    )
    return _write(folder, "Prototypes", lead, [*sections, *strip(before)], found.settings)


def write_answers(found: Results[LooksLike], folder: Path, before: Rows = ()) -> Path:
    """`folder`/prototypes.html: one section per picture, one row per reason; the page's path comes back."""
    lead = (
        "Each picture is named for the prototypes that its parts look like: similarity x weight is what a prototype "
        "contributes to the answer's logit."
    )
    sections = [*map(_answer, found), *strip(before)]
    return _write(folder, "This looks like that", lead, sections, found.settings)


def _write(folder: Path, title: str, lead: str, sections: Sequence[str], settings: Mapping[str, Any]) -> Path:
    about = ", ".join(f"{key}: {value}" for key, value in settings.items())
    heading = f"""<h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p><p class="dim">{html.escape(about)}</p>
"""
    write_text(folder / PAGE, page(title.lower(), [heading, *sections], STYLE))
    return folder / PAGE


def _prototype(prototype: Prototype) -> str:
    shelf = prototype.shelf
    words = f"<b>prototype {prototype.number}</b><br>weight {prototype.weight:.2f}"
    if prototype.own is None:
        own = f'<p class="dim">{words}, not projected on a picture</p>'
    else:
        own = figure_of(shelf.whole(prototype.own), f"{words}, {breaking(prototype.own.name)}")
        own += figure_of(shelf.part(prototype.own), "<b>the prototype</b><br>itself", "own")
    for patch in prototype.nearest:
        kind = ' class="same"' if patch.label == prototype.label else ""
        words = f"<span{kind}>{breaking(patch.label)}</span><br>similarity {patch.similarity:.2f}"
        own += figure_of(shelf.part(patch), words)
    return f'<div class="strip">{own}</div>'


def _answer(answer: LooksLike) -> str:
    try:
        image = answer.image()
    except BadPicture as reason:  # gone since it was compared
        return f'<section><p class="dim">{html.escape(str(reason))}</p></section>'
    reasons = "".join(_reason(image, reason, answer.shelf) for reason in answer.reasons)
    return f"""<section><h2>{html.escape(answer.label)} {answer.probability:.2f}</h2>
<p class="dim">{html.escape(Path(answer.name).name)}; {answer.shares()}</p>{reasons}</section>"""


def _reason(image: Image.Image, reason: Likeness, shelf: figure.Shelf) -> str:
    this = figure_of(figure.boxed(image, reason.box), f"<b>{reason}</b><br>similarity x weight")
    this += figure_of(figure.cropped(image, reason.box), "<b>this</b><br>looks like", "own")
    if reason.own is None:
        which = f"prototype {reason.prototype} of {html.escape(reason.label)}"
        that = f'<p class="dim">{which}, not projected on a picture</p>'
    else:
        that = figure_of(shelf.part(reason.own), f"<b>that</b><br>prototype {reason.prototype}")
        that += figure_of(shelf.whole(reason.own), f"<b>{breaking(reason.label)}</b><br>{breaking(reason.own.name)}")
    return f'<div class="strip">{this}{that}</div>'
