"""Which method works on which architecture: every method run on every network, with random weights."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from fovea.basics import BadChoice, FoveaError
from fovea.heatmaps.explain import explain
from fovea.heatmaps.methods import find, names
from fovea.measures import Figures, Run, measure
from fovea.measures.timing import bare, built, noise_for
from fovea.networks import Network

SIDE, MOVED = 128, 0.02  # pixels; the noise on every weight
QUICK = {  # enough to know that they run
    "scorecam": "channels=8",
    "rise": "masks=4",
    "occlusion": "window=48,stride=48",
    "integrated-gradients": "steps=2",
    "smoothgrad": "samples=2",
}
SOLVED = {"exact": "exact", "iterative": "iterated", "vanilla": "iterated"}


@measure(
    "compatibility",
    title="Methods that work on an architecture",
    about="Which heatmap methods work on which networks: every method is tried with random weights, and refusals are "
    "listed with their reasons.",
    example="--net torchvision/resnet18 --net timm/vit_tiny_patch16_224",
    nets="names",
    data="none",
    trained=False,
    usual={
        "net": (
            "efficientnet_lite0",
            "torchvision/alexnet",
            "torchvision/vgg16",
            "torchvision/vgg16_bn",
            "torchvision/squeezenet1_1",
            "torchvision/googlenet",
            "torchvision/inception_v3",
            "torchvision/densenet121",
            "torchvision/resnet18",
            "torchvision/resnet50",
            "torchvision/wide_resnet50_2",
            "torchvision/resnext50_32x4d",
            "torchvision/regnet_y_400mf",
            "torchvision/shufflenet_v2_x1_0",
            "torchvision/mnasnet0_5",
            "torchvision/mobilenet_v2",
            "torchvision/mobilenet_v3_small",
            "torchvision/efficientnet_b0",
            "torchvision/efficientnet_v2_s",
            "torchvision/convnext_tiny",
            "torchvision/swin_t",
            "torchvision/vit_b_16",
            "torchvision/maxvit_t",
            "timm/resnet50d",
            "timm/seresnet50",
            "timm/res2net50_26w_4s",
            "timm/dla34",
            "timm/dpn68",
            "timm/cspresnet50",
            "timm/hrnet_w18_small",
            "timm/repvgg_a0",
            "timm/ghostnet_100",
            "timm/rexnet_100",
            "timm/nfnet_l0",
            "timm/convnextv2_atto",
            "timm/edgenext_xx_small",
            "timm/fastvit_t8",
            "timm/mobilevit_xxs",
            "timm/mambaout_femto",
            "timm/poolformer_s12",
            "timm/efficientformer_l1",
            "timm/levit_128s",
            "timm/pvt_v2_b0",
            "timm/coat_lite_tiny",
            "timm/davit_tiny",
            "timm/hiera_tiny_224",
            "timm/swinv2_cr_tiny_224",
            "timm/xcit_nano_12_p16_224",
            "timm/vit_tiny_patch16_224",
            "timm/deit_tiny_distilled_patch16_224",
            "timm/beit_base_patch16_224",
            "timm/cait_xxs24_224",
            "timm/mixer_s16_224",
            "timm/resmlp_12_224",
        ),
        "device": "cpu",
    },
    columns=("net", "layer", "l2caf", "cam", "gradcam", "scorecam", "rollout", "integrated-gradients", "why"),
)
def compatibility(run: Run, *, seed: int = 0) -> Figures:
    """One row per network, one column per method. Weights are random and a picture is noise: what is told is whether a
    method can be used, not whether its map is right."""
    if not run.names:
        raise BadChoice("name one or more networks")
    rows = []
    for done, name in enumerate(run.names):
        run.tell(name)
        run.progress(done, len(run.names))
        rows.append({"net": name, **tried(name, run.device, seed)})
    run.progress(len(run.names), len(run.names))
    settings = {
        "weights": f"random, or those at hand, with noise of {MOVED} on each",
        "input": f"noise, one picture of {SIDE} pixels, or of the network's own size where it takes no other",
        "exact": "the closed form of L2-CAF, proved for the batch",
        "iterated": "L2-CAF by iterations on what comes after the cut, or through the whole network",
        "options": ", ".join(f"{name}:{options}" for name, options in QUICK.items()),
    }
    return Figures("compatibility", settings, rows)


def _moved(network: Network, seed: int) -> Network:
    """The network with noise on all weights: some begin at zero, where any head is linear and any map blank."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in network.module.parameters():
            weight.add_(MOVED * torch.randn(weight.shape, generator=generator).to(weight))
    return network


def _noise(network: Network, seed: int) -> Tensor:
    """One picture of SIDE pixels where the network takes it, which is the quicker, else of the network's size."""
    pixels = noise_for(network, 1, seed)
    small = pixels[..., :SIDE, :SIDE].contiguous()
    try:
        bare(network, small)()
    except (RuntimeError, AssertionError, ValueError):  # each family refuses in its own way
        return pixels
    return small


def tried(name: str, device: str, seed: int) -> Mapping[str, Any]:
    """What each method does on a network, the layer that is looked at, and why some are refused."""
    asked = {each: replace(find(f"{each}:{QUICK[each]}" if each in QUICK else each), optional=True) for each in names()}
    network = _moved(built(name, device, seed=seed), seed)
    try:
        found = explain(network, _noise(network, seed), method=tuple(asked.values()))
    except FoveaError as error:
        return dict.fromkeys(asked, "refused") | {"why": str(error)}
    row: dict[str, Any] = {}
    reasons: dict[str, list[str]] = {}
    for short, method in asked.items():
        if method.name in found:
            maps = found[method.name]
            row[short] = SOLVED.get(maps.solver or "", "works")
            row.setdefault("layer", maps.layer)
        else:
            row[short] = "refused"
            reasons.setdefault(found.refused[method.name], []).append(short)
    return row | {"why": "; ".join(f"{', '.join(which)}: {reason}" for reason, which in reasons.items())}
