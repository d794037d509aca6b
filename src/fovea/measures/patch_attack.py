"""FGSM on the localizer, and what it does to the classifier of its patches: AnchorNet's Table 8."""

from collections.abc import Iterator, Sequence

from torch import Tensor

from fovea.basics import BadChoice
from fovea.measures import EVERY, Chosen, Figures, Run, measure
from fovea.measures.attacks import FGSM, Victims
from fovea.measures.patch_parts import OVERALL, ROLES, Part, Row, Trial, answer, without
from fovea.networks import WHITE, Network, normalization_of
from fovea.patches import Choice, choice, judged, look, patches

SETTINGS = {
    "epsilon": "x + ε sign of the cross-entropy's gradient, ε in 8-bit units, clipped to 0..255, not rounded",
    "gradient": "of the branch that decides, for the localizer",
    "scale": "the branch that localizes the picture in question; drop: from the same row without attack",
    "cut": "whether patches, found in the attacked picture, are cut out of it or out of the clean one",
}


@measure(
    "patch-attack",
    title="FGSM on the localizer",
    about="FGSM on the localizer: does the classifier of its patches stay right?",
    nets=("localizer", "net", "full"),
    needs=("labels",),
)
def patch_attack(
    run: Run,
    *,
    epsilons: Sequence[float] = (0.2, 2.0),  # the paper's, and one that can be seen in an 8-bit picture
    count: int | None = None,
    overlap: float | None = None,
    share: float | None = None,
    batch: int = 16,
) -> Figures:
    """Table 8: what FGSM on the localizer costs the classifier of its patches, by scale; ε in 8-bit units. Patches are
    found in the attacked picture, and cut out of it (`cut` is attacked, the paper's reading), or out of the clean one,
    which shows what the localization alone loses. Beside it the localizer's own decision, and `full`, which is attacked
    by its own gradient."""
    epsilons = tuple(dict.fromkeys(epsilons))
    if not epsilons or not all(0 < epsilon <= WHITE for epsilon in epsilons):
        raise BadChoice(f"ε is above 0, in 8-bit units up to 255; got {', '.join(map(str, epsilons)) or 'none'}")
    settings, trial = choice(count, overlap, share), Trial(run)
    for part in trial.parts(batch, "full"):
        _add(trial, part, settings, epsilons)
    rows = list(_rows(trial, (0.0, *epsilons)))
    return trial.figures(rows, SETTINGS, tables={f"FGSM on the localizer, {run.data.name}": without(rows)})


def _add(trial: Trial, part: Part, settings: Choice, epsilons: Sequence[float]) -> None:
    """A batch under every attack, into the tally."""
    tally, localizer, classifier, full = trial.tally, trial.localizer, trial.nets["net"], trial.nets["full"]
    clean, other = part.tensors["localizer"], part.tensors["full"]
    ours, theirs, whole = (trial.labels(role, part) for role in ROLES)
    changed = (clean, *attacked(localizer, clean, ours, epsilons))
    for epsilon, tensors in zip((0.0, *epsilons), changed, strict=True):
        seen = look(localizer, tensors) if epsilon else part.seen
        cut = patches(seen, settings, clean.shape[2:])
        tally.put(("chosen", epsilon), seen.chosen)
        tally.answers(("decision", epsilon), seen.output, ours)
        tally.answers(("attacked", epsilon), judged(localizer, classifier, tensors, cut), theirs)
        if epsilon:
            tally.answers(("clean", epsilon), judged(localizer, classifier, clean, cut), theirs)
    changed = (other, *attacked(full, other, whole, epsilons))
    for epsilon, tensors in zip((0.0, *epsilons), changed, strict=True):
        tally.answers(("full", epsilon), answer(full, tensors), whole)


def attacked(network: Network, tensors: Tensor, labels: Tensor, epsilons: Sequence[float]) -> list[Tensor]:
    """The pictures after FGSM with the network's own gradient, which is followed once for every ε."""
    normal = normalization_of(network)
    pixels = normal.to_pixels(tensors.float()).clamp(0, WHITE)
    victims = Victims(pixels, labels, range(len(pixels)))
    # 0 where a step of 1 leads out of 0..255 at once, as a step of any ε does
    direction = (FGSM(1.0, network)(victims, lambda done: None) - pixels).sign()
    return [normal.to_tensors((pixels + epsilon * direction).clamp(0, WHITE)).to(tensors) for epsilon in epsilons]


def _rows(trial: Trial, epsilons: Sequence[float]) -> Iterator[Row]:
    """Patches cut out of attacked pictures, out of clean ones, then the two networks that see the whole."""
    sides, (finder, judge, full) = trial.sides, (trial.names[role] for role in ROLES)
    ways = {"attacked": (judge, finder), "clean": (judge, finder), "decision": (finder, finder), "full": (full, full)}
    for what, (net, followed) in ways.items():
        patched = what in ("attacked", "clean")
        for scale in [*(sides if patched else ()), OVERALL]:
            before: float | None = None
            for epsilon in epsilons:
                # without an attack there is nothing to cut otherwise
                key, chosen = "attacked" if patched and not epsilon else what, trial.tally[("chosen", epsilon)]
                given: Chosen = EVERY if isinstance(scale, str) else chosen == sides.index(scale)
                top = trial.tally.top((key, epsilon), given)
                top1 = top["top1"]
                before = before if epsilon else top1
                if what == "clean" and not epsilon:
                    continue  # told already
                yield {
                    "net": net,
                    "localizer": finder if patched else None,
                    "data": trial.run.data.name,
                    "cut": what if patched and epsilon else None,
                    "scale": str(scale),
                    "attack": f"fgsm on {followed}" if epsilon else "none",
                    "epsilon": epsilon,
                    "images": len(chosen[given]),
                    **top,
                    "drop": None if top1 is None or before is None else before - top1,
                }
