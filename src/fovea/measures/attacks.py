"""What is done to pictures before a network sees them again. All of it on the pixels of the input, 0 to 255."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Protocol

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

from fovea.basics import BadChoice, BadNetwork, Bound, nearest
from fovea.measures.runner import Run
from fovea.measures.texture import synthesize
from fovea.networks import OFFLINE, WHITE, Network, NetworkLike, as_found, normalization_of

Net = NetworkLike | None
TEXTURE_NET = "torchvision/vgg19"  # Gatys et al.'s
OFFLINE_NET = next(iter(OFFLINE))  # one without a download
Tell = Callable[[int], None]  # how many steps are done
EIGHT_BITS = Bound(0, 255, real=True)
STRENGTHS = {
    "fgsm": "fgsm:2, where 2 is ε in 8-bit units",
    "noise": "noise:10, where 10 is σ in 8-bit units",
    "jpeg": "jpeg:30, where 30 is the quality, 1 to 100",
    "texture": "texture:100, where 100 is the number of iterations",
}
BOUNDS = {"fgsm": EIGHT_BITS, "noise": EIGHT_BITS, "jpeg": Bound(1, 100), "texture": Bound(1, 100_000)}


@dataclass(frozen=True)
class Victims:
    """Pictures to attack."""

    pixels: Tensor  # N,C,H,W, 0 to 255
    labels: Tensor  # N: the true class, as the network numbers them
    numbers: Sequence[int]  # N: which pictures of the set they are, for random numbers of their own


class Attack(Protocol):
    """Victims in, changed pixels out. `steps` is how long a picture takes, for the progress bar."""

    @property
    def name(self) -> str: ...

    @property
    def strength(self) -> float: ...

    @property
    def steps(self) -> int: ...

    def __call__(self, victims: Victims, tell: Tell) -> Tensor: ...


Named = tuple[str, float] | Attack


@dataclass(frozen=True)
class Plain:
    """Nothing is done: what the others are compared with."""

    strength: float = 0.0
    name: str = "none"
    steps: int = 1

    def __call__(self, victims: Victims, tell: Tell) -> Tensor:
        return victims.pixels


@dataclass(frozen=True)
class FGSM:
    """x + ε sign(d loss / d x) for the cross-entropy of the true class (Goodfellow et al. 2015)."""

    strength: float
    network: Network  # whose gradient is followed
    name: str = "fgsm"
    steps: int = 1

    def __str__(self) -> str:
        return f"x + ε sign of the cross-entropy's gradient, of {self.network.name or 'the network'}"

    def __call__(self, victims: Victims, tell: Tell) -> Tensor:
        normal, network = normalization_of(self.network), self.network
        with as_found(network):
            own = victims.pixels.detach().clone().requires_grad_()
            same = own.shape[2:] == normal.size
            fitting = own if same else F.interpolate(own, normal.size, mode="bilinear", align_corners=False)
            output = network(normal.to_tensors(fitting).to(network.device, network.dtype))
            labels = victims.labels.clone().to(output.device)  # cloned, since inference mode's own have no gradient
            loss = F.cross_entropy(output.float(), labels, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, own)
        return (victims.pixels + self.strength * gradient.sign()).clamp(0, WHITE)


@dataclass(frozen=True)
class Noise:
    """x + σ n, with n from the normal distribution; a picture has the same n at every σ."""

    strength: float
    seed: int = 0
    name: str = "noise"
    steps: int = 1

    def __call__(self, victims: Victims, tell: Tell) -> Tensor:
        shape = victims.pixels.shape[1:]
        drawn = [np.random.default_rng((self.seed, number)).standard_normal(shape) for number in victims.numbers]
        return (victims.pixels + self.strength * torch.from_numpy(np.stack(drawn)).to(victims.pixels)).clamp(0, WHITE)


@dataclass(frozen=True)
class JPEG:
    """Written as JPEG and read again."""

    strength: float
    name: str = "jpeg"
    steps: int = 1

    def __call__(self, victims: Victims, tell: Tell) -> Tensor:
        return torch.stack([self._again(image) for image in images(victims.pixels)]).to(victims.pixels)

    def _again(self, image: Image.Image) -> Tensor:
        buffer = BytesIO()
        image.save(buffer, "JPEG", quality=int(self.strength))
        values = np.array(Image.open(buffer)).reshape(image.height, image.width, -1)
        return torch.from_numpy(values).permute(2, 0, 1)


@dataclass(frozen=True)
class Texture:
    """The same texture, differently arranged: the strength is the number of iterations."""

    strength: float
    network: Network  # whose layers are matched
    seed: int = 0
    name: str = "texture"

    @property
    def steps(self) -> int:
        return int(self.strength)

    def __str__(self) -> str:
        return f"Gram matrices of {self.network.name or 'the network'}, from white noise of the seed and the picture"

    def __call__(self, victims: Victims, tell: Tell) -> Tensor:
        made: list[Tensor] = []

        def advance(done: int, total: int) -> None:
            tell(len(made) * self.steps + done)

        for number, picture in zip(victims.numbers, torch.split(victims.pixels, 1), strict=True):
            seed = self.seed + number
            made.append(synthesize(self.network, picture, self.steps, seed=seed, progress=advance))
        return torch.cat(made)


def parsed(given: str) -> tuple[str, float]:
    """'fgsm:0.2' as a name and a strength."""
    name, _, text = (part.strip() for part in given.partition(":"))
    if name not in STRENGTHS:
        raise BadChoice(f"no attack {name!r}{nearest(name, STRENGTHS)} (there are: {', '.join(STRENGTHS)})")
    return name, float(BOUNDS[name].read(f"the strength of an attack, as {STRENGTHS[name]},", text))


def opened(run: Run, given: Sequence[str | Attack], texture_net: Net) -> tuple[list[Named], Network | None]:
    """Attacks by name and strength, or as they are, and the network whose layers a texture matches."""
    if not given:
        raise BadChoice(f"name at least one attack: {'; '.join(STRENGTHS.values())}")
    # wrong names are told before weights load
    named = [parsed(one) if isinstance(one, str) else one for one in dict.fromkeys(given)]
    needed = any(isinstance(one, tuple) and one[0] == "texture" for one in named)
    try:
        return named, run.other(texture_net or TEXTURE_NET) if texture_net or needed else None
    except BadNetwork as error:
        if texture_net is not None:
            raise
        raise BadNetwork(
            f"textures match the layers of {TEXTURE_NET}, whose weights could not be loaded: name a network that is at "
            f"hand instead (--texture-net {OFFLINE_NET}, or texture_net=fovea.load({OFFLINE_NET!r}))"
        ) from error


def attack_of(name: str, strength: float, followed: Network, textured: Network | None, seed: int) -> Attack:
    """`followed` is the network whose gradient is attacked, `textured` the one whose layers a texture matches."""
    if name == "fgsm":
        return FGSM(strength, followed)
    if name == "noise":
        return Noise(strength, seed)
    if name == "jpeg":
        return JPEG(strength)
    if textured is None:
        raise BadChoice("a texture needs the network whose layers it matches")
    return Texture(strength, textured, seed)


def images(pixels: Tensor) -> list[Image.Image]:
    """N,C,H,W of 0 to 255 as pictures."""
    if pixels.shape[1] not in (1, 3):
        raise BadChoice(f"only gray and RGB inputs are pictures; this network takes {pixels.shape[1]} channels")
    values = pixels.detach().float().round().clamp(0, WHITE).byte().permute(0, 2, 3, 1).cpu().numpy()
    return [Image.fromarray(value.squeeze(2) if value.shape[2] == 1 else value) for value in values]
