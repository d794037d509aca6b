"""Texturized pictures (Gatys et al. 2015): the same local features, differently arranged.

White noise is changed by L-BFGS until, at every layer looked at, the Gram matrix of its features is that of the given
picture: G = F F^T / P for the features F (k,P) of a layer's P cells. What a layer sees is kept, where it is is not."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from fovea.basics import BadChoice, BadNetwork, Progress, nearest, quiet
from fovea.networks import WHITE, Network, Normalization, as_found, layout_of, normalization_of, stretch

Measure = Callable[[Tensor], list[Tensor]]  # Gram matrices of a picture
Tell = Callable[[int], None]  # how many iterations are done
ITERATIONS = 100  # after 40 the shapes and colors are there, after 100 the grain is, too
MEMORY = 20  # steps that L-BFGS remembers
SMALLEST = 1e-6  # of a Gram matrix's squared length: a flat picture has no differences to compare with


def synthesize(
    network: Network,
    pixels: Tensor,
    iterations: int = ITERATIONS,
    layers: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress = quiet,
) -> Tensor:
    """For each picture (N,C,H,W, 0 to 255) another of the same texture; picture i starts from noise of seed + i.
    `layers`: names of submodules, or else `stages`. A network without a map as fine as the picture does not see noise
    between neighboring pixels: there the colors of the pixels and of their differences are matched as well."""
    if pixels.ndim != 4 or iterations < 1:
        raise BadChoice(f"textures take N,C,H,W pixels, at least 1 iteration; got {tuple(pixels.shape)}, {iterations}")
    normal, made = normalization_of(network), []

    def tell(number: int, done: int) -> None:
        progress(number * iterations + done, len(pixels) * iterations)

    with as_found(network):
        named = _checked(network, layers) if layers else stages(network, normal.to_tensors(pixels[:1]))
        measure = partial(statistics, network, normal, named)
        for number, picture in enumerate(torch.split(pixels.detach(), 1)):
            noise = torch.rand(picture.shape, generator=torch.Generator().manual_seed(seed + number)) * WHITE
            made.append(_descend(measure, picture, noise.to(picture), iterations, partial(tell, number)))
    return torch.cat(made)


def stages(network: Network, batch: Tensor) -> tuple[str, ...]:
    """The last map of every resolution but the coarsest: what is about to be shrunk, in VGG what its pools pool."""
    names = [name for name, _ in network.module.named_modules() if name]
    with as_found(network), torch.no_grad():
        ran = features(network, names, batch[:1].to(network.device, network.dtype))
    last: dict[tuple[int, ...], str] = {}
    lengths: set[int] = set()  # of what an attention layer attends over
    for name, value in ran.items():
        layout = layout_of(value, batch) if value.shape[:1] == (1,) else None
        if layout is None or len(layout.grid) != 2 or layout.cells < 4:
            continue
        attention = layout.kind != "tokens" and bool(lengths & set(layout.grid))
        if not attention and stretch(layout.grid, batch.shape[2:]) < 0.2:
            lengths |= {layout.cells, layout.cells + layout.prefix}
            last[layout.grid] = name
    if not last:
        raise BadNetwork("this network has no layer whose output has rows and columns, so it sees no texture")
    coarsest = min(last, key=lambda grid: grid[0] * grid[1])
    return tuple(name for grid, name in last.items() if grid != coarsest) or (last[coarsest],)


class _Enough(Exception):
    """Every layer asked for has run."""


def features(network: Network, names: Sequence[str], batch: Tensor) -> dict[str, Tensor]:
    """What the submodules give when they first run, in that order; what comes after the last one is not run."""
    modules = dict(network.module.named_modules())
    seen: dict[str, Tensor] = {}

    def watch(name: str) -> RemovableHandle:
        def keep(module: object, inputs: object, output: object) -> None:
            if isinstance(output, Tensor) and name not in seen:
                seen[name] = output.clone()  # the next layer may write over it
            if len(seen) == len(names):
                raise _Enough

        return modules[name].register_forward_hook(keep)

    handles = [watch(name) for name in names]
    try:
        network.module(batch)
    except _Enough:
        pass
    finally:
        for handle in handles:
            handle.remove()
    return seen


def statistics(network: Network, normal: Normalization, layers: Sequence[str], pixels: Tensor) -> list[Tensor]:
    """A Gram matrix a layer for one picture (1,C,H,W), and its pixels' own where no layer is as fine as they are."""
    seen = features(network, layers, normal.to_tensors(pixels).to(network.device, network.dtype))
    layouts = {name: layout_of(value, pixels) for name, value in seen.items()}
    maps = {name: layout.by_cell(seen[name]).float() for name, layout in layouts.items() if layout is not None}
    if missing := [name for name in layers if name not in maps]:
        raise BadChoice(f"layer {missing[0]!r} gives no map of this picture; name others, or none to have them chosen")
    found = [gram(cells) for cells in maps.values()]
    if all(layout is None or layout.grid != pixels.shape[2:] for layout in layouts.values()):
        shade = pixels * (2 / WHITE) - 1
        across, down = shade[:, :, 1:].diff(dim=3), shade[:, :, :, 1:].diff(dim=2)
        for kept in (torch.cat([shade, torch.ones_like(shade[:, :1])], 1), torch.cat([across, down], 1)):
            found.append(gram(kept.flatten(2)).to(found[0]))
    return found


def gram(cells: Tensor) -> Tensor:
    """F F^T / P, 1,k,k."""
    return cells @ cells.mT / cells.shape[2]


def distance(found: Sequence[Tensor], goal: Sequence[Tensor]) -> Tensor:
    """Each matrix's squared error over its goal's squared length, so that every layer counts alike."""
    pairs = zip(found, goal, strict=True)
    parts = [(own - one).square().sum() / one.square().sum().clamp(min=SMALLEST) for own, one in pairs]
    return torch.stack(parts).sum()


@dataclass(frozen=True)
class Spectrum:
    """Pictures as waves, the long ones in larger units, as they are stronger in photographs: on these L-BFGS moves
    broad shapes as soon as fine ones, and needs a fraction of the iterations that it needs on pixels."""

    units: Tensor  # H,W//2+1
    size: tuple[int, int]

    @staticmethod
    def like(pixels: Tensor) -> "Spectrum":
        height, width = pixels.shape[2:]
        down, across = torch.fft.fftfreq(height), torch.fft.rfftfreq(width)  # in waves a pixel
        frequency = (down[:, None].square() + across.square()).sqrt().clamp(min=1 / max(height, width))
        units = frequency**-0.5
        return Spectrum((units / units.square().mean().sqrt()).to(pixels.device), (height, width))

    def of(self, pixels: Tensor) -> Tensor:
        waves = torch.fft.rfft2(pixels * (2 / WHITE) - 1, norm="ortho") / self.units
        return torch.view_as_real(waves).clone()

    def pixels(self, waves: Tensor) -> Tensor:
        shade = torch.fft.irfft2(torch.view_as_complex(waves) * self.units, s=self.size, norm="ortho")
        return (shade + 1) * (WHITE / 2)


def _descend(measure: Measure, picture: Tensor, noise: Tensor, iterations: int, progress: Tell) -> Tensor:
    with torch.no_grad():
        goal = measure(picture)
    spectrum = Spectrum.like(picture)
    waves = spectrum.of(noise).requires_grad_()
    how: dict[str, Any] = {"line_search_fn": "strong_wolfe", "tolerance_grad": 0, "tolerance_change": 0}
    optimiser = torch.optim.LBFGS([waves], max_iter=iterations, max_eval=2 * iterations, history_size=MEMORY, **how)
    evaluations = 0

    def closure() -> Tensor:
        nonlocal evaluations
        pixels = spectrum.pixels(waves)
        beyond = (pixels - pixels.clamp(0, WHITE)) * (2 / WHITE)  # what no screen can show
        loss = distance(measure(pixels), goal) + beyond.square().mean()
        (waves.grad,) = torch.autograd.grad(loss, waves)
        evaluations += 1
        progress(min(evaluations, iterations))
        return loss.detach()

    optimiser.step(closure)  # type: ignore[no-untyped-call]
    progress(iterations)
    return spectrum.pixels(waves.detach()).clamp(0, WHITE)


def _checked(network: Network, layers: Sequence[str]) -> tuple[str, ...]:
    names = {name for name, _ in network.module.named_modules() if name}
    for layer in layers:
        if layer not in names:
            raise BadChoice(f"no layer {layer!r} in {type(network.module).__name__}{nearest(layer, names)}")
    return tuple(dict.fromkeys(layers))
