"""What every page of ours is made of: HTML that a browser opens without a connection, its script and style inside."""

import base64
import hashlib
import html
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from PIL import Image

from fovea.basics import boxes as regions
from fovea.results import drawing

QUALITY = 85  # of pictures, as JPEG
VIEWER = "openseadragon-6.1.1.min.js"  # by which one zooms into a picture; beside its license
ORDERS = {
    "given": "as given",
    "name": "name",
    "label": "label",
    "sure": "probability, highest first",
    "unsure": "probability, lowest first",
}


def page(
    title: str,
    body: Iterable[str],
    style: str = "",
    scripts: Sequence[str] = (),
    maps: bool = False,
    beside: str = "'self' file:",
) -> str:
    """The whole file; the title is for the browser's tab, the style comes after the one that all pages share.

    Nothing runs in it but the scripts: what a file's name or a label may smuggle in does nothing. `beside`: where
    pictures and scripts of a page that is not one file may come from.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    runs = " ".join(f"'sha256-{digest}'" for digest in digests)
    rules = f"default-src 'none'; img-src {beside} data:; media-src {beside}; style-src 'unsafe-inline'; "
    # tools that drive a browser evaluate words of their own; the page does not
    rules += f"script-src {runs} {beside} 'unsafe-eval'" if scripts else "script-src 'none'"
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fovea: {html.escape(title)}</title><meta http-equiv="Content-Security-Policy" content="{rules}">
<style>{_file("page.css")}{style}</style>
<main{f' data-colors="{colors()}"' if maps else ""}>{"".join(body)}</main>
{"".join(f"<script{'' if script == viewer() else ' type=module'}>{script}</script>" for script in scripts)}</html>
"""


@cache
def _file(name: str) -> str:
    return files("fovea.results").joinpath(name).read_text()


def scripts(deep: bool = False) -> tuple[str, ...]:
    """What makes articles come alive; and what zooms into pictures, on a page that has nothing beside it."""
    return (*[viewer()] * deep, _file("painting.js") + _file("stage.js") + _file("page.js"))


@cache
def viewer() -> str:
    """No module: it is known to all scripts by its name."""
    return f"/*!\n{_file('openseadragon/LICENSE.txt')}*/\n{_file(f'openseadragon/{VIEWER}')}"


@cache
def colors() -> str:
    """Red, green, blue and opacity of 256 values, by which maps are painted as `drawing` does it."""
    shares = np.linspace(0, 1, 256)
    table = np.column_stack([drawing.color(shares), 255 * drawing.opacity(shares)])
    return base64.b64encode(table.round().astype(np.uint8).tobytes()).decode()


def is_ours(file: Path) -> bool:
    """Whether a file is such a page."""
    with open(file, "rb") as opened:
        return b"<title>fovea: " in opened.read(1000)


def article(row: Mapping[str, Any], stem: str, src: str = "", data: str = "", content: str = "") -> str:
    """What is there without a script: the name, the label and the picture; the rest, from the file `data` or the
    `content` inside, comes when one scrolls to it. `row` is one of results.json."""
    name, label = str(row["name"]), str(row.get("label") or "")
    share = row.get("probability")
    share = f"{share:.2f}" if isinstance(share, (int, float)) else ""
    about = {"stem": stem, "name": name, "label": label, "share": share, "src": data}
    attributes = "".join(f' data-{key}="{html.escape(value)}"' for key, value in about.items() if value)
    picture = f'<img loading="lazy" alt="" src="{html.escape(src)}">' if src else ""
    inside = f'<script type="application/json">{content}</script>' if content else ""
    return f"""<article{attributes}><header><h3>{breaking(Path(name).name if src else name)}</h3>
<p><b>{html.escape(label)}</b> {share}</p></header>
<div class="body"><div class="photo">{picture}</div></div>{inside}</article>
"""


def controls(count: int, maps: bool) -> str:
    """Search and sort where there is more than one, and the opacity of maps; there where a script runs."""
    orders = "".join(f'<option value="{key}">{words}</option>' for key, words in ORDERS.items())
    fading = """<label>Map <input type="range" name="fade" min="0" max="100" value="100"></label>
<label><input type="checkbox" name="boxes" checked> boxes</label>"""
    many = f"""<label><span>Search</span>
<input type="search" name="search" placeholder="name or label" autocomplete="off"></label>
<label><span>Sort by</span> <select name="sort" aria-label="sort by">{orders}</select></label>"""
    return (
        ""
        if count < 2 and not maps
        else f"""<form class="controls" hidden>{many if count > 1 else ""}{fading if maps else ""}
<output name="count"></output></form>
"""
    )


def legend() -> str:
    """What the colors, the box and the hatching of a map mean."""
    return f"""<div class="legend"><div>{ramp("does not matter", "matters most")}</div>
<span><i class="key box"></i> the largest part above {regions.THRESHOLD:.0%} of the map's range</span>
<span><i class="key hatched"></i> {drawing.UNSEEN}</span></div>
"""


def figure(image: Image.Image, caption: str, kind: str = "") -> str:
    words = f"<figcaption>{caption}</figcaption>" if caption else ""
    own = f' class="{kind}"' if kind else ""
    return f'<figure{own}><img alt="" src="{inside(image)}">{words}</figure>'


def inside(image: Image.Image) -> str:
    """A picture as an address that holds it."""
    buffer = BytesIO()
    image.convert("RGB").save(buffer, "jpeg", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def address(name: str) -> str:
    """A file beside the page."""
    return quote(os.fsencode(name))


def ramp(low: str, high: str) -> str:
    """The colors of a map as they are laid over a photograph, with what its two ends mean."""
    shares = np.linspace(0, 1, 9)
    stops = zip(drawing.color(shares).astype(int).tolist(), drawing.opacity(shares), strict=True)
    colors = ", ".join(f"rgba({r}, {g}, {b}, {a:.2f})" for (r, g, b), a in stops)
    return f"""<div class="ramp" style="background: linear-gradient(90deg, {colors})"></div>
<div class="ends"><span>{html.escape(low)}</span><span>{html.escape(high)}</span></div>"""


def breaking(name: str) -> str:
    """A long name may go on in the next line."""
    return html.escape(name).replace("_", "_<wbr>").replace("/", "/<wbr>")
