"""Attacks on the localizer's pictures, and what they do to the classifier of its patches.

FGSM by the localizer's gradient is AnchorNet's Table 8; textures, in which local features are kept and their places are
not, are its 4.6 and Fig. 14."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import by_bootstrap, tell
from fovea.measures import EVERY, Chosen, Figures, Run, ends, loss, measure
from fovea.measures.attacks import Attack, Named, Net, Plain, Victims, attack_of, images, opened
from fovea.measures.patch_parts import OVERALL, ROLES, Part, Row, Trial, answer, without
from fovea.networks import WHITE, Network, normalization_of
from fovea.patches import Choice, choice, judged, look, patches
from fovea.results import drawing, marks

EXAMPLES = 6  # pictures that are drawn
OF_GRADIENTS, SCRAMBLED = "fgsm", "texture"  # follow a network; leave nothing where it was
SETTINGS = {
    "input": "as the localizer takes it, for all; resized where the network for whole pictures takes another size",
    "strength": "fgsm: ε, noise: σ, both in 8-bit units, clipped to 0..255; jpeg: quality; texture: iterations",
    "gradient": "of the branch that decides, for the localizer; the network for whole pictures follows its own",
    "scale": "the branch that localizes the picture in question; drop: from the same row without attack",
    "cut": "whether patches, found in the attacked picture, are cut out of it or out of the clean one",
}
Tried = Sequence[tuple[Attack, Attack]]  # on the localizer, on the network for whole pictures


@measure(
    "patch-attack",
    title="Attacks on the localizer",
    about="Whether a classifier of localized patches stays right when the network that finds them is attacked (FGSM), "
    "or pictures are mere texture.",
    example="--localizer anchornet-imagenette --net patches.safetensors --full whole.safetensors --data "
    "imagenette:split=test",
    nets=("localizer", "net", "full"),
    needs=("labels",),
    figure="draw",
)
def patch_attack(
    run: Run,
    *,
    attacks: Sequence[str | Attack] = ("fgsm:0.2", "fgsm:2"),  # the paper's, and one that can be seen in 8 bits
    texture_net: Net = None,
    count: int | None = None,
    overlap: float | None = None,
    share: float | None = None,
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """What attacks cost the classifier of patches, by scale. Patches are found in the attacked picture, and cut out of
    it (`cut` is attacked, the paper's reading), or out of the clean one, which shows what the localization alone loses.
    Beside it the localizer's own decision, and `full` on whole pictures. Attacks are written as for `robustness`."""
    settings, (named, textured) = choice(count, overlap, share), opened(run, attacks, texture_net)
    trial = Trial(run)
    tried: Tried = [
        (Plain(), Plain()),
        *((_attack(one, trial.localizer, textured, seed), _attack(one, trial.nets["full"], textured, seed))
          for one in named),
    ]  # fmt: skip
    wanted, examples, done = run.examples(EXAMPLES), list[list[Image.Image]](), 0
    for part in trial.parts(batch):
        numbers = range(done, done + len(part.samples))
        drawn = _add(trial, part, settings, tried, numbers, [i - done for i in numbers if i in wanted])
        examples += map(list, zip(*drawn, strict=True))
        done = numbers.stop
    rows = list(_rows(trial, tried, seed))
    about = {**SETTINGS, **{one.name: str(one) for one, _ in tried if one.name in (OF_GRADIENTS, SCRAMBLED)}}
    about["interval"] = f"{by_bootstrap('top1', seed)}; of a drop by the same, over pictures before and after"
    shown = without(rows, "drop_low", "drop_high")
    return trial.figures(rows, about, tables={f"attacks on the localizer, {run.data.name}": shown}, extra=examples)


def _attack(one: Named, followed: Network, textured: Network | None, seed: int) -> Attack:
    return attack_of(*one, followed, textured, seed) if isinstance(one, tuple) else one


def _add(
    trial: Trial, part: Part, settings: Choice, tried: Tried, numbers: range, shown: Sequence[int]
) -> list[list[Image.Image]]:
    """A batch under every attack, into the tally; of the `shown` pictures what the classifier of patches says."""
    tally, localizer, full, drawn = trial.tally, trial.localizer, trial.nets["full"], list[list[Image.Image]]()
    clean, normal = part.tensors["localizer"], normalization_of(trial.localizer)
    ours, theirs, whole = (trial.labels(role, part) for role in ROLES)
    pixels, fitting = normal.to_pixels(clean.float()).clamp(0, WHITE), normalization_of(full)
    for place, (on_localizer, on_full) in enumerate(tried):
        total = on_localizer.steps * len(pixels)
        told = partial(_told, on_localizer.name, total)
        changed = on_localizer(Victims(pixels, ours, numbers), told)
        tensors = normal.to_tensors(changed).to(clean)
        seen = look(localizer, tensors) if place else part.seen
        cut = patches(seen, settings, clean.shape[2:])
        output = judged(localizer, trial.nets["net"], tensors, cut)
        tally.put(("chosen", place), seen.chosen)
        tally.answers(("decision", place), seen.output, ours)
        tally.answers(("attacked", place), output, theirs)
        if place and on_localizer.name != SCRAMBLED:
            tally.answers(("clean", place), judged(localizer, trial.nets["net"], clean, cut), theirs)
        if on_full.name == OF_GRADIENTS:
            changed = on_full(Victims(_sized(pixels, fitting.size), whole, numbers), told)
        inputs = fitting.to_tensors(_sized(changed, fitting.size)).to(full.device, full.dtype)
        tally.answers(("full", place), answer(full, inputs), whole)
        boxes = {i: [box for part in cut for box in part.boxes[part.owner == i].tolist()] for i in shown}
        drawn.append(_drawn(trial.nets["net"], on_localizer, normal.to_pixels(tensors.float()), output, boxes))
    return drawn


def _sized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    same = tuple(pixels.shape[2:]) == tuple(size)
    return pixels if same else F.interpolate(pixels, size, mode="bilinear", align_corners=False)


def _told(name: str, total: int, done: int) -> None:
    if total > done:
        tell(f"{name}: step {done:,} of {total:,}")


def _drawn(
    reader: Network, attack: Attack, pixels: Tensor, output: Tensor, boxes: Mapping[int, Sequence[Sequence[float]]]
) -> list[Image.Image]:
    """The pictures with these boxes, and what the reader says of them."""
    title, found = "plain" if attack.name == "none" else f"{attack.name} {attack.strength:g}", []
    for i, own in boxes.items():
        probability, label = output[i].max(0)
        picture = marks.with_boxes(images(pixels[i : i + 1])[0].convert("RGB"), own, size=drawing.SMALLEST)
        said = f"{drawing.spaced(reader.label(int(label)))} {float(probability):.2f}"
        found.append(drawing.titled(picture, said, title))
    return found


def draw(found: Figures) -> Image.Image:
    """A few pictures, plain and under every attack, with the patches that are read and what is read in them."""
    return drawing.grid(found.extra)


def _rows(trial: Trial, tried: Tried, seed: int) -> Iterator[Row]:
    """Patches cut out of attacked pictures, out of clean ones, then the two networks that see the whole."""
    sides, (finder, judge, full) = trial.sides, (trial.names[role] for role in ROLES)
    ways = {"attacked": (judge, finder), "clean": (judge, finder), "decision": (finder, finder), "full": (full, full)}
    tally = trial.tally
    for what, (net, followed) in ways.items():
        patched = what in ("attacked", "clean")
        plain = tally[("attacked" if patched else what, 0)] < 1
        for scale in [*(sides if patched else ()), OVERALL]:
            for place, (attack, _) in enumerate(tried):
                if (what, place) not in tally.columns:
                    continue  # there is nothing to cut otherwise
                given, before = (_given(tally[("chosen", one)], scale, sides) for one in (place, 0))
                hits = tally[(what, place)][given] < 1
                yield {
                    "net": net,
                    "localizer": finder if patched else None,
                    "data": trial.run.data.name,
                    "cut": what if patched and place else None,
                    "scale": str(scale),
                    "attack": f"{attack.name} on {followed}" if attack.name == OF_GRADIENTS else attack.name,
                    "strength": attack.strength,
                    "images": len(hits),
                    **tally.top((what, place), given),
                    **ends(hits, seed),
                    **loss(plain[before], hits, seed, paired=scale == OVERALL and place > 0, name="drop"),
                }


def _given(chosen: NDArray[np.int64], scale: int | str, sides: Sequence[int]) -> Chosen:
    return EVERY if isinstance(scale, str) else chosen == sides.index(scale)
