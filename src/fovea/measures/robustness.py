"""Robustness: does the answer hold when pictures are attacked, noisy, compressed, texturised (AnchorNet 4.6 and F)?"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from fovea.basics.errors import BadChoice, BadNetwork, BadPicture
from fovea.data import DataSet
from fovea.measures.attacks import FGSM, STRENGTHS, Attack, Plain, Texture, Victims, attack_of, images, parsed
from fovea.measures.figures import Figures
from fovea.networks.loading import OFFLINE, load
from fovea.networks.matching import Matching, match, width_of
from fovea.networks.network import Network, as_found
from fovea.networks.normalization import WHITE, Normalisation, normalisation_of
from fovea.networks.stream import batches, input_of, prepared, rank_of
from fovea.results import drawing

EXAMPLES = 6  # pictures kept to be shown
TEXTURE_NET, OFFLINE_NET = "torchvision/vgg19", next(iter(OFFLINE))  # Gatys et al.'s, and one without a download


@dataclass(frozen=True)
class Version:
    """One picture after one attack, and what the network says to it."""

    attack: str
    image: Image.Image
    label: str
    probability: float


@dataclass(frozen=True)
class Robustness(Figures):
    """The figures, and a few pictures in all their versions, the plain one first."""

    examples: Sequence[Sequence[Version]] = field(default=(), kw_only=True)

    def picture(self) -> Image.Image:
        rows = [
            [drawing.titled(one.image.convert("RGB"), f"{one.label} {one.probability:.2f}", one.attack) for one in row]
            for row in self.examples
        ]
        return drawing.grid(rows)

    def save(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.picture().save(path)


def measure(
    network: Network,
    data: DataSet,
    attacks: Sequence[str | Attack],
    batch: int = 16,
    surrogate: Network | None = None,
    texture_net: Network | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Robustness:
    """A row for the plain pictures, then one an attack: top-1, top-5, the share of answers that stayed the same.

    Attacks are written `fgsm:2`, `noise:10`, `jpeg:30`, `texture:100`. FGSM follows the gradient of the `surrogate`, a
    network of the same classes, where there is one; textures match layers of `texture_net`, or of the hub's VGG19.
    """
    if batch < 1:
        raise BadChoice(f"a batch holds at least one picture; got {batch}")
    if surrogate is not None:
        _demand_same_classes(network, surrogate)
    tried = [Plain(), *_attacks(network, attacks, surrogate, texture_net, seed)]
    normal, skipped = normalisation_of(network), list[tuple[str, str]]()
    each = sum(attack.steps for attack in tried)
    found = [_Tally() for _ in tried]
    wanted = set(np.linspace(0, len(data) - 1, min(EXAMPLES, len(data))).round().astype(int).tolist())
    done, count, how = 0, 0, ""

    def tell(steps: int) -> None:
        progress(done + steps + len(skipped) * each, len(data) * each)

    for matching, victims in _victims(network, data, normal, batch, skipped):
        how, before = matching.how, None
        chosen = [row for row, number in enumerate(victims.numbers) if number in wanted]
        for attack, tally in zip(tried, found, strict=True):
            changed = attack(victims, tell)
            output = _answers(network, normal, changed)
            before = output.argmax(1) if before is None else before
            tally.add(output, victims.labels, before)
            tally.examples += _versions(network, attack, changed[chosen], output[chosen])
            done += attack.steps * len(changed)
            tell(0)
        count += len(victims.labels)
    if not count:
        raise BadPicture(f"no picture of {data.name} could be read: {skipped[0][1] if skipped else 'it is empty'}")
    about = {"net": network.name or "network", "data": data.name, "images": count}
    rows = [
        {**about, "attack": attack.name, "strength": attack.strength, **tally.figures()}
        for attack, tally in zip(tried, found, strict=True)
    ]
    settings = {
        "data": data.name,
        "input": input_of(network),
        "labels": f"matched by {how}",
        "pixels": "attacks change the input's pixels, after crop and resize; clipped to 0..255, rounded by JPEG alone",
        "strength": "fgsm: ε, noise: σ, both in 8-bit units; jpeg: quality; texture: iterations of L-BFGS",
        "unchanged": "share of pictures whose first class stays the same",
        **{attack.name: str(attack) for attack in tried if isinstance(attack, (FGSM, Texture))},
        "skipped": len(skipped),
    }
    examples = list(zip(*(tally.examples for tally in found), strict=True))
    return Robustness("robustness", settings, rows, skipped, examples=examples)


@dataclass
class _Tally:
    """What the network made of every picture after one attack."""

    ranks: list[NDArray[np.int64]] = field(default_factory=list)
    same: list[NDArray[np.bool_]] = field(default_factory=list)
    examples: list[Version] = field(default_factory=list)
    classes: int = 0

    def add(self, output: Tensor, labels: Tensor, before: Tensor) -> None:
        self.ranks.append(rank_of(output, labels))
        self.same.append((output.argmax(1) == before).cpu().numpy())
        self.classes = output.shape[1]

    def figures(self) -> dict[str, float | None]:
        rank, same = np.concatenate(self.ranks), np.concatenate(self.same)
        top5 = float((rank < 5).mean()) if self.classes >= 5 else None
        return {"top1": float((rank < 1).mean()), "top5": top5, "unchanged": float(same.mean())}


def _versions(network: Network, attack: Attack, pixels: Tensor, output: Tensor) -> list[Version]:
    if pixels.shape[1] not in (1, 3) or not len(pixels):
        return []  # nothing that can be shown
    title = "plain" if isinstance(attack, Plain) else f"{attack.name} {attack.strength:g}"
    shares, best = output.float().softmax(1).max(1)
    told = zip(images(pixels), best.tolist(), shares.tolist(), strict=True)
    return [Version(title, image, network.label(index), share) for image, index, share in told]


def _victims(
    network: Network, data: DataSet, normal: Normalisation, batch: int, skipped: list[tuple[str, str]]
) -> Iterator[tuple[Matching, Victims]]:
    """Batches of them, each with how labels are matched."""
    matching: Matching | None = None
    seen = 0
    for samples, pictures in batches(data, batch, skipped):
        tensors, _, _ = prepared(network, samples, pictures)
        pixels = normal.to_pixels(tensors.float()).clamp(0, WHITE)
        matching = matching or match(network, data, width_of(_answers(network, normal, pixels[:1])))
        yield matching, Victims(pixels, matching.of(samples), range(seen, seen + len(samples)))
        seen += len(samples)


def _answers(network: Network, normal: Normalisation, pixels: Tensor) -> Tensor:
    with as_found(network), torch.no_grad():
        return network(normal.to_tensors(pixels).to(network.device, network.dtype))


def _demand_same_classes(network: Network, surrogate: Network) -> None:
    own, other = network.labels or (), surrogate.labels or ()
    if len(own) != len(other):
        raise BadChoice(
            f"the surrogate must have the network's classes: it has {len(other)} labels, the network {len(own)}"
        )
    for i, (one, two) in enumerate(zip(own, other, strict=True)):
        if one != two and not one.isdecimal() and not two.isdecimal():
            raise BadChoice(
                f"the surrogate must have the network's classes in the network's order: class {i} is {two!r} to it, "
                f"{one!r} to the network"
            )


def _attacks(
    network: Network,
    given: Sequence[str | Attack],
    surrogate: Network | None,
    texture_net: Network | None,
    seed: int,
) -> list[Attack]:
    if not given:
        raise BadChoice(f"name at least one attack: {'; '.join(STRENGTHS.values())}")
    named = [parsed(one) if isinstance(one, str) else one for one in given]  # wrong names are told before weights load
    if texture_net is None and any(isinstance(one, tuple) and one[0] == "texture" for one in named):
        texture_net = _texture_net()
    return [
        attack_of(*one, surrogate or network, texture_net, seed) if isinstance(one, tuple) else one for one in named
    ]


def _texture_net() -> Network:
    try:
        return load(TEXTURE_NET)
    except BadNetwork as error:
        raise BadNetwork(
            f"textures match the layers of {TEXTURE_NET}, whose weights could not be loaded: name a network that is at "
            f"hand instead (--texture-net {OFFLINE_NET}, or texture_net=fovea.load({OFFLINE_NET!r}))"
        ) from error
