"""Robustness: does the answer hold when pictures are attacked, noisy, compressed, texturized (AnchorNet 4.6 and F)?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor

from fovea import networks
from fovea.basics import BadChoice, by_bootstrap
from fovea.measures import Figures, Run, Tally, ends, loss, mean, measure
from fovea.measures.attacks import FGSM, Attack, Net, Plain, Texture, Victims, attack_of, images, opened
from fovea.networks import WHITE, Matching, Network, Normalization, as_found, match, normalization_of
from fovea.results import drawing

EXAMPLES = 6  # pictures kept to be shown


@dataclass(frozen=True)
class Version:
    """One picture after one attack, and what the network says to it."""

    attack: str
    image: Image.Image
    label: str
    probability: float


@measure(
    "robustness",
    title="Robustness",
    about="Whether answers hold when pictures are attacked, noisy, compressed, or mere texture.",
    example="--data photos/ --net mine.safetensors --attacks fgsm:2,jpeg:30",
    needs=("labels",),
    fit="crop",
    columns=("net", "data", "images", "attack", "strength", "top1", "top5", "drop", "unchanged"),
    interval="top1",
    figure="draw",
)
def robustness(
    run: Run,
    *,
    attacks: Sequence[str | Attack] = ("fgsm:0.2", "fgsm:2", "noise:10", "jpeg:30"),
    surrogate: Net = None,
    texture_net: Net = None,
    batch: int = 16,
    seed: int = 0,
) -> Figures:
    """One row for the plain pictures, then one per attack: top-1, top-5, the share of answers that stayed the same.
    Attacks are written `fgsm:2`, `noise:10`, `jpeg:30`, `texture:100`. FGSM follows the gradient of the `surrogate`, a
    network of the same classes, where there is one; textures match layers of `texture_net`, or of the hub's VGG19."""
    tried = [Plain(), *_attacks(run, attacks, surrogate, texture_net, seed)]
    network, data = run.network, run.data
    normal = normalization_of(network)
    each = sum(attack.steps for attack in tried)
    tally, examples = Tally(), [list[Version]() for _ in tried]
    wanted = run.examples(EXAMPLES)
    done, how = 0, ""

    def tell(steps: int) -> None:
        run.progress(done + steps + len(run.skipped) * each, len(data) * each)

    for matching, victims in _victims(run, normal, batch):
        how, before = matching.how, None
        chosen = [row for row, number in enumerate(victims.numbers) if number in wanted]
        for place, attack in enumerate(tried):
            changed = attack(victims, tell)
            output = _answers(network, normal, changed)
            before = output.argmax(1) if before is None else before
            tally.answers(place, output, victims.labels)
            tally.put(("same", place), output.argmax(1) == before)
            examples[place] += _versions(network, attack, changed[chosen], output[chosen])
            done += attack.steps * len(changed)
            tell(0)
    about = run.about(len(tally[0]))
    rows = []
    for place, attack in enumerate(tried):
        right = tally[place] < 1
        drop = loss(tally[0] < 1, right, seed, name="drop") if place else {}
        shares = {**tally.top(place), **ends(right, seed), **drop, "unchanged": mean(tally["same", place])}
        rows.append({**about, "attack": attack.name, "strength": attack.strength, **shares})
    settings = {
        "labels": f"matched by {how}",
        "pixels": "attacks change the input's pixels, after crop and resize; clipped to 0..255, rounded by JPEG alone",
        "strength": "fgsm: ε, noise: σ, both in 8-bit units; jpeg: quality; texture: iterations of L-BFGS",
        "unchanged": "share of pictures whose first class stays the same",
        "interval": f"{by_bootstrap('top1', seed)}; of a drop from plain pictures by the same ones",
        **{attack.name: str(attack) for attack in tried if isinstance(attack, (FGSM, Texture))},
    }
    return run.figures(rows, settings, extra=list(zip(*examples, strict=True)))


def draw(found: Figures) -> Image.Image:
    """A few pictures in all their versions, the plain one first."""
    examples: Sequence[Sequence[Version]] = found.extra

    def shown(one: Version) -> Image.Image:
        return drawing.titled(one.image.convert("RGB"), f"{one.label} {one.probability:.2f}", one.attack)

    return drawing.grid([list(map(shown, row)) for row in examples])


def _versions(network: Network, attack: Attack, pixels: Tensor, output: Tensor) -> list[Version]:
    if pixels.shape[1] not in (1, 3) or not len(pixels):
        return []  # nothing that can be shown
    title = "plain" if isinstance(attack, Plain) else f"{attack.name} {attack.strength:g}"
    shares, best = networks.shares_of(network, output).max(1)
    told = zip(images(pixels), best.tolist(), shares.tolist(), strict=True)
    return [Version(title, image, network.label(index), share) for image, index, share in told]


def _victims(run: Run, normal: Normalization, batch: int) -> Iterator[tuple[Matching, Victims]]:
    """Batches of them, each with how labels are matched."""
    network, matching, count = run.network, None, 0
    for samples, ((tensors, _, _),) in run.inputs(batch, parts=0):
        pixels = normal.to_pixels(tensors.float()).clamp(0, WHITE)
        matching = matching or match(network, run.data, networks.width_of(_answers(network, normal, pixels[:1])))
        yield matching, Victims(pixels, matching.of(samples), range(count, count + len(pixels)))
        count += len(pixels)


def _answers(network: Network, normal: Normalization, pixels: Tensor) -> Tensor:
    with as_found(network), torch.no_grad():
        return network(normal.to_tensors(pixels).to(network.device, network.dtype))


def _demand_same_classes(network: Network, surrogate: Network) -> None:
    own, other = network.labels or (), surrogate.labels or ()
    if len(own) != len(other):
        raise BadChoice(f"the surrogate must have the network's classes: it has {len(other)} labels, not {len(own)}")
    for i, (one, two) in enumerate(zip(own, other, strict=True)):
        if one != two and not one.isdecimal() and not two.isdecimal():
            why = f"class {i} is {two!r} to it, {one!r} to the network"
            raise BadChoice(f"the surrogate must have the network's classes in the network's order: {why}")


def _attacks(run: Run, given: Sequence[str | Attack], surrogate: Net, texture_net: Net, seed: int) -> list[Attack]:
    named, textured = opened(run, given, texture_net)
    other = None if surrogate is None else run.other(surrogate)
    if other is not None:
        _demand_same_classes(run.network, other)
    return [attack_of(*one, other or run.network, textured, seed) if isinstance(one, tuple) else one for one in named]
