"""A graph as one HTML file that explains a picture in a browser: no server, no connection, opened by a double click."""

import base64
import gzip
import html
import json
import lzma
import re
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from fovea.basics import BadChoice, BadNetwork, boxes, write_text
from fovea.graphs.writing import needed
from fovea.results import pages, script_json

RUNTIME = "onnxruntime-web-1.30.0"  # the build for a CPU, beside its license
SCRIPTS = ("prepare.js", "box.js", "main.js")
OUTPUTS = ("logits", "heatmap", "explained")
MOST = 300_000_000  # bytes of a graph: base64 in a page, a browser holds it three times while it starts


def write_page(graph: Path, out: Path) -> Path:
    """One file, with the graph, the runtime and the script inside; its path comes back."""
    about = _facts(graph)
    words = {"net": pages.breaking(about["net"]), "method": html.escape(about["method"])}
    body = _asset("body.html").format(**words, controls=pages.controls(1, maps=True), legend=pages.legend())
    inside = [
        body,
        _block("about", "application/json", script_json(about | {"threshold": boxes.THRESHOLD})),
        _block("runtime", "application/octet-stream", _wasm()),
        _block("model", "application/octet-stream", _packed(graph.read_bytes())),
    ]
    painting = files("fovea.results").joinpath("painting.js").read_text()
    script = "".join([_bundle(), painting, *map(_asset, SCRIPTS)])
    title = f"{about['net']} by {about['method']}"
    write_text(out, pages.page(title, inside, _asset("style.css"), [script], maps=True, beside=""))
    return out


def _facts(graph: Path) -> dict[str, Any]:
    """What the graph says of itself; refused where a page cannot run it."""
    with needed():
        import onnx

    size = graph.stat().st_size
    if size > MOST:
        raise BadNetwork(f"{graph} has {size:,} bytes, and a page holds {MOST:,}: choose a smaller network")
    model = onnx.load(graph, load_external_data=False)
    found = {entry.key: entry.value for entry in model.metadata_props}
    inputs, outputs = ({value.name for value in values} for values in (model.graph.input, model.graph.output))
    if "fovea" not in found or not outputs.issuperset(OUTPUTS):
        raise BadNetwork(f"{graph} is no graph that 'fovea export' wrote with a heatmap: export the network again")
    if any(tensor.data_location == onnx.TensorProto.EXTERNAL for tensor in model.graph.initializer):
        raise BadNetwork(f"{graph} has its weights in a file beside it, too many for a page: choose a smaller network")
    if "pixels" not in inputs:
        raise BadChoice("a page prepares pictures by fovea's own transform, which this network does not have")
    return dict(json.loads(found["fovea"]))


def _bundle() -> str:
    """The runtime's script as one value; it is not imported, which file:// forbids, and its names stay inside."""
    code, names = _runtime(f"{RUNTIME}.min.mjs").decode().rsplit("export{", 1)
    default = re.search(r"(\w+) as default", names)
    assert default is not None
    return f"/*!\n{_runtime('LICENSE.txt').decode()}*/\nconst ort = (() => {{{code}return {default[1]};}})();\n"


@cache
def _wasm() -> str:
    return _packed(lzma.decompress(_runtime(f"{RUNTIME}.wasm.xz")))


def _packed(data: bytes) -> str:
    return base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _block(name: str, kind: str, content: str) -> str:
    return f'<script type="{kind}" id="{name}">{content}</script>\n'


def _asset(name: str) -> str:
    return files("fovea.graphs").joinpath("page", name).read_text()


def _runtime(name: str) -> bytes:
    return files("fovea.graphs").joinpath("runtime", name).read_bytes()
