"""FGSM on the localiser, and what it does to the classifier of its patches: AnchorNet's Table 8."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice
from fovea.data import DataSet
from fovea.measures.attacks import FGSM, Victims
from fovea.measures.figures import Figures
from fovea.measures.patch_parts import (
    EVERY,
    OVERALL,
    Chosen,
    Progress,
    Row,
    Tally,
    demand_anchored,
    demand_read,
    demand_same_classes,
    parts,
    settings_of,
)
from fovea.networks.network import Network, as_found
from fovea.networks.normalization import WHITE, normalisation_of
from fovea.networks.stream import prepared
from fovea.patches.classify import judged, patches
from fovea.patches.lip import for_test
from fovea.patches.scales import Choice, look

EPSILONS = (0.2, 2.0)  # the paper's, and one that can be seen in an 8-bit picture


def measure(
    localizer: Network,
    classifier: Network,
    full: Network,
    data: DataSet,
    epsilons: Sequence[float] = EPSILONS,
    settings: Choice = for_test,
    batch: int = 16,
    progress: Progress = lambda done, total: None,
) -> Figures:
    """Table 8: what FGSM on the localiser costs the classifier of its patches, by scale; ε in 8-bit units.

    Patches are found in the attacked picture, and cut out of it (`cut` is attacked, the paper's reading), or out of the
    clean one, which shows what the localisation alone loses. Beside it the localiser's own decision, and `full`, which
    is attacked by its own gradient.
    """
    epsilons = tuple(dict.fromkeys(epsilons))
    if not epsilons or not all(0 < one <= WHITE for one in epsilons):
        raise BadChoice(f"ε is above 0, in 8-bit units up to 255; got {', '.join(map(str, epsilons)) or 'none'}")
    demand_anchored(localizer)
    nets = (localizer, classifier, full)
    ours, theirs, whole = (demand_same_classes(one, data) for one in nets)
    skipped: list[tuple[str, str]] = []
    tally, sides = Tally(), list[int]()
    for part in parts(localizer, data, batch, skipped, progress):
        sides = [scale.side for scale in part.seen.scales]
        own, labels = part.tensors, theirs.of(part.samples)
        other, _, _ = prepared(full, part.samples, part.images)
        ways = attacked(localizer, own, ours.of(part.samples), epsilons)
        for epsilon, changed in zip((0.0, *epsilons), (own, *ways), strict=True):
            seen = look(localizer, changed) if epsilon else part.seen
            cut = patches(seen, settings, own.shape[2:])
            tally.put(("chosen", epsilon), seen.chosen)
            tally.answers(("decision", epsilon), seen.output, ours.of(part.samples))
            tally.answers(("attacked", epsilon), judged(localizer, classifier, changed, cut), labels)
            if epsilon:
                tally.answers(("clean", epsilon), judged(localizer, classifier, own, cut), labels)
        ways = attacked(full, other, whole.of(part.samples), epsilons)
        for epsilon, changed in zip((0.0, *epsilons), (other, *ways), strict=True):
            with as_found(full), torch.no_grad():
                tally.answers(("full", epsilon), full(changed), whole.of(part.samples))
    demand_read(len(tally.columns), data, skipped)
    rows = list(_attack_rows(tally, [one.name or "network" for one in nets], data.name, sides, (0.0, *epsilons)))
    told = {
        **settings_of(nets, (ours, theirs, whole), data, skipped),
        "epsilon": "x + ε sign of the cross-entropy's gradient, ε in 8-bit units, clipped to 0..255, not rounded",
        "gradient": "of the branch that decides, for the localiser",
        "scale": "the branch that localises the picture in question; drop: from the same row without attack",
        "cut": "whether patches, found in the attacked picture, are cut out of it or out of the clean one",
    }
    return Figures("patch-attack", told, rows, skipped)


def attacked(network: Network, tensors: Tensor, labels: Tensor, epsilons: Sequence[float]) -> list[Tensor]:
    """The pictures after FGSM with the network's own gradient, which is followed once for every ε."""
    normal = normalisation_of(network)
    pixels = normal.to_pixels(tensors.float()).clamp(0, WHITE)
    victims = Victims(pixels, labels, range(len(pixels)))
    # 0 where a step of 1 leads out of 0..255 at once, as a step of any ε does
    direction = (FGSM(1.0, network)(victims, lambda done: None) - pixels).sign()
    return [normal.to_tensors((pixels + epsilon * direction).clamp(0, WHITE)).to(tensors) for epsilon in epsilons]


def _attack_rows(
    tally: Tally, names: Sequence[str], data: str, sides: Sequence[int], epsilons: Sequence[float]
) -> Iterator[Row]:
    """Table 8: patches cut out of attacked pictures, out of clean ones, then the two networks that see the whole."""
    finder, judge, full = names
    for what, net, followed in (
        ("attacked", judge, finder), ("clean", judge, finder), ("decision", finder, finder), ("full", full, full)
    ):  # fmt: skip
        patched = what in ("attacked", "clean")
        for scale in [*(sides if patched else ()), OVERALL]:
            before: float | None = None
            for epsilon in epsilons:
                # without an attack there is nothing to cut otherwise
                key = "attacked" if patched and not epsilon else what
                chosen = tally[("chosen", epsilon)]
                own: Chosen = EVERY if isinstance(scale, str) else chosen == sides.index(scale)
                found = tally.top((key, epsilon), own)
                top1 = found["top1"]
                before = before if epsilon else top1
                if what == "clean" and not epsilon:
                    continue  # told already
                yield {
                    "net": net,
                    "localizer": finder if patched else None,
                    "data": data,
                    "cut": what if patched and epsilon else None,
                    "scale": str(scale),
                    "attack": f"fgsm on {followed}" if epsilon else "none",
                    "epsilon": epsilon,
                    "images": len(chosen[own]),
                    **found,
                    "drop": None if top1 is None or before is None else before - top1,
                }
