"""One page to open: real photographs, real ImageNet weights, all methods side by side, nothing downloaded."""

import base64
import html
import time
from collections.abc import Callable
from importlib.resources import files
from io import BytesIO
from pathlib import Path

import torch
from PIL import Image

import fovea
from fovea import drawing, regions
from fovea.explaining.sanity import Sanity
from fovea.heatmap import HeatMap
from fovea.network import Network

PHOTOGRAPHS = ("chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")
METHODS = {
    "cam": "CAM: each cell's share of the class's logit",
    "gradcam": "Grad-CAM: channels weighted by their mean gradient",
    "gradcam-abs": "Grad-CAM-abs: the same, evidence against shown too",
    "l2caf": "L2-CAF: the unit filter that keeps this class and drops the rest",
}

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --dim: #667085; --page: #f7f8fa; --card: #fff; --line: #e3e6eb; --bar: #31688e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8eaee; --dim: #98a2b3; --page: #14171c; --card: #1d2128; --line: #2e343d; --bar: #35b779; } }
* { box-sizing: border-box } body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif }
main { max-width: 1180px; margin: 0 auto; padding: 32px 20px 64px } h1 { font-size: 30px; margin: 0 0 4px } h2 { margin: 0 0 2px; font-size: 21px }
p { margin: 6px 0 } .dim { color: var(--dim); font-size: 14px }
section { background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 20px; margin-top: 22px }
.row { display: grid; gap: 14px; grid-template-columns: repeat(auto-fit, minmax(235px, 1fr)); margin-top: 12px }
figure { margin: 0 } img { width: 100%; height: auto; border-radius: 8px; display: block } figcaption { font-size: 13.5px; margin-top: 5px; color: var(--dim) }
figcaption b { color: var(--ink) } .guess { display: grid; grid-template-columns: 150px 1fr 46px; gap: 8px; align-items: center; font-size: 14px; margin: 3px 0 }
.guess i { display: block; height: 9px; border-radius: 5px; background: var(--bar) } .ramp { height: 10px; border-radius: 5px; max-width: 320px }
.ends { display: flex; justify-content: space-between; max-width: 320px; font-size: 12px; color: var(--dim) } code { font-size: 14px }
table { border-collapse: collapse; font-size: 14px; margin-top: 8px } td, th { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid var(--line) }
"""


def make(out: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
    """Write `out`/index.html, self-contained, and return its path."""
    out.mkdir(parents=True, exist_ok=True)
    network = fovea.load("efficientnet_lite0")
    photographs = [Path(str(files("skimage.data") / name)) for name in PHOTOGRAPHS]
    steps = len(photographs) + 2
    parts, first = [], None
    for i, path in enumerate(photographs):
        maps = fovea.explain(network, path, list(METHODS), "top2")
        first = first or maps["l2caf"]
        parts.append(_section(path, maps))
        progress(i + 1, steps)
    parts.append(_sanity(fovea.sanity(network, [str(path) for path in photographs[:2]])))
    progress(steps - 1, steps)
    cost = _cost(network)
    page = out / "index.html"
    page.write_text(_page(cost, parts, first.layer if first else ""), encoding="utf-8")
    progress(steps, steps)
    return page


def _page(cost: str, parts: list[str], layer: str) -> str:
    ramp = ", ".join(f"rgb({', '.join(str(int(c)) for c in colour)})" for colour in drawing.colour(torch.linspace(0, 1, 9).numpy()))
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>fovea: where a network looks</title><style>{STYLE}</style>
<main><h1>Where a network looks</h1>
<p>EfficientNet-Lite0 with its ImageNet weights, photographs that come with scikit-image, everything computed on this machine.</p>
<p class="dim">Maps are taken at {html.escape(layer)} (7 x 7 cells) and drawn on the photograph's own pixels; the pale border is what the
network's own crop leaves out. The white box holds the largest connected part above {regions.THRESHOLD:.0%} of the map's range.</p>
<div class="ramp" style="background: linear-gradient(90deg, {ramp})"></div><div class="ends"><span>does not matter</span><span>matters most</span></div>
{"".join(parts)}
<section><h2>What it costs</h2>{cost}</section>
<p class="dim">Made by <code>fovea demo</code>. Your own pictures: <code>fovea explain photo.jpg --target top5</code></p>
</main></html>
"""


def _section(path: Path, maps: dict[str, HeatMap]) -> str:
    seen = maps["l2caf"]
    guesses = "".join(
        f'<div class="guess"><span>{html.escape(label)}</span><i style="width: {max(share * 100, 0.5):.1f}%"></i><span>{share:.2f}</span></div>'
        for label, share in seen.shown[0].predictions
    )
    original = _figure(seen.shown[0].image(), f"<b>{html.escape(path.name)}</b>")
    methods = "".join(_figure(_drawn(maps[name]), f"<b>{name}</b> {words.split(':')[1]}") for name, words in METHODS.items())
    apart = "".join(_figure(_drawn(seen, target=k), f"<b>{html.escape(seen.title(0, k))}</b> by l2caf") for k in (0, 1))
    return f"""<section><h2>{html.escape(seen.title())}</h2><p class="dim">loss reached {float(seen.loss[0, 0]) if seen.loss is not None else 0:.2f}, solver: {seen.solver}</p>
<div class="row">{original}<div>{guesses}</div></div>
<p>Four methods, the class “{html.escape(seen.targets[0][0])}”</p><div class="row">{methods}</div>
<p>The two top classes apart</p><div class="row">{apart}</div></section>"""


def _drawn(seen: HeatMap, target: int = 0) -> Image.Image:
    placement = seen.shown[0].placement
    image = drawing.blend(seen.shown[0].image(), seen.evidence(0, target), placement.window if placement else None)
    zoom = image.width / seen.shown[0].image().width
    drawing.draw_box(image, tuple(float(side) * zoom for side in seen.boxes()[0, target]))
    return image


def _sanity(found: Sanity) -> str:
    rows = "".join(
        f"<tr><td>{what}</td><td>{found.mean(what):.2f}</td><td>{found.mean(what, 'ssim'):.2f}</td></tr>"
        for what in ("logits", "all layers")
    )
    verdict = "The maps change with the weights, as they must." if found.passed else "The maps do NOT depend on the weights."
    return f"""<section><h2>Is the map about the network?</h2>
<p>The same pictures through copies of the network with random weights. {verdict}</p>{_figure(found.figure(), "")}
<table><tr><th>randomised</th><th>rank correlation with the true map</th><th>SSIM</th></tr>{rows}</table></section>"""


def _cost(network: Network) -> str:
    from fovea.measure.speed import FOUR, compare

    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))

    def forward() -> None:
        with torch.no_grad():
            network(pixels)

    calls = {
        ("one", "l2caf, one class"): lambda: fovea.explain(network, pixels),
        ("all", "four methods, five classes"): lambda: fovea.explain(network, pixels, FOUR, "top5"),
    }
    times = compare(forward, calls, 7)
    rows = "".join(f"<tr><td>{name}</td><td>{s * 1e3:.1f} ms</td><td>{ratio:.2f}</td></tr>" for (_, name), (ratio, s) in times.items())
    when = time.strftime("%Y-%m-%d")
    return f"""<p class="dim">Measured as this page was made ({when}), {torch.get_num_threads()} threads, one picture at a time.</p>
<table><tr><th></th><th>time</th><th>in bare forwards</th></tr>{rows}</table>"""


def _figure(image: Image.Image, caption: str) -> str:
    buffer = BytesIO()
    image.convert("RGB").save(buffer, "jpeg", quality=88)
    data = base64.b64encode(buffer.getvalue()).decode()
    words = f"<figcaption>{caption}</figcaption>" if caption else ""
    return f'<figure><img alt="" src="data:image/jpeg;base64,{data}">{words}</figure>'
