"""Other libraries' maps of the same networks, cell by cell, beside fovea's.

A peer is a function of a `Subject` that gives a map per picture, N,h,w, before it is rectified, stretched or resized:

    @peer("xgradcam", "grad-cam")
    def _(subject: Subject) -> Tensor: ...

`python tests/heatmaps/methods/peers.py` compares everything and writes results/agreement.json.
"""

import copy
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import fovea
from fovea.basics import DoesNotApply
from fovea.heatmaps import Look, aims
from fovea.heatmaps.methods import find
from fovea.measures.figures import Figures
from fovea.networks import as_found, cut

os.environ["TQDM_DISABLE"] = "1"  # before a peer is imported
SAME = 0.999
LARGE = 1e6
SCALED = "grad-cam, score x 1e6"
DIFFERS = {  # why a peer's maps are others
    ("gradcam++", "grad-cam"): "adds 1e-6 to a denominator of squared gradients, which are smaller: weights become "
    "their cubes. With a score a million times as large, which both take, the maps are the same",
    ("gradcam++", "torchcam"): "divides a copy of the numerator, and so weighs by cubed gradients",
    ("scorecam", "grad-cam"): "upsamples with aligned corners",
    ("scorecam", "torchcam"): "brings channels to 0..1 before they are upsampled, not after",
    ("ablationcam", "grad-cam"): "sets a channel to -1e7, lower with every channel, where features may be negative; "
    "and class tokens' channels, too",
    ("guided-backprop", "captum"): "guides ReLU layers alone, not EfficientNet-Lite's ReLU6",
    ("deeplift", "captum"): "follows ReLU layers alone, not EfficientNet-Lite's ReLU6: its pixels do not make up the "
    "score there",
}
NETWORKS = {  # the layer that is looked at; tokens before the patches
    "timm/resnet50": ("layer4", None),
    "timm/vgg16": ("features", None),
    "timm/densenet121": ("features", None),
    "timm/vit_tiny_patch16_224": ("blocks.11.norm1", 1),
    "efficientnet_lite0": ("bn2", None),
    "timm/test_resnet": ("layer4", None),
    "timm/test_vit": ("blocks.5.norm1", 1),
}
FULL = tuple(NETWORKS)[:5]


@dataclass(frozen=True)
class Subject:
    """A network in eval mode, a batch, and the layer to look at; the class is the one that comes first."""

    name: str
    module: nn.Module
    batch: Tensor
    layer: str
    prefix: int | None = None  # of a layer of tokens: how many are no patches

    @cached_property
    def classes(self) -> list[int]:
        with torch.no_grad():
            found: list[int] = self.module(self.batch).argmax(1).tolist()
        return found

    @property
    def at(self) -> nn.Module:
        return self.module.get_submodule(self.layer)

    def spread(self, tokens: Tensor) -> Tensor:
        """Tokens as N,k,h,w, as every peer wants them; other features as they are."""
        if self.prefix is None:
            return tokens
        side = int((tokens.shape[1] - self.prefix) ** 0.5)
        return tokens[:, self.prefix :].transpose(1, 2).unflatten(2, (side, side))


def subject(name: str, side: int = 128, pictures: int = 2) -> Subject:
    """The real weights of efficientnet_lite0, seeded ones of the others."""
    layer, prefix = NETWORKS[name]
    if name == "efficientnet_lite0":
        module = fovea.load(name).module
    else:
        import timm

        torch.manual_seed(0)
        module = _lively(timm.create_model(name.removeprefix("timm/"), **{"img_size": side} if prefix else {}))
    return Subject(name, module.eval(), _photographs(side, pictures), layer, prefix)


def _lively(module: nn.Module) -> nn.Module:
    """Norms and a last layer of many sizes, as training leaves them: what is just made gives flat maps."""
    for parameter in module.parameters():
        if parameter.ndim == 1:
            parameter.data.add_(0.3 * torch.randn_like(parameter))
    last = [layer for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    last.weight.data.normal_(0, 0.1)
    return module


def _photographs(side: int, count: int) -> Tensor:
    import skimage.data
    from PIL import Image

    shown = [skimage.data.chelsea(), skimage.data.coffee(), skimage.data.astronaut()][:count]
    arrays = [np.asarray(Image.fromarray(one).resize((side, side))) / 255.0 for one in shown]
    return torch.tensor(np.stack(arrays), dtype=torch.float32).permute(0, 3, 1, 2) * 4 - 2


PEERS: dict[tuple[str, str], Callable[[Subject], Tensor]] = {}


def peer(method: str, *libraries: str) -> Callable[[Callable[[Subject], Tensor]], Callable[[Subject], Tensor]]:
    def add(run: Callable[[Subject], Tensor]) -> Callable[[Subject], Tensor]:
        PEERS.update(dict.fromkeys(((method, library) for library in libraries), run))
        return run

    return add


def _grad_cam(kind: str, subject: Subject, scale: float = 1.0, **options: Any) -> Tensor:
    """What grad-cam has before it rectifies, stretches and resizes it."""
    import pytorch_grad_cam

    reshape = None if subject.prefix is None else subject.spread
    found = list[np.ndarray]()
    extractor = getattr(pytorch_grad_cam, kind)(subject.module, [subject.at], reshape_transform=reshape, **options)
    with extractor:
        image = extractor.get_cam_image
        extractor.get_cam_image = lambda *given, **how: found.append(image(*given, **how)) or found[-1]
        extractor(subject.batch, [partial(lambda c, out: scale * out[c], c) for c in subject.classes])
    return torch.as_tensor(found[0])


def _torchcam(kind: str, subject: Subject, **options: Any) -> Tensor:
    import torchcam.methods

    reshape = {} if subject.prefix is None else {"reshape_transform": subject.spread}
    with getattr(torchcam.methods, kind)(subject.module, subject.layer, **reshape, **options) as extractor:
        extractor._relu = False
        (found,) = extractor(subject.classes, subject.module(subject.batch), normalized=False)
    return found.detach()


for _method, _kind in {
    "gradcam": "GradCAM",
    "gradcam++": "GradCAMPlusPlus",
    "hirescam": "HiResCAM",
    "layercam": "LayerCAM",
    "xgradcam": "XGradCAM",
    "eigencam": "EigenCAM",
    "scorecam": "ScoreCAM",
}.items():
    peer(_method, "grad-cam")(partial(_grad_cam, _kind))
for _method, _kind in {
    "gradcam": "GradCAM",
    "gradcam++": "GradCAMpp",
    "layercam": "LayerCAM",
    "xgradcam": "XGradCAM",
    "scorecam": "ScoreCAM",
}.items():
    peer(_method, "torchcam")(partial(_torchcam, _kind))
peer("gradcam++", SCALED)(partial(_grad_cam, "GradCAMPlusPlus", scale=LARGE))


@peer("ablationcam", "grad-cam")
def _(subject: Subject) -> Tensor:
    from pytorch_grad_cam.ablation_layer import AblationLayer, AblationLayerVit

    layer = AblationLayer() if subject.prefix is None else AblationLayerVit()
    return _grad_cam("AblationCAM", subject, ablation_layer=layer)


@peer("ablationcam", "captum")
def _(subject: Subject) -> Tensor:
    """Its ablation of a layer gives y - y_k; class tokens are a feature of their own, the last."""
    from captum.attr import LayerActivation, LayerFeatureAblation

    with torch.no_grad():
        features = LayerActivation(subject.module, subject.at).attribute(subject.batch)
    channels = features.shape[-1 if subject.prefix is not None else 1]
    mask = torch.arange(channels)
    if subject.prefix is None:
        mask = mask.view(1, -1, *[1] * (features.ndim - 2)).expand(1, *features.shape[1:])
    else:
        mask = mask.expand(1, *features.shape[1:]).clone()
        mask[:, : subject.prefix] = channels
    lost = LayerFeatureAblation(subject.module, subject.at).attribute(
        subject.batch, target=subject.classes, layer_mask=mask, perturbations_per_eval=1
    )
    weights = subject.spread(lost).flatten(2)[..., :1].unsqueeze(-1)  # N,k,1,1
    return (weights * subject.spread(features)).sum(1).detach()


@peer("gradcam", "captum")
def _(subject: Subject) -> Tensor:
    if subject.prefix is not None:
        raise NotImplementedError("captum's has no tokens")
    from captum.attr import LayerGradCam

    return LayerGradCam(subject.module, subject.at).attribute(subject.batch, target=subject.classes)[:, 0].detach()


@peer("hirescam", "captum")
def _(subject: Subject) -> Tensor:
    """Gradient times activation, the channels summed."""
    from captum.attr import LayerGradientXActivation

    given = LayerGradientXActivation(subject.module, subject.at).attribute(subject.batch, target=subject.classes)
    return subject.spread(given).sum(1).detach()


@peer("cam", "torchcam")
def _(subject: Subject) -> Tensor:
    if subject.name not in ("timm/resnet50", "timm/densenet121", "efficientnet_lite0", "timm/test_resnet"):
        raise NotImplementedError("no pooling before one linear layer")
    fc = next(name for name in ("fc", "classifier") if hasattr(subject.module, name))
    return _torchcam("CAM", subject, fc_layer=fc)


RISE, OCCLUSION = "rise:masks=100", "occlusion:window=24,stride=12"
PAPERS = "the papers, written out"
CAPTUM = {
    "integrated-gradients": ("IntegratedGradients", {"n_steps": 32}),
    "input-x-gradient": ("InputXGradient", {}),
    "guided-backprop": ("GuidedBackprop", {}),
    "deeplift": ("DeepLift", {}),
}


def _captum(name: str, subject: Subject) -> Tensor:
    """By hand on the module itself; sizes are added up over channels where fovea does so."""
    import captum.attr

    kind, options = CAPTUM[name]
    given = subject.batch.clone().requires_grad_()
    found = getattr(captum.attr, kind)(subject.module).attribute(given, target=subject.classes, **options)
    return (found.abs() if name == "guided-backprop" else found).sum(1).detach()


for _method in CAPTUM:
    peer(_method, "captum")(partial(_captum, _method))


@peer("smoothgrad", "captum")
def _(subject: Subject) -> Tensor:
    """With the noise of fovea's, which is the same for every picture, by captum's own seed."""
    from captum.attr import NoiseTunnel, Saliency

    found = []
    for picture, index in zip(subject.batch, subject.classes, strict=True):
        torch.manual_seed(0)
        spread = 0.15 * float(picture.max() - picture.min())
        options = {"nt_type": "smoothgrad", "nt_samples": 32, "nt_samples_batch_size": 4, "stdevs": spread}
        tunnel = NoiseTunnel(Saliency(subject.module))
        found.append(tunnel.attribute(picture[None].clone().requires_grad_(), target=index, abs=False, **options))
    return torch.cat(found).abs().sum(1).detach()


@peer(OCCLUSION, "captum")
def _(subject: Subject) -> Tensor:
    from captum.attr import Occlusion

    module = nn.Sequential(subject.module, nn.Softmax(1))
    return Occlusion(module).attribute(subject.batch, (3, 24, 24), (3, 12, 12), target=subject.classes)[:, 0]


@peer(RISE, PAPERS)
def _(subject: Subject) -> Tensor:
    """Eq. 6, mask after mask; the mean is taken off, as fovea's has it."""
    masks = [mask[0, 0] for part in find(RISE).run.drawn(subject.batch, 16) for mask in part]
    maps = []
    with torch.no_grad():
        for picture, index in zip(subject.batch, subject.classes, strict=True):
            scores = [float(subject.module((picture * mask)[None]).softmax(1)[0, index]) for mask in masks]
            total = sum(score * mask for score, mask in zip(scores, masks, strict=True))
            maps.append(total / (0.5 * len(masks)) - sum(scores) / len(masks))
    return torch.stack(maps)


def _attentions(subject: Subject) -> tuple[Tensor, list[Tensor]]:
    """Unfused, timm's attention passes its weights through its dropout."""
    kept: list[Tensor] = []
    module = copy.deepcopy(subject.module)
    for block in module.blocks:
        block.attn.fused_attn = False
        block.attn.attn_drop.register_forward_hook(lambda _, __, out: kept.append(out))
    return module(subject.batch), kept


@peer("rollout", PAPERS)
def _(subject: Subject) -> Tensor:
    """Abnar and Zuidema 2020, Eq. 1."""
    rolled = torch.eye(1)
    for attention in _attentions(subject)[1]:
        mixed = 0.5 * attention.mean(1) + 0.5 * torch.eye(attention.shape[-1])
        rolled = mixed / mixed.sum(2, keepdim=True) @ (rolled if rolled.ndim == 3 else torch.eye(mixed.shape[-1]))
    return rolled[:, 0, subject.prefix :].detach()


@peer("rollout-gradient", PAPERS)
def _(subject: Subject) -> Tensor:
    """Chefer et al. 2021, Eqs. 5 and 6."""
    output, attentions = _attentions(subject)
    chosen = output.gather(1, torch.tensor(subject.classes).unsqueeze(1)).sum()
    relevance = torch.eye(attentions[0].shape[-1])
    for attention, gradient in zip(attentions, torch.autograd.grad(chosen, attentions), strict=True):
        relevance = relevance + (attention * gradient).clamp(min=0).mean(1) @ relevance
    return relevance[:, 0, subject.prefix :].detach()


def ours(subject: Subject, method: str, library: str = "") -> Tensor:
    """fovea's, before it is rectified: N,h,w."""
    classes = torch.tensor(subject.classes)
    target: Any = classes
    if library == SCALED:
        target = lambda out: LARGE * out.gather(1, classes.unsqueeze(1))[:, 0]  # noqa: E731
    net = fovea.wrap(subject.module, labels=1000)
    with as_found(net):
        opened = cut(net, subject.batch, subject.layer).open(subject.batch)
        (aim,) = aims(target, net, opened.output)
        given = find(method).run(Look(opened, network=net), aim)
        return given.raw.detach().unflatten(1, given.grid or opened.layout.grid)


def agreement(method: str, library: str, subject: Subject) -> tuple[float, float]:
    """The least cosine, and correlation, of any picture's two maps; a principal component has no sign.

    Maps that have few negative values have a cosine near 1 where they are merely flat; a correlation is then not.
    """
    mine, theirs = ours(subject, method, library), PEERS[method, library](subject)
    pairs = [torch.stack([a, b.to(a)]) for a, b in zip(mine.flatten(1), theirs.flatten(1), strict=True)]
    cosines = [float(torch.cosine_similarity(*pair, dim=0)) for pair in pairs]
    correlations = [float(pair.corrcoef()[0, 1]) for pair in pairs]
    if method == "eigencam":
        cosines, correlations = [*map(abs, cosines)], [*map(abs, correlations)]
    return min(cosines), min(correlations)


def rows(networks: Iterable[str]) -> Iterator[dict[str, Any]]:
    for name in networks:
        usual, brief = subject(name), subject(name, 96, 1)
        for method, library in PEERS:
            here = brief if find(method).costly else usual
            try:
                cosine, correlation = (round(value, 5) for value in agreement(method, library, here))
            except (NotImplementedError, DoesNotApply):  # not for this network
                continue
            why = DIFFERS.get((method, library), "") if min(cosine, correlation) < SAME else ""
            yield {
                "method": method, "peer": library, "net": name, "cosine": cosine, "correlation": correlation,
                "differs": why,
            }  # fmt: skip


def write(found: Sequence[Mapping[str, Any]], path: Path = Path("results/agreement.json")) -> None:
    """One row per method and peer, the networks side by side, with the least correlation and why a peer differs."""
    table = dict[tuple[str, str], dict[str, Any]]()
    for row in found:
        line = table.setdefault((row["method"], row["peer"]), {"method": row["method"], "peer": row["peer"]})
        line[row["net"].rpartition("/")[2].partition("_patch")[0]] = row["cosine"]
        line["correlation"] = min(line.get("correlation", 1.0), row["correlation"])
        line["differs"] = line.get("differs") or row["differs"]
    settings = {
        "input": "two photographs of 128 x 128; one of 96 x 96 where a method takes many passes",
        "networks": "the cosine of the maps' cells before they are rectified, the least of the pictures",
        "correlation": "the same with the mean taken off, the least of the networks",
        "weights": "efficientnet_lite0 as trained, the others drawn with a seed",
    }
    Figures("agreement", settings, list(table.values())).write(path, command="python tests/heatmaps/methods/peers.py")


if __name__ == "__main__":
    every = []
    for row in rows(tuple(sys.argv[1:]) or FULL):
        every.append(row)
        print(*row.values(), flush=True)
    write(every)
