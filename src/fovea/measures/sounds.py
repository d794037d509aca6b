"""Sounds: is the event named, by the decision and by each branch, and does the best span lie on it?"""

import numpy as np
import torch
from numpy.typing import NDArray

from fovea.basics import BadChoice, by_bootstrap, interval, interval_of_means
from fovea.data import Sounds
from fovea.measures import Figures, Run, Tally, mean, measure
from fovea.models.anchornet_sound import Spectrogram, located, parts
from fovea.networks import Network, as_found, rank_of


@measure(
    "sounds",
    title="Sounds",
    about="Whether AnchorNet names the event in a sound, and whether its best span lies on it. The sounds are made in "
    "code.",
    example="--net anchornet_sound-made",
    data="sounds",
    usual={"net": ("anchornet_sound-made",), "data": "sounds:count=1000,split=test"},
    columns=("net", "sounds", "top1", "top1_*", "gain_*[0-9]", "hit", "chance_hit", "iou", "chance_iou"),
    interval="top1",
)
def sounds(run: Run, *, batch: int = 50, seed: int = 0) -> Figures:
    """One row: `low` and `high` bound `top1` by bootstrap over the sounds; `top1_5` is the branch that sees 5 frames;
    `gain_5` is what the decision of all branches gains over it on the same sounds. Of a random span, `chance_hit` and
    `chance_iou` are the exact means over every cell of the branch that localized."""
    network, data = run.network, run.opened
    spectrogram, module = parts(network)
    if network.labels != data.labels:
        why = f"{', '.join(map(str, network.labels or ()))} instead of {', '.join(data.labels)}"
        raise BadChoice(f"the network knows other classes than the data: {why}")
    if data.rate != spectrogram.rate:
        why = f"the data has {data.rate:,} Hz: open it with rate={spectrogram.rate}"
        raise BadChoice(f"the network takes sounds of {spectrogram.rate:,} Hz and {why}")
    tally = Tally()
    for start in range(0, len(data), batch):
        _add(tally, network, data, range(start, min(start + batch, len(data))))
        run.progress(min(start + batch, len(data)), len(data))
    by_branch = tally["branches"].mean(0).tolist()  # J
    low, high = interval(tally["right"], seed=seed)
    gain = tally["right"][:, None] - tally["branches"].astype(float)  # N,J: 1 where the decision alone is right
    least, most = interval_of_means(gain, seed)
    row = {
        "net": network.name or "network",
        "data": data.name,
        "sounds": len(data),
        "top1": mean(tally["right"]),
        "low": low,
        "high": high,
        **{f"top1_{window}": share for window, share in zip(module.windows, by_branch, strict=True)},
        **{key: mean(tally[key]) for key in ("hit", "chance_hit", "iou", "chance_iou")},
    }
    for j, window in enumerate(module.windows):
        row |= {f"gain_{window}": mean(gain[:, j]), f"gain_{window}_low": least[j], f"gain_{window}_high": most[j]}
    lengths = {window: 1000 * spectrogram.seconds(0, window)[1] for window in module.windows}
    settings = {
        "data": data.name,
        "input": f"{spectrogram.bands} mel bands, frames of {spectrogram.frame} samples every {spectrogram.hop}",
        "branches": ", ".join(f"{window} frames ({length:.0f} ms)" for window, length in lengths.items()),
        "hit": "the center of the best span lies in the true event",
        "chance": "mean over all spans of the branch that localized",
        "gain_5": "top1 minus top1_5; the others likewise",
        "interval": by_bootstrap("top1 and of each gain", seed, "the sounds"),
    }
    return Figures("sounds", settings, [row], details={"localised_by": _localized_by(tally, module.windows, gain)})


def _add(tally: Tally, network: Network, data: Sounds, places: range) -> None:
    """A batch: what was right, and how well the spans lie, beside the mean over all spans of their length."""
    spectrogram, module = parts(network)
    samples = [data.samples[i] for i in places]
    labels = torch.tensor([sample.label for sample in samples])
    waves = torch.stack([sample.read() for sample in samples]).to(network.device, network.dtype)
    with as_found(network), torch.no_grad():
        out = module(spectrogram(waves))
    tally.put("right", rank_of(network.read(out), labels) < 1)
    tally.put("branches", np.stack([rank_of(branch.logits, labels) < 1 for branch in out.branches], 1))  # N,J
    for i, found in enumerate(located(out, spectrogram, module.windows)):
        best = found.spans[0]
        cells = out.branches[found.branch].evidence.shape[2]
        every = all_spans(spectrogram, module.windows[found.branch], cells)
        tally.put("branch", np.array([found.branch]))  # the one that localized
        for before, spans in (("", np.array([[best.start, best.stop]])), ("chance_", every)):
            hits, ious = against(spans, samples[i].span)
            tally.put(f"{before}hit", hits.mean(keepdims=True))
            tally.put(f"{before}iou", ious.mean(keepdims=True))


def all_spans(spectrogram: Spectrogram, window: int, cells: int) -> NDArray[np.float64]:
    """Start and stop in seconds of every cell of a branch (cells,2)."""
    return np.array([spectrogram.seconds(cell, window) for cell in range(cells)])


def against(spans: NDArray[np.float64], true: tuple[float, float]) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """Whether each span's center lies in the true one, and their intersection over union (S each)."""
    start, stop = spans.T
    center = (start + stop) / 2
    shared = (np.minimum(stop, true[1]) - np.maximum(start, true[0])).clip(0)
    return (true[0] <= center) & (center < true[1]), shared / (stop - start + true[1] - true[0] - shared)


def _localized_by(
    tally: Tally, windows: tuple[int, ...], gain: NDArray[np.float64]
) -> list[dict[str, float | int | None]]:
    """How often each branch localized, and how well when it did; of all sounds, how many the decision won and lost."""
    rows: list[dict[str, float | int | None]] = []
    for j, window in enumerate(windows):
        given = tally["branch"] == j
        shares = {name: mean(tally[name][given]) for name in ("hit", "iou")}
        turned = {"won": int((gain[:, j] > 0).sum()), "lost": int((gain[:, j] < 0).sum())}
        rows.append({"frames": window, "sounds": int(given.sum()), **shares, **turned})
    return rows
