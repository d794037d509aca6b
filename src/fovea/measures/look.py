"""Is less enough? The patches that `fovea.look` finds enough, or needed, beside others that do the same; and whether
the contrast map finds what tells the answer from the runner-up.

The others are the first patches of an order, as few as do on every background, tried one after the other: of a random
order, and the hottest of the answer's own map. Contrast is measured as RISE measures maps (Petsiuk et al. 2018), but
what is followed is the answer's logit less the runner-up's."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics import BadChoice, by_bootstrap, interval_of_means
from fovea.evidence import BACKGROUNDS, SHARE, LeastSearch, LookOptions, Masked, PictureLooker
from fovea.heatmaps import look_at
from fovea.measures import Figures, Run, Tally, mean, measure
from fovea.measures.curves import KINDS, area_under, best, places, under_masks
from fovea.measures.localized import cells_of
from fovea.measures.plots import COLORS, sheet
from fovea.measures.random_control import RANDOM
from fovea.networks import FILLS, Network, filling, input_of

LOOK, HOTTEST = "look", "hottest"
CONTRAST, ANSWER, L2CAF = "contrast", "answer", "l2caf"
SOURCES = {  # what patches, or pixels, are chosen by: look's own first
    **dict.fromkeys(("enough", "needed"), (LOOK, HOTTEST, RANDOM)),
    **dict.fromkeys(("deletion", "insertion"), (CONTRAST, ANSWER, L2CAF)),
}
PANELS = {
    "enough": "enough: share of the picture\n(lower is better)",
    "needed": "needed: share of the picture\n(lower is better)",
    "deletion": "logits' difference, deletion\n(lower is better)",
    "insertion": "logits' difference, insertion\n(higher is better)",
}
Patches = frozenset[int]
Values = NDArray[np.float64]


@measure(
    "look",
    title="Enough, needed and contrast",
    about="Whether the parts that 'fovea look' calls enough and needed are better than the hottest parts and random "
    "ones. It also measures whether the contrast map finds what speaks for the answer against the runner-up.",
    example="photos/ --net mine.safetensors --limit 100",
    needs=("labels?",),
    any_size=True,
    columns=("kind", "by", "images", "mean", "change", "none", "held"),
    figure="draw",
)
def look(run: Run, *, forwards: int = 60, steps: int = 10, batch: int = 16, seed: int = 0) -> Figures:
    """One row per kind and what patches or pixels are chosen by, look's own first. Of `enough` and `needed` the mean is
    the share of the picture, 1 where nothing less was found (`none` pictures); `held` is how often what was found does
    on every background in a pass of its own. Of `deletion` and `insertion` it is the area under the curve of the
    difference of logits. `change` is beside look's own, in pairs."""
    network, tally, random = run.network.fitted(), Tally(), np.random.default_rng(seed)
    if network.can("glimpses"):
        raise BadChoice(f"{network.name or 'this network'} reads glimpses: it has no map that its answer depends on")
    looker = PictureLooker(network, LookOptions(forwards=forwards, trust=False))
    for _, ((tensors, shown, _),) in run.inputs(1, [network]):
        maps, output = look_at(network, tensors, shown, [SHARE, L2CAF], ["top1", "contrast"])
        shares, classes = maps[SHARE.name], output[0].topk(2).indices.tolist()
        (evidence,), masked = looker.of(tensors, shown, 0, 1), Masked.of(network, tensors, classes[0])
        ranks = {HOTTEST: masked.ranked(shares.map()), RANDOM: random.random(masked.count, np.float32)}
        for kind, keeps, own in (("enough", True, evidence.enough), ("needed", False, evidence.needed)):
            others = {name: first(LeastSearch(masked, rank, keeps, budget=0)) for name, rank in ranks.items()}
            for name, patches in {LOOK: None if own is None else own.patches, **others}.items():
                tally.put((kind, name), np.array([1.0 if patches is None else masked.share(patches)]))
                held = np.nan if patches is None else float(does(masked, patches, keeps))
                tally.put(("held", kind, name), np.array([held]))
        tally.put("patches", np.array([masked.count]))
        cells = torch.cat([shares.values[:, 1], cells_of(shares), cells_of(maps[L2CAF])])  # as SOURCES has them
        for kind in ("deletion", "insertion"):
            curves = followed(network, tensors, cells, classes, kind, steps, batch)
            tally.put(("whole", kind), curves[:1, -1])
            for name, curve in zip(SOURCES[kind], curves, strict=True):
                tally.put((kind, name), np.array([area_under(curve, np.linspace(0, 1, steps + 1))]))
    counts = tally["patches"]
    settings = {
        "input": input_of(network),
        "answer": "the class that the network puts first; the runner-up is the second",
        "backgrounds": f"{' and '.join(FILLS[background] for background in BACKGROUNDS)}; patches must do on both",
        "patches": f"{counts.min()} to {counts.max()} per picture",
        LOOK: f"what fovea.look finds in {forwards} passes per picture",
        HOTTEST: "as few patches as do where the answer's own map is hottest, tried one after the other",
        RANDOM: f"the same in a random order, seed {seed}",
        **{kind: f"{str(KINDS[kind]).partition('; ')[2]}, {steps} steps" for kind in ("deletion", "insertion")},
        "difference": "the answer's logit less the runner-up's, above that of the emptied picture; in units of its "
        "mean on whole pictures (`logits`), as of a single one it may be near 0",
        "maps": f"{CONTRAST}: what each cell adds to the difference; {ANSWER}: to the answer's logit; {L2CAF}: its own",
        "interval": by_bootstrap("means", seed),
    }
    rows = [{**run.about(len(counts)), **_row(tally, kind, name, seed)} for kind in SOURCES for name in SOURCES[kind]]
    return run.figures(rows, settings)


def first(search: LeastSearch) -> Patches | None:
    """As few of the hottest patches as do on every background, or none at all; None where all are needed."""
    sets = (frozenset(search.order[:count]) for count in range(search.masked.count))
    return next((some for some in sets if all(search.margins([some], on)[0] > 0 for on in BACKGROUNDS)), None)


def does(masked: Masked, patches: Patches, keeps: bool) -> bool:
    """Whether these patches keep the answer, or it changes without them, on every background."""
    mask = masked.mask(patches if keeps else masked.every - patches)[None, None].to(masked.picture.device)
    passes = (under_masks(masked.network, masked.picture, mask, fill, 1) for fill in masked.fills.values())
    return all((int(output.argmax()) == masked.answer) == keeps for each in passes for output, _ in each)


def followed(
    network: Network, picture: Tensor, maps: Tensor, classes: Sequence[int], kind: str, steps: int, batch: int
) -> Values:
    """The difference of two logits as more of a picture is shown, from nothing to all, above that of nothing: M,S."""
    way, order, shares = KINDS[kind], places(maps, *picture.shape[2:]), np.linspace(0, 1, steps + 1)
    shown = best(order, shares) if way.keeps else ~best(order, shares[::-1])  # M,S,H,W
    fill = filling(way.fill, network, picture)
    outputs = [output for output, _ in under_masks(network, picture, shown.flatten(0, 1)[None], fill, batch)]
    answer, runner = torch.cat(outputs)[:, classes].double().cpu().unbind(1)
    values: Values = (answer - runner).view(shown.shape[:2]).numpy()
    return values - values[:, :1]


def _row(tally: Tally, kind: str, name: str, seed: int) -> dict[str, Any]:
    own, *_ = SOURCES[kind]
    unit = mean(tally["whole", kind]) or 1.0
    columns = np.stack([tally[kind, name], tally[kind, name] - tally[kind, own]], 1) / unit
    (low, least), (high, most) = interval_of_means(columns, seed)
    value, change = columns.mean(0).tolist()
    row: dict[str, Any] = {"kind": kind, "by": name, "mean": value, "mean_low": low, "mean_high": high}
    if name != own:
        row |= {"change": change, "change_low": least, "change_high": most}
    held = tally["held", kind, name]
    return row | ({"none": int(np.isnan(held).sum()), "held": mean(held)} if len(held) else {"logits": unit})


def draw(found: Figures) -> Figure:
    """One panel per kind, its mean with the interval for each that patches or pixels were chosen by."""
    about = found.rows[0]
    figure = sheet(13, 3.2, f"{about['net']} on {about['images']} pictures of {about['data']}; 95 % intervals")
    for panel, (kind, title) in zip(figure.subplots(1, len(PANELS)), PANELS.items(), strict=True):
        rows = [row for row in found.rows if row["kind"] == kind]
        means, low, high = (np.array([row[key] for row in rows]) for key in ("mean", "mean_low", "mean_high"))
        colors = [COLORS[0], *["#9DB4C0"] * (len(rows) - 1)]
        panel.barh([row["by"] for row in rows], means, xerr=[means - low, high - means], color=colors, capsize=2.5)
        panel.set_title(title, fontsize="medium")
        panel.invert_yaxis()
    return figure
