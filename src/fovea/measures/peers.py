"""Heatmaps by the libraries that people use today, each by its own documented way, for whoever times them."""

import copy
import re
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

Key = tuple[str, str]  # a library and its method
Call = Callable[[], Any]
TORCHCAM = {"gradcam": "GradCAM", "gradcam++": "GradCAMpp", "layercam": "LayerCAM", "xgradcam": "XGradCAM",
            "scorecam": "ScoreCAM"}  # fmt: skip
GRAD_CAM = {"gradcam": "GradCAM", "gradcam++": "GradCAMPlusPlus", "hirescam": "HiResCAM", "layercam": "LayerCAM",
            "xgradcam": "XGradCAM", "eigencam": "EigenCAM", "scorecam": "ScoreCAM",
            "ablationcam": "AblationCAM"}  # fmt: skip


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
