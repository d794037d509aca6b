"""One page to open: real photographs, real ImageNet weights, an answer with its evidence each, nothing downloaded."""

import html
import time
from dataclasses import replace
from pathlib import Path

import torch

import fovea
from fovea.basics import BadChoice, Progress, quiet, write_text
from fovea.data import PHOTOGRAPHS, SENTENCES, open_data, photograph
from fovea.networks import Network
from fovea.patches import LocalizedText, localize_texts
from fovea.results import FILE, article_of, page_of, pages

CANVASES = "megapixel:canvas=896,clutter=50,noise=0,source=digits,split=test,count=3"


def make(out: Path, progress: Progress = quiet, device: str = "auto") -> Path:
    """Write `out`/index.html, self-contained, and return its path."""
    if (out / FILE).exists():
        raise BadChoice(f"{out} holds results, whose page would be lost: name another folder")
    index = page_of(out)
    network = fovea.load("efficientnet_lite0").to(device)
    photographs = [*map(photograph, PHOTOGRAPHS)]
    steps, parts = len(photographs) + 3, list[str]()
    for path in photographs:
        (found,) = fovea.look(network, path)
        parts.append(article_of(found))
        progress(len(parts), steps)
    parts.append(_texts(device))
    progress(steps - 2, steps)
    parts.append(_zoom(device))
    progress(steps - 1, steps)
    write_text(index, _page(_cost(network), parts))
    progress(steps, steps)
    return index


def _page(cost: str, parts: list[str]) -> str:
    heading = f"""<h1>One picture, one answer, all of its evidence</h1>
<p>EfficientNet-Lite0 with its ImageNet weights, photographs that come with scikit-image,
everything computed on this machine.</p>
<p class="dim">Of each photograph: what it is taken for, where that is seen, what tells it from the runner-up, the least
of it that is enough by itself and the least without which the answer changes (with the rest gray, and blurred), what a
few parts say at full resolution, and whether the map stands what a map should stand.</p>
{pages.legend()}{pages.controls(1, maps=True)}
"""
    ending = f"""
<section><h2>What it costs</h2>{cost}</section>
<p class="dim">Made by <code>fovea demo</code>. Your own pictures: <code>fovea look photo.jpg</code>; what a classifier
rests on: <code>fovea audit photos/ --net mine.safetensors</code></p>
"""
    title = "one answer, all of its evidence"
    return pages.page(title, [heading, *parts, ending], scripts=pages.scripts(), maps=True)


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


def _cost(network: Network) -> str:
    from fovea.measures.speed import FOUR
    from fovea.measures.timing import compare, forward

    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    calls = {
        ("one", "l2caf, one class"): lambda: fovea.explain(network, pixels),
        ("look", "a look: all of the evidence"): lambda: fovea.look(network, pixels),
        ("all", "four methods, five classes"): lambda: fovea.explain(network, pixels, method=FOUR, target="top5"),
    }
    times = compare(forward(network, pixels), calls, 7)
    row = "<tr><td>{}</td><td>{:.1f} ms</td><td>{:.2f}</td></tr>"
    rows = "".join(row.format(name, spent * 1e3, ratio) for (_, name), (ratio, spent) in times.items())
    when = time.strftime("%Y-%m-%d")
    return f"""<p class="dim">Measured as this page was made ({when}), {torch.get_num_threads()} threads,
one picture at a time.</p>
<table><tr><th></th><th>time</th><th>in bare forwards</th></tr>{rows}</table>"""
