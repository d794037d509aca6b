"""fovea export."""

import tempfile
from pathlib import Path

from fovea.basics import BadChoice
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, say_page
from fovea.cli.glossary import writable


@command(
    "export",
    options=(
        "net", "with_", "precision", "calibrate", "page", "layer", "size", "fit", "out", "weights", "untrained",
    ),
    required=("out",),
    help={
        "out": "The file: NAME.onnx; NAME.pt2 (torch.export), NAME.aoti.pt2 (compiled); NAME.html, a page alone.",
        "layer": "Where to look; the last map that the output depends on if not given.",
    },
    examples=(
        "fovea export --out lite0.onnx",
        "fovea export --with gradcam --precision fp16 --out half.onnx",
        "fovea export --net mine.safetensors --precision int8 --calibrate photos/ --out small.onnx",
        "fovea export --page --out explain.html",
    ),
)  # fmt: skip
def export_network(asked: Asked) -> None:
    """Write a network and its heatmap as one file that runs without PyTorch (ONNX), or as a web page.

    The file takes a picture and gives the scores of all classes and the heatmap of any class."""
    out = Path(asked.out)
    writable("--out", out)
    alone = out.suffix.lower() == ".html"
    if asked.page and not alone and out.suffix.lower() != ".onnx":
        raise BadChoice(
            f"--page is made of an ONNX file: name --out NAME.onnx, or NAME.html for the page alone; got {out}"
        )
    network = asked.network()
    with tempfile.TemporaryDirectory() as folder, bar(f"exporting {network.name}"):
        from fovea.graphs import export

        written = export(
            network,
            Path(folder) / "graph.onnx" if alone else out,
            method=asked.with_,
            precision=asked.precision,
            calibrate=None if asked.calibrate is None else [asked.calibrate],
            layer=asked.layer,
            size=asked.size,
            fit=asked.fit_asked,
        )
        if alone or asked.page:
            if len(written.files) > 1:
                raise BadChoice(f"a page explains by one graph, and {network.name} has one per level: leave --page out")
            from fovea.graphs.page import write_page

            write_page(written.files[0], out.with_suffix(".html"))
    for path in () if alone else written.files:
        say.print(f"{path}: {path.stat().st_size / 1e6:,.1f} MB")
    say.print(f"{written.about['method']}, {written.about['solver']}: off fovea's own map by {written.difference:.1e}")
    if alone or asked.page:
        say_page(out.with_suffix(".html"))
