"""A result as what was asked for: JSON, a picture, an array, a page to keep, or what the living page draws itself."""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import numpy as np

from fovea.pictures import PHOTOGRAPH, fitting
from fovea.results import Results, View, inside, wire
from fovea.serve.verbs import Answered, Verb

PLAIN = "application/json"


def answer(verb: Verb, settings: Mapping[str, Any], answered: Answered, output: str, ms: float) -> tuple[bytes, str]:
    """The body, and its type."""
    result, about = answered.result, {"refused": answered.refused} if answered.refused else {}
    if output == "png":
        buffer = BytesIO()
        result.draw().save(buffer, "png")
        return buffer.getvalue(), "image/png"
    if output == "npy" and verb.values is not None:
        buffer = BytesIO()
        np.save(buffer, verb.values(result))
        return buffer.getvalue(), "application/octet-stream"
    if output == "html":
        return Results([result], (), verb.name, settings).html().encode(), "text/html; charset=utf-8"
    content = _content({"what": verb.name, "settings": settings}, result, output, ms)
    return json.dumps(content | about, allow_nan=False).encode(), PLAIN


def _content(head: dict[str, Any], result: Any, output: str, ms: float) -> dict[str, Any]:
    if output == "exact":
        return head | {"results": wire.pack([result])}
    row = {"name": result.name, **result.to_dict()}
    if output == "json":
        return head | {"results": [row], "skipped": []}
    return head | {"result": row, "view": _view(result.view(), output == "view"), "ms": round(ms, 1)}


def _view(view: View, drawn: bool) -> dict[str, Any]:
    """What a page shows; one that has the picture itself needs no other, only where maps lie on it."""
    if drawn:
        pictures = view.pictures()
        sizes, sources = [picture.size for picture in pictures], list(map(inside, pictures))
    else:
        places = {overlay.panel: fitting(overlay.placement.picture, PHOTOGRAPH) for overlay in view.overlays}
        sizes, sources = [places.get(panel, (0, 0)) for panel in range(len(view.panels))], [""] * len(view.panels)
    return view.to_dict(sizes, sources, [""] * len(view.panels))
