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
STYLE = """.strip { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 14px;
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
        f"<section><h2>{html.escape(label)}</h2>{''.join(map(_prototype, figure.by_patch(members)))}</section>"
        for label, members in classes.items()
    ]
    lead = (
        "Every prototype is a part of one training picture, the box in the first picture of a row. Beside it are the "
        "parts of other pictures that look most like it. A box holds the top 5 percent of the prototype's map."
    )
    return _write(folder, "Prototypes", lead, [*sections, *strip(before)], found.settings)


def write_answers(found: Results[LooksLike], folder: Path, before: Rows = ()) -> Path:
    """`folder`/prototypes.html: one section per picture, one row per reason; the page's path comes back."""
    lead = "Each picture is named for the prototypes that its parts look like: similarity x weight adds to the logit."
    sections = [*map(_answer, found), *strip(before)]
    return _write(folder, "This looks like that", lead, sections, found.settings)


def _write(folder: Path, title: str, lead: str, sections: Sequence[str], settings: Mapping[str, Any]) -> Path:
    about = ", ".join(f"{key}: {value}" for key, value in settings.items())
    heading = f'<h1>{html.escape(title)}</h1><p>{html.escape(lead)}</p><p class="dim">{html.escape(about)}</p>\n'
    write_text(folder / PAGE, page(title.lower(), [heading, *sections], STYLE))
    return folder / PAGE


def _prototype(group: Sequence[Prototype]) -> str:
    first = group[0]
    shelf, weights = first.shelf, ", ".join(f"{each.weight:.2f}" for each in group)
    words = f"<b>{figure.numbers_of([each.number for each in group])}</b><br>weight {weights}"
    if first.own is None:
        own = f'<p class="dim">{words}, not projected on a picture</p>'
    else:
        own = figure_of(shelf.whole(first.own), f"{words}, {breaking(first.own.name)}")
        own += figure_of(shelf.part(first.own), "<b>the prototype</b><br>itself", "own")
    for patch in first.nearest:
        kind = ' class="same"' if patch.label == first.label else ""
        words = f"<span{kind}>{breaking(patch.label)}</span><br>similarity {patch.similarity:.2f}"
        own += figure_of(shelf.part(patch), words)
    return f'<div class="strip">{own}</div>'


def _answer(answer: LooksLike) -> str:
    try:
        image = answer.image()
    except BadPicture as reason:  # gone since it was compared
        return f'<section><p class="dim">{html.escape(str(reason))}</p></section>'
    parts = "".join(_part(image, part, answer.shelf) for part in figure.by_part(answer.reasons))
    return f"""<section><h2>{html.escape(answer.label)} {answer.probability:.2f}</h2>
<p class="dim">{html.escape(Path(answer.name).name)}; {answer.shares()}</p>{parts}</section>"""


def _part(image: Image.Image, part: Sequence[Sequence[Likeness]], shelf: figure.Shelf) -> str:
    """A part of the picture beside all the patches that it looks like."""
    box = part[0][0].box
    row = figure_of(figure.boxed(image, box), "<b>this part</b><br>of the picture")
    row += figure_of(figure.cropped(image, box), "<b>looks like</b><br>similarity x weight", "own")
    for patch in part:
        words = f"<b>{figure.numbers_of([each.prototype for each in patch])}</b><br>{figure.added(patch)}"
        own, name = patch[0].own, breaking(patch[0].label)
        if own is None:
            row += f'<p class="dim">{words}<br>of {name}, not projected on a picture</p>'
        else:
            row += figure_of(shelf.part(own), words)
            row += figure_of(shelf.whole(own), f"<b>{name}</b><br>{breaking(own.name)}", "own")
    return f'<div class="strip">{row}</div>'
