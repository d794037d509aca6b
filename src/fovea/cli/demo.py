"""One page to open: real photographs, real ImageNet weights, all methods side by side, nothing downloaded."""

import html
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import torch

import fovea
from fovea.basics import BadChoice, Progress, quiet, write_text
from fovea.data import open_data
from fovea.heatmaps import Explained, Sanity, method
from fovea.networks import Network
from fovea.patches import LocalizedText, localize_texts
from fovea.results import FILE, article_of, figure, page_of, pages

PHOTOGRAPHS = ("chelsea.png", "coffee.png", "rocket.jpg", "motorcycle_left.png")
SENTENCES = (  # three of the paper's own, and two to try
    "the film is really not so much bad as bland .",
    "even if the ring has a familiar ring , it's still unusually crafty and intelligent for hollywood horror .",
    "it's almost as if it's an elaborate dare more than a full-blooded film .",
    "a warm , funny and beautifully acted story that never talks down to its audience .",
    "two hours of noise , and not one scene that anybody will remember .",
)
CANVASES = "megapixel:canvas=896,clutter=50,noise=0,source=digits,split=test,count=3"
SIDE, MOST = 95, 4  # of the patches of an ordinary network: pixels of its input, and how many
METHODS = ["cam", "gradcam", "gradcam-abs", "l2caf"]


def make(out: Path, progress: Progress = quiet, device: str = "auto") -> Path:
    """Write `out`/index.html, self-contained, and return its path."""
    if (out / FILE).exists():
        raise BadChoice(f"{out} holds results, whose page would be lost: name another folder")
    index = page_of(out)
    network = fovea.load("efficientnet_lite0").to(device)
    photographs = [Path(str(files("skimage.data") / name)) for name in PHOTOGRAPHS]
    steps = len(photographs) + 5
    parts, layer = [], ""
    for i, path in enumerate(photographs):
        maps = fovea.explain(network, path, method=METHODS, target="top2")
        layer = maps["l2caf"].layer
        parts.append(article_of(Explained(tuple(maps[name][0] for name in METHODS))))
        progress(i + 1, steps)
    parts.append(_patches(network, photographs))
    progress(steps - 4, steps)
    parts.append(_texts(device))
    progress(steps - 3, steps)
    parts.append(_zoom(device))
    progress(steps - 2, steps)
    parts.append(_sanity(fovea.sanity(network, [str(path) for path in photographs[:2]])))
    progress(steps - 1, steps)
    cost = _cost(network)
    write_text(index, _page(cost, parts, layer))
    progress(steps, steps)
    return index


def _page(cost: str, parts: list[str], layer: str) -> str:
    heading = f"""<h1>Where a network looks</h1>
<p>EfficientNet-Lite0 with its ImageNet weights, photographs that come with scikit-image,
everything computed on this machine.</p>
<p class="dim">The network is shown the whole photograph, in its proportions; maps are taken at {html.escape(layer)}
and drawn on the photograph's own pixels, for the two top classes, by {len(METHODS)} methods.</p>
<ul class="dim">{"".join(f"<li><b>{name}</b>: {method.entry(name).about}</li>" for name in METHODS)}</ul>
{pages.legend()}{pages.controls(1, maps=True)}
"""
    ending = f"""
<section><h2>What it costs</h2>{cost}</section>
<p class="dim">Made by <code>fovea demo</code>. Your own pictures:
<code>fovea explain photo.jpg --target top5</code></p>
"""
    return pages.page("where a network looks", [heading, *parts, ending], scripts=pages.scripts(), maps=True)


def _patches(network: Network, photographs: list[Path]) -> str:
    """LIP on an ordinary network's class map, with what may be said of such patches and what may not."""
    paths = [str(path) for path in photographs]
    found = fovea.localize(network, paths, method="cam", side=SIDE, count=MOST, overlap=0.2, share=0.3)
    figures = "".join(
        figure(
            one.draw(titled=False), f"<b>{html.escape(one.label)} {one.probability:.2f}</b>, {len(one.patches)} patches"
        )
        for one in found
    )
    return f"""<section><h2>The patches that speak for it</h2>
<p>LIP takes the best cells of a map whose squares overlap little: here of the class map of EfficientNet-Lite0,
at most {MOST} squares of {SIDE} x {SIDE} of its input's pixels, numbered from the best on.</p>
<div class="row">{figures}</div>
<p class="dim">What these squares do not say: that the rest of the photograph did not count.
Followed through the network: {html.escape(str(network.geometry()))}.
AnchorNet is built so that a cell sees its own patch alone:
<code>fovea localize photo.jpg --net anchornet-imagenette</code>.</p></section>"""


def _zoom(device: str) -> str:
    """TNet on canvases that are drawn here, from digits that come with scikit-learn and that it was not trained on."""
    canvases = open_data(CANVASES)
    answers = fovea.zoom(fovea.load("tnet-digits").to(device), [sample.source.read() for sample in canvases.samples])
    drawn = "".join(
        article_of(replace(answer, shown=replace(answer.shown, name=f"a {canvases.labels[sample.label]}")))
        for sample, answer in zip(canvases.samples, answers, strict=True)
    )
    share = sum(answer.cost.share for answer in answers) / len(answers)
    return f"""<section><h2>Reading only what matters</h2>
<p>One digit of 28 pixels among fragments of others, on a canvas of 896 x 896. TNet reads the whole canvas at a
quarter of its resolution, then two windows at half and two at full resolution, each chosen by what was read before:
{share:.0%} of the canvas at full resolution. Click a box or a bar to see what was read there.</p>{drawn}
<p class="dim">Your own: <code>fovea zoom scene.jpg --glimpses 4</code></p></section>"""


def _texts(device: str) -> str:
    """The spans of AnchorNet-T's three branches."""
    found = localize_texts(fovea.load("anchornet_text-mr").to(device), SENTENCES)
    parts = "".join(_text(one) for one in found)
    return f"""<section><h2>The words that speak for it</h2>
<p>AnchorNet-T has read 8,500 sentences of film reviews. Its three branches see 3, 5 and 7 words in a row;
the span with the most evidence is marked.</p>{parts}</section>"""


def _text(found: LocalizedText) -> str:
    start, stop = found.span.place
    before, marked, after = map(html.escape, (found.text[:start], found.text[start:stop], found.text[stop:]))
    rows = "".join(
        f"<tr><td>{branch.window} words</td><td>{html.escape(branch.label)} {branch.probability:.2f}</td>"
        f"<td>{html.escape(branch.span.words)}</td></tr>"
        for branch in found.branches
    )
    return f"""<p class="sentence">{before}<mark>{marked}</mark>{after}</p>
<p class="dim"><b>{html.escape(found.label)} {found.probability:.2f}</b></p><table>{rows}</table>"""


def _sanity(found: Sanity) -> str:
    rows = "".join(
        f"<tr><td>{what}</td><td>{found.mean(what):.2f}</td><td>{found.mean(what, 'ssim'):.2f}</td></tr>"
        for what in ("logits", "all layers")
    )
    words = "change with the weights, as they must" if found.passed else "do NOT depend on the weights"
    return f"""<section><h2>Is the map about the network?</h2>
<p>The same pictures through copies of it with random weights. The maps {words}.</p>{figure(found.figure(), "")}
<table><tr><th>randomized</th><th>rank correlation with the true map</th><th>SSIM</th></tr>{rows}</table></section>"""


def _cost(network: Network) -> str:
    from fovea.measures.speed import FOUR
    from fovea.measures.timing import compare, forward

    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    calls = {
        ("one", "l2caf, one class"): lambda: fovea.explain(network, pixels),
        ("all", "four methods, five classes"): lambda: fovea.explain(network, pixels, method=FOUR, target="top5"),
    }
    times = compare(forward(network, pixels), calls, 7)
    row = "<tr><td>{}</td><td>{:.1f} ms</td><td>{:.2f}</td></tr>"
    rows = "".join(row.format(name, spent * 1e3, ratio) for (_, name), (ratio, spent) in times.items())
    when = time.strftime("%Y-%m-%d")
    return f"""<p class="dim">Measured as this page was made ({when}), {torch.get_num_threads()} threads,
one picture at a time.</p>
<table><tr><th></th><th>time</th><th>in bare forwards</th></tr>{rows}</table>"""
