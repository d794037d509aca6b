"""What explaining costs, in bare forwards measured in the same minute, beside the peers that are installed."""

import copy
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any, cast

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import fovea
from fovea.basics import BadChoice, DoesNotApply
from fovea.heatmaps import PAPER, HeatMaps, Look, aims
from fovea.heatmaps.methods import Method, chosen, find, usual
from fovea.measures import Figures, Run, measure
from fovea.measures.plots import GRAY, sheet, style, where
from fovea.measures.timing import PRECISIONS, Call, bare, built, compare, noise_for, seconds, timed
from fovea.networks import Network, as_found, cut, peak_mb

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler's own chatter
FOUR = ("cam", "gradcam", "gradcam-abs", "l2caf")
FORWARD, SEVERAL = ("bare", "forward"), ("fovea", "four methods x top 5")
MAPS = {FORWARD: 0, SEVERAL: 5 * len(FOUR)}  # that a call gives for each picture; others give one
Key = tuple[str, str]  # a library and its method
TORCHCAM = {"gradcam": "GradCAM", "gradcam++": "GradCAMpp", "layercam": "LayerCAM", "xgradcam": "XGradCAM",
            "scorecam": "ScoreCAM"}  # fmt: skip
GRAD_CAM = {"gradcam": "GradCAM", "gradcam++": "GradCAMPlusPlus", "hirescam": "HiResCAM", "layercam": "LayerCAM",
            "xgradcam": "XGradCAM", "eigencam": "EigenCAM", "scorecam": "ScoreCAM",
            "ablationcam": "AblationCAM"}  # fmt: skip
Row = dict[str, Any]
DRAWN = ("cam", "gradcam", "l2caf", "l2caf-oblivious")  # in the plot, where they were timed
LINES = {"fovea": "-", "fovea unrecorded": (0, (3, 1, 1, 1, 1, 1)), "torchcam": "--", "captum": ":", "grad-cam": "-."}


@measure(
    "bench explain",
    title="Time of explaining",
    about="Time of every heatmap method, in forward passes of the bare network, and of captum, torchcam and grad-cam "
    "where they are installed. --out draws time against batch size.",
    example="--net timm/resnet50 --batches 1,16",
    nets="names",
    data="none",
    usual={"net": ("timm/resnet50", "efficientnet_lite0"), "device": "cpu"},
    figure="draw",
)
def bench_explain(
    run: Run,
    *,
    method: Sequence[str] | None = None,
    batches: Sequence[int] = (1, 16),
    dtype: Sequence[str] = ("fp32",),
    rounds: int = 11,
    adam: int | None = None,
    seed: int = 0,
) -> Figures:
    """Rows of the comparison: fovea's methods (but for costly ones, if none is named), the peers' own, the paper's
    recipe, peak memory. A costly one is timed once. Networks without weights at hand have random ones."""
    if not (run.names and batches and dtype):
        raise BadChoice("name one or more networks, sizes of batches and precisions; got none of one of them")
    rows, sides = list[Row](), dict[str, None]()
    methods = chosen(list(usual() if method is None else method))
    parts = [(name, precision, size) for name in run.names for precision in dtype for size in batches]
    for done, (name, precision, size) in enumerate(parts, 1):
        run.tell(f"{name}, {precision}, batch {size}")
        network = built(name, run.device, precision, seed)
        pixels = batch_for(network, size, seed)
        sides[" x ".join(map(str, pixels.shape[:1:-1]))] = None
        rows += time_rows(network, pixels, rounds, methods)
        searched = any(each.name.startswith("l2caf") for each in methods)
        rows += _exact_rows(network, pixels) if size == 1 and searched else []
        rows += _iterated_rows(network, pixels, methods, adam)
        rows += memory_rows(network, pixels, methods)
        run.progress(done, len(parts))
    on_gpu = torch.device(run.device).type == "cuda"
    tf32 = f"convolutions {torch.backends.cudnn.allow_tf32}, products {torch.backends.cuda.matmul.allow_tf32}"
    settings = {
        "rounds": rounds,
        "threads": torch.get_num_threads(),
        "device": torch.device(run.device).type,
        "torch": torch.__version__,
        "tf32": tf32 if on_gpu else None,
        "input": f"{' and '.join(sides)}, on the device" + ", channels last for convolutional networks" * on_gpu,
        "x_forward": "median of ratios to the bare forwards (the module alone, no gradients) before and after; three "
        "rounds where they take over a minute",
        "peak_mb": "the most that tensors made during one call take up at once",
    }
    return Figures("bench explain", settings, rows)


def batch_for(network: Network, size: int, seed: int = 0) -> Tensor:
    """Noise as the network takes it; on a GPU in the layout that convolutions are fast in, as is the network then."""
    pixels = noise_for(network, size, seed)
    if not pixels.is_cuda or last_map(network.module, pixels) is None:
        return pixels
    network.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return pixels.to(memory_format=torch.channels_last)


def time_rows(network: Network, pixels: Tensor, rounds: int, methods: Sequence[Method]) -> list[Row]:
    """Every call in turns with the bare forward, a costly one once; what fails says so in its row."""
    calls = _ours(network, pixels, methods) | peers(network.module, pixels, [method.name for method in methods])
    costly = {method.name for method in methods if method.costly}
    tried = {key: facts for key, call in calls.items() if (facts := _tried(call, pixels.device)) is not None}
    quick = {key: calls[key] for key, facts in tried.items() if "note" not in facts and key[1] not in costly}
    often = rounds * (2 if len(pixels) == 1 else 1) * (3 if pixels.is_cuda else 1)  # short calls, more often
    times = compare(bare(network, pixels), quick, often, pixels.device)
    rows = [_row(FORWARD, network, len(pixels), *times[FORWARD])]
    for key, facts in tried.items():
        once = facts.pop("seconds", None)
        ratio, spent = times.get(key, (once and once / times[FORWARD][1], once))
        rows.append(_row(key, network, len(pixels), ratio, spent) | facts)
    return rows


def _tried(call: Call, device: torch.device) -> Row | None:
    """What one call says of itself: its seconds and, where it has one, the loss; or that it fails, and why. None where
    the method does not apply, as cam to some heads."""
    try:
        spent, found = timed(call, device)
    except DoesNotApply:
        return None
    except Exception as error:  # whatever a library says of this network or precision
        return {"note": f"fails: {type(error).__name__}: {str(error).strip().partition(chr(10))[0][:120]}"}
    loss = found.loss if isinstance(found, HeatMaps) else None
    return {"seconds": spent} | ({} if loss is None else _reached(found))


def _reached(found: HeatMaps) -> Row:
    """How a filter was solved for, and the mean loss."""
    loss = cast(Tensor, found.loss).double().mean().item()
    return {"solver": found.solver, "iterations": found.iterations, "loss": float(f"{loss:.6g}")}


def _row(key: Key, network: Network, size: int, ratio: float | None = None, spent: float | None = None) -> Row:
    """`spent` are the seconds of the whole batch."""
    maps = MAPS.get(key, 1)
    return {
        "library": key[0],
        "method": key[1],
        "net": network.name,
        "precision": next(name for name, dtype in PRECISIONS.items() if dtype == network.dtype),
        "batch": size,
        "x_forward": None if ratio is None else round(ratio, 3),
        "ms_per_picture": None if spent is None else round(spent / size * 1e3, 4),
        "heatmaps_per_s": None if spent is None or not maps else round(maps * size / spent, 1),
    }


def _ours(network: Network, pixels: Tensor, methods: Sequence[Method]) -> dict[Key, Call]:
    calls: dict[Key, Call] = {("fovea", method.name): _explained(network, pixels, method) for method in methods}
    if pixels.is_cuda:  # elsewhere it changes nothing
        launched = network.recorded(False)
        quick = [method for method in methods if not method.costly]
        calls |= {("fovea unrecorded", method.name): _explained(launched, pixels, method) for method in quick}
    if set(FOUR) <= {method.name for method in methods}:
        calls[SEVERAL] = _explained(network, pixels, FOUR, target="top5")
    return calls


def _explained(network: Network, pixels: Tensor, method: Any, **more: Any) -> Call:
    return partial(fovea.explain, network, pixels, method=method, batch=len(pixels), **more)


def _exact_rows(network: Network, pixels: Tensor) -> Iterator[Row]:
    """Exact L2-CAF against the paper's recipe (Adam, 1e-5 over 50 iterations), with the losses they reach. "whole
    network" is what a user waits for; "solve" leaves the common pass through the trunk out of both."""
    forward = seconds(bare(network, pixels), pixels.device, rounds=9)
    for name in ("l2caf-sum", "l2caf-oblivious"):
        exact = cast(fovea.L2CAF, find(name).run)
        if _explained(network, pixels, exact)().solver != "exact":
            continue  # this head has to be iterated
        on_head = replace(exact, solver="iterative", descent=PAPER)
        vanilla = replace(exact, solver="vanilla", descent=PAPER)
        for what, method, often in (("exact, whole call", exact, 9), ("paper's recipe, whole network", vanilla, 1)):
            call = _explained(network, pixels, method)
            runs = [timed(call, pixels.device) for _ in range(often)]
            spent, found = median(spent for spent, _ in runs), runs[0][1]
            yield _row(("fovea", f"{name}: {what}"), network, 1, spent / forward, spent) | _reached(found)
        for what, method in (("exact, solve", exact), ("paper's recipe on the head, solve", on_head)):
            spent = median(_solve_seconds(network, pixels, method) for _ in range(3))
            yield _row(("fovea", f"{name}: {what}"), network, 1, spent / forward, spent)


def _iterated_rows(network: Network, pixels: Tensor, methods: Sequence[Method], adam: int | None) -> Iterator[Row]:
    """The paper's recipe on a head that is not affine, for the rows of L2-CAF there; with `adam`, also so many
    iterations of it, whatever its rule of stopping says. `worst_excess` is how far fovea's loss is above this one,
    relative to its size, for the picture where that is worst: below zero, fovea's is lower for every picture."""
    forward = seconds(bare(network, pixels), pixels.device, rounds=9)
    recipes = {"paper's recipe on the head": PAPER}
    if adam is not None:
        recipes[f"Adam on the head, {adam} iterations"] = replace(PAPER, most=adam, tolerance=0.0)
    for name, solve in [(method.name, method.run) for method in methods if isinstance(method.run, fovea.L2CAF)]:
        ours: HeatMaps = _explained(network, pixels, solve)()
        for what, descent in recipes.items() if ours.iterations else ():
            call = _explained(network, pixels, replace(solve, solver="iterative", descent=descent))
            spent, found = timed(call, pixels.device)
            loss, other = (cast(Tensor, maps.loss).double().flatten() for maps in (ours, found))
            excess = ((loss - other) / other.abs().clamp(min=1e-12)).max().item()
            row = _row(("fovea", f"{name}: {what}"), network, len(pixels), spent / forward, spent)
            yield row | _reached(found) | {"worst_excess": float(f"{excess:.3g}")}


def _solve_seconds(network: Network, pixels: Tensor, method: fovea.L2CAF) -> float:
    with as_found(network):
        opened = cut(network, pixels).open(pixels)
        (aim,) = aims(None, network, opened.output)
        return seconds(lambda: method(Look(opened), aim), pixels.device)


def memory_rows(network: Network, pixels: Tensor, methods: Sequence[Method]) -> list[Row]:
    """Peak memory of one explanation against one bare forward. What recordings keep on a GPU is not counted."""
    quick, network = [method for method in methods if not method.costly], network.recorded(False)
    calls = {key: call for key, call in _ours(network, pixels, quick).items() if key[0] == "fovea" and key != SEVERAL}
    peaks = {FORWARD: peak_mb(bare(network, pixels), pixels.device)}
    for key, call in calls.items():
        with suppress(Exception):  # what does not apply, or fails, has said so in its row of time
            call()  # the network is cut, which is done once
            peaks[key] = peak_mb(call, pixels.device)
    return [
        {
            "library": library,
            "method": f"{what}: peak memory",
            "net": network.name,
            "precision": _row((library, what), network, 1)["precision"],
            "batch": len(pixels),
            "peak_mb": round(peak, 1),
            "x_forward_memory": round(peak / peaks[FORWARD], 3),
        }
        for (library, what), peak in peaks.items()
    ]


def draw(found: Figures) -> Figure:
    """Time against the size of batch: one column per network and precision, milliseconds above, bare forwards below;
    one color per method, one kind of line per library."""
    rows = [row for row in found.rows if row.get("x_forward") and ":" not in row["method"]]
    timed = {row["method"] for row in rows}
    methods = [name for name in DRAWN if name in timed] or sorted(timed - {FORWARD[1], SEVERAL[1]})
    columns = list(dict.fromkeys((row["net"], row["precision"]) for row in rows))
    figure = sheet(3.6 * len(columns) + 1.2, 7.2, f"Time of explaining, {where(found)}")
    axes = figure.subplots(2, len(columns), squeeze=False, sharex="col", sharey="row")
    for column, (net, precision) in enumerate(columns):
        here = [row for row in rows if (row["net"], row["precision"]) == (net, precision)]
        lines: dict[Key, list[Mapping[str, Any]]] = {}
        for row in sorted(here, key=lambda row: row["batch"]):
            if row["method"] in methods or row["library"] == FORWARD[0]:
                lines.setdefault((row["library"], row["method"]), []).append(row)
        for axis, value in zip(axes[:, column], ("ms_per_picture", "x_forward"), strict=True):
            for (library, method), points in lines.items():
                look = {"color": GRAY, "marker": "."} if library == FORWARD[0] else style(methods.index(method))
                x, y = [row["batch"] for row in points], [row[value] for row in points]
                look |= {"linestyle": LINES.get(library, "-"), "alpha": 0.85, "markersize": 5}
                axis.plot(x, y, label=f"{library} {method}", **look)
            axis.set(xscale="log", yscale="log")
            axis.set_xticks(sizes := sorted({row["batch"] for row in here}), map(str, sizes))
            axis.xaxis.minorticks_off()
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter("{x:g}")
            axis.tick_params(which="both", labelsize="small")
            axis.grid(alpha=0.3, which="both")
        axes[0, column].set_title(f"{net.split('/')[-1]}, {precision}")
        axes[1, column].set_xlabel("pictures in a batch")
    axes[0, 0].set_ylabel("milliseconds per picture")
    axes[1, 0].set_ylabel("time in bare forwards")
    named = {label: line for axis in axes[0] for line, label in zip(*axis.get_legend_handles_labels(), strict=True)}
    figure.legend(named.values(), named.keys(), loc="outside lower center", ncols=5, fontsize="small", handlelength=3.5)
    return figure


def peers(module: nn.Module, pixels: Tensor, methods: Sequence[str]) -> dict[Key, Call]:
    """The maps of the class that each picture's output puts first, by every library that is installed. A library is
    imported by its first call, so that what is wrong with it fails there. Of a transformer, whose tokens are no map,
    grad-cam alone says how: after the last block's first norm."""
    with torch.no_grad():
        classes = module(pixels).argmax(1).tolist()
    calls: dict[Key, Call] = {}
    if last_map(module, pixels) is not None:
        calls |= _by_torchcam(_apart(module), pixels, methods, classes) if find_spec("torchcam") else {}
        calls |= _by_captum(_apart(module), pixels, methods, classes) if find_spec("captum") else {}
    return calls | (_by_grad_cam(_apart(module), pixels, methods, classes) if find_spec("pytorch_grad_cam") else {})


def last_map(module: nn.Module, pixels: Tensor) -> nn.Module | None:
    """The last part of a convolutional network that gives maps, N,C,H,W; None of a transformer."""
    found: list[nn.Module] = []

    def note(part: nn.Module, given: Any, out: Any) -> None:
        if isinstance(out, Tensor) and out.ndim == 4 and out.shape[1] > out.shape[3] > 1:
            found.append(part)

    hooks = [part.register_forward_hook(note) for part in module.children() if any(True for _ in part.parameters())]
    with torch.no_grad():
        module(pixels[:1])
    for hook in hooks:
        hook.remove()
    return found[-1] if found else None


def _apart(module: nn.Module) -> nn.Module:
    """The same weights in other modules, so that hooks that a library leaves behind slow down nobody else."""
    shared = [*module.parameters(), *module.buffers()]
    return copy.deepcopy(module, {id(tensor): tensor for tensor in shared})


def _by_torchcam(module: nn.Module, pixels: Tensor, methods: Sequence[str], classes: list[int]) -> dict[Key, Call]:
    layer = last_map(module, pixels)

    def call(kind: str) -> Any:
        import torchcam.methods

        with getattr(torchcam.methods, kind)(module, layer) as extractor:
            return extractor(classes, module(pixels))

    return {("torchcam", name): partial(call, TORCHCAM[name]) for name in methods if name in TORCHCAM}


def _by_captum(module: nn.Module, pixels: Tensor, methods: Sequence[str], classes: list[int]) -> dict[Key, Call]:
    layer = last_map(module, pixels)

    def call() -> Any:
        from captum.attr import LayerGradCam

        return LayerGradCam(module, layer).attribute(pixels, target=classes)

    return {("captum", "gradcam"): call} if "gradcam" in methods else {}


def _by_grad_cam(module: nn.Module, pixels: Tensor, methods: Sequence[str], classes: list[int]) -> dict[Key, Call]:
    layer, tokens = last_map(module, pixels), None
    if layer is None:
        norms = [part for name, part in module.named_modules() if re.fullmatch(r"blocks\..*\.norm1", name)]
        before = getattr(module, "num_prefix_tokens", None)
        if not norms or before is None:
            return {}  # where to look, and what its tokens are, is for its user to say
        layer, tokens = norms[-1], partial(as_map, before=before)

    def call(kind: str) -> Any:
        import pytorch_grad_cam
        from pytorch_grad_cam.utils.model_targets import ClassifierOutputTarget

        with getattr(pytorch_grad_cam, kind)(module, [layer], reshape_transform=tokens) as extractor:
            return extractor(pixels, [ClassifierOutputTarget(c) for c in classes])

    return {("grad-cam", name): partial(call, GRAD_CAM[name]) for name in methods if name in GRAD_CAM}


def as_map(tokens: Tensor, before: int) -> Tensor:
    """N,P,C with class and register tokens `before` the others, to N,C,H,W of a square grid."""
    side = int((tokens.shape[1] - before) ** 0.5)
    return tokens[:, before:].mT.reshape(len(tokens), -1, side, side)
