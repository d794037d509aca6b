"""What every page of ours is made of: one HTML file with its pictures inside, to open in a browser or to send on."""

import base64
import html
from collections.abc import Iterable
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from fovea.results import drawing

QUALITY = 85  # of pictures, as JPEG


def page(title: str, body: Iterable[str], style: str = "") -> str:
    """The whole file; the title is for the browser's tab, the style comes after the one that all pages share."""
    css = files("fovea.results").joinpath("page.css").read_text()
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fovea: {html.escape(title)}</title><style>{css}{style}</style>
<main>{"".join(body)}</main></html>
"""


def is_ours(file: Path) -> bool:
    """Whether a file is such a page."""
    with open(file, "rb") as opened:
        return b"<title>fovea: " in opened.read(1000)


def figure(image: Image.Image, caption: str, kind: str = "") -> str:
    words = f"<figcaption>{caption}</figcaption>" if caption else ""
    own = f' class="{kind}"' if kind else ""
    return f'<figure{own}><img alt="" src="{inside(image)}">{words}</figure>'


def inside(image: Image.Image) -> str:
    """A picture as an address that holds it."""
    buffer = BytesIO()
    image.convert("RGB").save(buffer, "jpeg", quality=QUALITY)
    return f"data:image/jpeg;base64,{base64.b64encode(buffer.getvalue()).decode()}"


def ramp(low: str, high: str) -> str:
    """The colors of a map, with what its two ends mean."""
    stops = drawing.color(np.linspace(0, 1, 9)).astype(int).tolist()
    colors = ", ".join(f"rgb({r}, {g}, {b})" for r, g, b in stops)
    return f"""<div class="ramp" style="background: linear-gradient(90deg, {colors})"></div>
<div class="ends"><span>{html.escape(low)}</span><span>{html.escape(high)}</span></div>"""


def breaking(name: str) -> str:
    """A long name may go on in the next line."""
    return html.escape(name).replace("_", "_<wbr>").replace("/", "/<wbr>")
