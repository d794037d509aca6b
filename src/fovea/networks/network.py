"""A network: an nn.Module with its transform, its labels, where it may be cut, and what its cells see."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, replace
from numbers import Integral
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, BadNetwork, BadPicture, demand_kinds, nearest, plain, shown, within
from fovea.data import Reading
from fovea.networks import geometry
from fovea.networks.adapters import Adapted, adapted
from fovea.networks.adapters.processors import transform_of
from fovea.networks.checking import checked
from fovea.networks.cutting import cut
from fovea.networks.geometry import Geometry
from fovea.networks.inputs import Group, Inputs, groups, in_order
from fovea.networks.predicting import BATCH, Predictions, predict
from fovea.networks.running import ABILITIES as ABILITIES
from fovea.networks.running import Origin as Origin
from fovea.networks.running import Runnable, placed
from fovea.networks.running import as_found as as_found
from fovea.networks.running import layers as layers
from fovea.networks.weights import write_weights
from fovea.pictures import MAX_PIXELS, Prepare
from fovea.pictures.fits import FIT, FITS

MOST_LABELS = 1_000_000
STEPS = (32, 16, 8, 14)  # pixels, tried in this order: strides of most networks, then patches of transformers
WINDOWED = ("streams", "glimpses")  # abilities of networks that cut windows of their own out of the input
GRIDDED = (*WINDOWED, "branches", "frames", "sounds", "texts")  # and of others whose input has one size
BRANCHED = ("branches", "spans", "sounds")  # abilities of networks that return `branches`, each with its evidence


class Network(Runnable):
    """`.module` with `.transform` (picture to tensor, or text to words' numbers) and `.labels`; calling it gives the
    output of a batch."""

    def __call__(self, batch: Any) -> Tensor:
        """The output, in eval mode, for a batch of tensors, or for pictures or texts, which are prepared first."""
        if isinstance(batch, Tensor) or isinstance(self.transform, Reading):
            return super().__call__(batch)
        run = super().__call__

        def answered(group: Group, tensors: Tensor) -> Tensor:
            if group.skipped:
                raise BadPicture(group.skipped[0][1])
            return run(tensors)

        steps = in_order(self, groups(self.fitted(), batch, BATCH), answered)
        rows = [row for found, *_ in steps for row in found]
        if not rows:
            raise BadChoice("no picture was given")
        return torch.stack(rows)

    def predict(
        self, pictures: Inputs, k: int = 5, *, batch: int = BATCH, fit: str | None = None, max_pixels: int = MAX_PIXELS
    ) -> Predictions:
        """The `k` best labels of every picture, with their probabilities: `net.predict("cat.jpg")[0].label`.

        Pictures and `fit` are as for `fovea.explain`; one that cannot be read is left out, with a warning and an entry
        in `.skipped`."""
        demand_kinds(Network.predict, locals())
        return predict(self.fitted(fit), pictures, k, batch, max_pixels)

    def to(self, device: str | torch.device) -> "Network":
        """The network on a device, itself: it is not copied. 'auto' is the GPU where there is one."""
        return placed(self, device)

    def recorded(self, always: bool = True) -> "Network":
        """The same network with every pass through its trunk on a GPU recorded (CUDA graphs), when a shape of batch has
        come a few times, and played from then on; or, with False, with none. Left alone, a network of torch, timm,
        torchvision or fovea has small batches recorded, whose layers take longer to launch than to run."""
        return replace(self, records=always, _cuts={})

    def geometry(self, layer: str | None = None, branch: int | None = None) -> Geometry:
        """What cells can see of the network's input: those of a layer, or of the map that `explain` looks at. Of a
        network with branches it is the evidence of the narrowest one, or of the one with this number (0, 1, 2)."""
        demand_kinds(Network.geometry, locals())
        inputs = geometry.noise_for(self)
        if layer is None and any(map(self.can, BRANCHED)):
            evidence = geometry.of_tensors(self, inputs, lambda out: [branch.evidence for branch in out.branches])
            if branch is not None and branch not in range(len(evidence)):
                raise BadChoice(f"the network has the branches 0 to {len(evidence) - 1}; got {branch}")
            return evidence[branch or 0]
        if branch is not None:
            raise BadChoice(f"{self.name or 'this network'} has no branches: name a layer")
        if layer is None:
            with as_found(self) as parts:
                layer = cut(self, inputs, None, parts).layer
        if layer == "forward_features":  # timm's own trunk, which is no layer
            return geometry.of_tensors(_Trunk(self.module), inputs, lambda out: [out])[0]
        return geometry.of(self, layer)

    def region(self, cell: Sequence[int] | int, layer: str | None = None, branch: int | None = None) -> tuple[int, ...]:
        """The pixels of the network's input that a cell (row, column) can see: x0 y0 x1 y1, half open."""
        demand_kinds(Network.region, locals())
        return self.geometry(layer, branch).region(cell)

    def fitted(self, fit: str | None = None) -> "Network":
        """The same network with pictures of other proportions than its input's taken otherwise: FITS. None is for the
        verbs: as was asked for before; else FIT where the network was trained on crops, squashed where it takes inputs
        of one size only, which is better than padded; and as it is where it was trained on squashed pictures, has
        windows of its own, or a transform of the user's."""
        demand_kinds(Network.fitted, locals())
        if fit not in (None, *FITS):
            raise BadChoice(f"no fit {fit!r}{nearest(str(fit), FITS)} (there are: {', '.join(FITS)})")
        trained, windowed = self.trained or self.transform, any(map(self.can, WINDOWED))
        if not isinstance(trained, Prepare):
            if fit != "whole":
                return self  # as far as it is known
            raise BadChoice(
                f"fit={fit!r}: this network's transform is not fovea's own, so how pictures come in is up to it; give "
                "fovea.wrap a transform that pads, or fovea.pictures.transforms.Prepare"
            )
        if fit is None and (self.fit or windowed):
            return self
        if fit is None:
            fit = "crop" if trained.crop is None else FIT if FIT != "whole" or self.step() else "squash"
        wanted = trained
        if fit != "crop":
            wanted = replace(trained, crop=None, whole=fit == "whole", step=self.step() if fit == "whole" else 0)
        if wanted == self.transform:
            return self if self.fit else replace(self, fit=fit)
        if windowed:
            why = "and takes pictures as it was trained; leave the fit out"
            raise BadChoice(f"fit={fit!r}: {self.name or 'this network'} has windows of its own, {why}")
        return replace(self, transform=wanted, trained=trained, fit=fit, _placements={})

    def step(self) -> int:
        """By how many pixels the sides of its input may differ from its own, found by running it; 0: not at all."""
        if not isinstance(self.transform, Prepare) or any(map(self.can, GRIDDED)):
            return 0
        key = (self.transform.size, *map(id, self.parts))  # a replaced layer makes another network
        if key not in self._steps:
            found = next((step for step in STEPS if self._takes(step)), 0)
            self._steps.clear()
            self._steps[key] = found
        return self._steps[key]

    def _takes(self, step: int) -> bool:
        """Whether it gives as many numbers for an input that is a step lower and a step wider."""
        assert isinstance(self.transform, Prepare)
        (height, width), channels = self.transform.size, len(self.transform.mean)
        if 4 * step > min(height, width):
            return False
        try:
            with torch.no_grad():
                other = self(torch.zeros(1, channels, height - step, width + step))
                labeled = other.shape == (1, len(self.labels or ()))
                same = labeled or other.shape == self(torch.zeros(1, channels, height, width)).shape
        except Exception:  # whatever its layers say of a size that they were not made for
            return False
        return same and bool(other.isfinite().all())

    def of_one_size(self) -> "Network":
        """The same network where all inputs must be alike, as those of a pair: padded where pictures are whole."""
        if not isinstance(self.transform, Prepare) or not self.transform.step:
            return self
        return replace(self, transform=replace(self.transform, step=0), _placements={})

    def squashed(self) -> "Network":
        """The same network, pictures squashed whole into the input instead of cropped (the localization protocol)."""
        return self.fitted("squash")

    def save(self, path: str | Path, half: bool = False) -> None:
        """Weights as safetensors, with the network's name, labels and temperature, so that `fovea.load(path)` needs
        nothing else. `half` keeps floats as fp16, in half the space. The file is whole or not there at all."""
        write_weights(Path(path), self.module, self.metadata(), half)

    def metadata(self) -> dict[str, str]:
        """What its weights file says of it, with pictures taken as it was trained; BadNetwork where it has no name to
        be saved under."""
        origin = self.origin or Origin(self.name)
        if not origin.name:
            raise BadNetwork("only a network made by fovea.load has a name to save under; save its state_dict yourself")
        about = {"fovea.network": origin.name, "fovea.labels": json.dumps(self.labels)}
        if self.name not in ("", origin.name):
            about["fovea.name"] = plain(self.name)
        if origin.options:
            try:
                about["fovea.options"] = json.dumps(dict(origin.options), allow_nan=False)
            except (TypeError, ValueError) as error:
                raise BadNetwork(f"only a network whose options are numbers and texts is saved: {error}") from None
        trained = self.trained or self.transform
        if isinstance(trained, Prepare):
            shape = {key: value for key, value in asdict(trained).items() if key != "step"}
            about["fovea.transform"] = json.dumps(shape)
        if self.temperature is not None:
            about["fovea.temperature"] = json.dumps(self.temperature)
        return about


class _Trunk(nn.Module):
    """What runs before the head of a timm network."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.module.forward_features(x)  # type: ignore[operator]


def wrap(
    module: nn.Module,
    transform: Any = None,
    labels: Sequence[str] | int | None = None,
    layer: str | nn.Module | None = None,
    output: Callable[[Any], Tensor] | None = None,
    *,
    embedding: bool = False,
    tokenizer: Any = None,
) -> Network:
    """Any module as a network.

    `transform` takes a PIL picture to a C,H,W tensor; a processor of transformers, and torchvision's weights with their
    classes, say it as well. Models of transformers, CLIP and its like (with a `tokenizer`, where no processor has it),
    segmentation networks and detectors of torchvision are known, and what they need is filled in (docs/networks.md).

    `labels` are the class names, or their number where they have no names. Without labels a module that ends in a
    linear layer is taken for a classifier, and its classes are numbers; `embedding` says that it is none, and that what
    is explained by default is its whole output. `output` picks the tensor to explain when the module returns a tuple,
    a dict or an object."""
    if not isinstance(module, nn.Module):
        what = "program.module()" if type(module).__name__ == "ExportedProgram" else "a torch.nn.Module"
        raise BadChoice(f"fovea.wrap takes {what}; got {type(module).__name__}")
    processor, (transform, known) = transform, transform_of(transform)
    if transform is not None and not callable(transform):
        kind = type(transform).__name__
        raise BadChoice(f"transform must be callable (a PIL picture in, a C,H,W tensor out); got {kind}")
    demand_kinds(wrap, locals(), but="labels")
    if embedding and labels is not None:
        raise BadChoice("an embedding has no classes: give labels= or embedding=True, not both")
    names = None if labels is None else _names(labels)
    tokenizer = tokenizer if tokenizer is not None else getattr(processor, "tokenizer", None)
    abilities = frozenset({"embedding"} if embedding else ())
    names = names if embedding or names is not None else known
    made = adapted(Adapted(checked(module), transform, names, layer, output, abilities, tokenizer))
    return Network(
        made.module,
        made.transform,
        None if embedding else made.labels,
        made.layer,
        "",
        made.output,
        abilities=made.abilities,
        asked=made.asked,
        fit="given" if transform is not None and transform is processor else "",
    )


def _names(labels: Any) -> tuple[str, ...]:
    """The labels of classes, given as texts or as their number."""
    if isinstance(labels, Integral) and not isinstance(labels, bool):
        within("the number of labels", int(labels), 1, MOST_LABELS)
        return tuple(map(str, range(int(labels))))
    unordered = isinstance(labels, (str, bytes, Set, Mapping)) or not isinstance(labels, Iterable)
    names = () if unordered else tuple(labels)
    if not names or not all(isinstance(name, str) for name in names):
        raise BadChoice(f"labels are the names of classes, a list of texts, or their number; got {shown(labels)}")
    return tuple(map(str, names))


def reading_of(network: "Network") -> Reading:
    if not isinstance(network.transform, Reading):
        raise BadChoice(f"{network.name or 'the network'} reads no text; load one that does, such as anchornet_text-mr")
    return network.transform
