"""A network: an nn.Module with its transform, its labels, and where it may be cut."""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image
from torch import Tensor, nn

from fovea.basics.errors import BadChoice, BadNetwork, nearest
from fovea.data.texts import Reading
from fovea.pictures import Given, gather
from fovea.pictures.placement import Placement
from fovea.pictures.transforms import Prepare, Transform, placement_of

if TYPE_CHECKING:
    from fovea.networks.cutting import Cut
    from fovea.networks.geometry import Geometry


ABILITIES = {
    "branches": "its branches' cells see known patches: it localizes by its own evidence",
    "glimpses": "it walks through a picture and reads a few glimpses",
    "streams": "it looks at a picture as a whole and at patches of it, in steps",
    "prototypes": "it compares cells with prototypes",
    "frames": "it takes clips, N,T,C,H,W",
    "embedding": "its output is a vector to compare, without classes",
    "complement": "a second classifier sees what the first does not rely on",
    "texts": "it reads texts",
    "spans": "its cells see known spans of words",
    "sounds": "it hears sounds",
}


FITS = {
    "crop": "as the network was trained: usually the middle of the picture",
    "squash": "the whole picture, squashed into the input",
    "whole": "the whole picture in its proportions, padded with the mean color",
}


@dataclass(frozen=True)
class Origin:
    """What builds the network again: a name that `fovea.load` knows, and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Network:
    """`.module` with `.transform` (picture to tensor, or text to words' numbers) and `.labels`; calling it gives the
    output of a batch."""

    module: nn.Module
    transform: Transform | None = None
    labels: tuple[str, ...] | None = None
    layer: str | nn.Module | None = None
    name: str = ""
    output: Callable[[Any], Tensor] | None = None
    origin: Origin | None = None
    abilities: frozenset[str] = frozenset()  # declared beside those of the module itself
    _cuts: dict[Any, "Cut"] = field(default_factory=dict, repr=False)
    _placements: dict[tuple[int, int, int], Placement] = field(default_factory=dict, repr=False)
    _classes: dict[Any, int | None] = field(default_factory=dict, repr=False)  # of one without labels, once it has run

    def __repr__(self) -> str:
        size = getattr(self.transform, "size", None)
        classes = "no labels" if self.labels is None else f"{len(self.labels)} classes"
        parts = [classes, *([f"{size[1]} x {size[0]} pixels"] if size else []), str(self.device)]
        return f"<Network {self.name or type(self.module).__name__}: {', '.join(parts)}>"

    def __call__(self, batch: "Tensor | Given | Iterable[Given]") -> Tensor:
        """The output for a batch of tensors, or for pictures or texts, which are prepared first."""
        if isinstance(self.transform, Reading) and not isinstance(batch, Tensor):
            batch = self.transform.batch(batch).to(self.device)
        elif not isinstance(batch, Tensor):
            ready = [self.prepare(picture.read())[0] for picture in gather(batch)]
            batch = torch.stack(ready).to(self.device, self.dtype)
        return self.read(self.module(batch))

    def read(self, out: Any) -> Tensor:
        """The one tensor to explain among what the module returned: its `logits`, unless `output` picks another."""
        out = getattr(out, "logits", out) if self.output is None else self.output(out)
        if isinstance(out, Tensor):
            output = out.reshape(-1, 1) if out.ndim < 2 else out  # one number per picture
            if self.labels is not None and output.ndim == 2 and output.shape[1] != len(self.labels):
                raise BadNetwork(
                    f"the network gives {output.shape[1]} numbers per picture and has {len(self.labels)} labels: "
                    "name as many classes as it has outputs, fovea.wrap(module, labels=[...])"
                )
            return output
        if isinstance(out, dict):
            how = f'output=lambda out: out["{next(iter(out), "logits")}"]'
        elif isinstance(out, (tuple, list)):
            how = "output=lambda out: out[0]"
        else:
            how = "output=lambda out: out.scores"
        raise BadNetwork(
            f"the network returned a {type(out).__name__}, not a tensor: say which part to explain, "
            f"fovea.wrap(module, {how})"
        )

    def can(self, ability: str) -> bool:
        """Whether the network was declared to do something that others do not: ABILITIES."""
        if ability not in ABILITIES:
            raise BadChoice(f"no ability {ability!r}{nearest(ability, ABILITIES)} (there are: {', '.join(ABILITIES)})")
        return ability in self.abilities or ability in getattr(self.module, "abilities", ())

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.module.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), torch.float32)

    def prepare(self, image: Image.Image) -> tuple[Tensor, Placement]:
        """A picture as the network takes it (C,H,W), and where its pixels went."""
        if self.transform is None:
            raise BadChoice(
                "this network has no transform, so it takes tensors only; "
                "give fovea.wrap(module, transform=...) to explain pictures"
            )
        if isinstance(self.transform, Reading):
            raise BadChoice(f"{self.name or 'this network'} reads text, not pictures; fovea.load another for pictures")
        key = (id(self.transform), *image.size)
        placement = self._placements.get(key)
        if placement is None:  # several threads may prepare pictures at once
            if len(self._placements) > 4096:
                self._placements.clear()
            placement = self._placements[key] = placement_of(self.transform, *image.size)
        return self.transform(image), placement

    def label(self, index: int) -> str:
        return self.labels[index] if self.labels is not None and index < len(self.labels) else str(index)

    def index(self, label: str | int, classes: int | None = None) -> int:
        """The class that a name or a number stands for."""
        count = classes if classes is not None else len(self.labels or ())
        named = isinstance(label, str) and self.labels is not None and label in self.labels
        if isinstance(label, int) or (not named and re.fullmatch(r"-?\d+", label)):
            number = int(label)
            if not 0 <= number < count:
                raise BadChoice(f"class {number} does not exist: the network has classes 0 to {count - 1}")
            return number
        if self.labels is None:
            raise BadChoice(f"class {label!r}: this network has no labels; give a class index, or wrap it with labels=")
        hits = [i for i, name in enumerate(self.labels) if name.lower() == label.lower()]
        if not hits:
            raise BadChoice(f"no class {label!r} among the network's {len(self.labels)}{nearest(label, self.labels)}")
        if len(hits) > 1:
            raise BadChoice(f"{label!r} names classes {' and '.join(map(str, hits))}: give the index")
        if hits[0] >= count:
            raise BadChoice(f"{label!r} is label {hits[0]}, but the network has only {count} outputs")
        return hits[0]

    def geometry(self, layer: str | None = None, branch: int | None = None) -> "Geometry":
        """What cells can see of the network's input: those of a layer, or of the map that `explain` looks at.

        Of a network with branches it is the evidence of the narrowest one, or of the one with this number (0, 1, 2).
        """
        from fovea.networks import geometry
        from fovea.networks.cutting import cut

        inputs = geometry.noise_for(self)
        if layer is None and self._has_branches(inputs):
            found = geometry.of_tensors(self, inputs, lambda out: [one.evidence for one in out.branches])
            if branch is not None and branch not in range(len(found)):
                raise BadChoice(f"the network has the branches 0 to {len(found) - 1}; got {branch}")
            return found[branch or 0]
        if branch is not None:
            raise BadChoice(f"{self.name or 'this network'} has no branches: name a layer")
        if layer is None:
            with as_found(self) as parts:
                layer = cut(self, inputs, None, parts).layer
        if layer == "forward_features":  # timm's own trunk, which is no layer
            return geometry.of_tensors(wrap(_Trunk(self.module)), inputs, lambda out: [out])[0]
        return geometry.of(self, layer)

    def _has_branches(self, inputs: Tensor) -> bool:
        from fovea.models.anchoring import AnchorNetOutput

        with as_found(self), torch.no_grad():
            return isinstance(self.module(inputs), AnchorNetOutput)

    def region(self, cell: Sequence[int] | int, layer: str | None = None, branch: int | None = None) -> tuple[int, ...]:
        """The pixels of the network's input that a cell (row, column) can see: x0 y0 x1 y1, half open."""
        return self.geometry(layer, branch).region(cell)

    def fitted(self, fit: str) -> "Network":
        """The same network with pictures of other proportions than its input's taken otherwise: FITS."""
        if fit not in FITS:
            raise BadChoice(f"no fit {fit!r}{nearest(fit, FITS)} (there are: {', '.join(FITS)})")
        if fit == "crop" or (fit == "squash" and not isinstance(self.transform, Prepare)):
            return self
        if not isinstance(self.transform, Prepare):
            raise BadChoice(
                f"fit={fit!r}: this network's transform is not fovea's own, so how pictures come in is up to it; give "
                "fovea.wrap a transform that pads, or fovea.pictures.transforms.Prepare"
            )
        return replace(self, transform=replace(self.transform, crop=None, whole=fit == "whole"), _placements={})

    def squashed(self) -> "Network":
        """The same network, pictures squashed whole into the input instead of cropped (the localization protocol)."""
        return self.fitted("squash")

    def save(self, path: str | Path, half: bool = False) -> None:
        """Weights as safetensors, with the network's name and labels, so that `fovea.load(path)` needs nothing else.

        `half` keeps floats as fp16, in half the space. The file is whole or not there at all.
        """
        from safetensors import SafetensorError
        from safetensors.torch import save_file

        origin = self.origin or Origin(self.name)
        if not origin.name:
            raise BadNetwork("only a network made by fovea.load has a name to save under; save its state_dict yourself")
        # cloned, since tied weights share their memory, which the format refuses
        tensors = {key: value.detach().cpu().contiguous().clone() for key, value in self.module.state_dict().items()}
        another, own = borrowed_of(self.module, tensors)
        borrows = bool(another) and hash_of(another) == getattr(self.module, "lent", "")
        tensors = own if borrows else tensors  # what has changed since it was borrowed is its own
        if half:
            tensors = {key: fit_for_half(value) for key, value in tensors.items()}
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        about = {"fovea.network": origin.name, "fovea.labels": json.dumps(self.labels)}
        if borrows:
            about["fovea.borrowed"] = hash_of(another)
        if origin.options:
            about["fovea.options"] = json.dumps(dict(origin.options))
        if isinstance(self.transform, Prepare):
            about["fovea.transform"] = json.dumps(asdict(self.transform))
        part = Path(path).with_name(Path(path).name + ".part")
        try:
            save_file(tensors, str(part), metadata=about)
        except SafetensorError as error:  # a full disk, for one
            part.unlink(missing_ok=True)
            raise OSError(f"the weights could not be written to {path}: {error}") from None
        part.replace(path)


class _Trunk(nn.Module):
    """What runs before the head of a timm network."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.module.forward_features(x)  # type: ignore[operator]
        return features


def borrowed_of(module: nn.Module, state: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The weights of a module that are another network's and stay so, and its own."""
    prefix = getattr(module, "borrowed", "")
    another = {key: value for key, value in state.items() if prefix and key.startswith(prefix)}
    return another, {key: value for key, value in state.items() if key not in another}


def hash_of(state: Mapping[str, Tensor]) -> str:
    """The same for the same weights, bit by bit, whatever file they are in."""
    digest = hashlib.sha256()
    for name in sorted(state):
        value = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.view(-1).view(torch.uint8).numpy().tobytes() if value.numel() else b"")
    return digest.hexdigest()


def fit_for_half(value: Tensor) -> Tensor:
    """Floats as fp16, except where that would not hold them: too large, or variances too small to keep their digits."""
    if not value.is_floating_point() or not value.numel():
        return value
    limits = torch.finfo(torch.float16)
    least, most = float(value.min()), float(value.abs().max())
    return value if most > limits.max or 0 < least < limits.tiny else value.half()


def wrap(
    module: nn.Module,
    transform: Transform | None = None,
    labels: Sequence[str] | int | None = None,
    layer: str | nn.Module | None = None,
    output: Callable[[Any], Tensor] | None = None,
    *,
    embedding: bool = False,
) -> Network:
    """Any module as a network.

    `labels` are the class names, or their number where they have no names. Without labels a module that ends in a
    linear layer is taken for a classifier, and its classes are numbers; `embedding` says that it is none, and that what
    is explained by default is its whole output. `output` picks the tensor to explain when the module returns a tuple,
    a dict or an object.
    """
    if not isinstance(module, nn.Module):
        raise BadChoice(f"fovea.wrap takes a torch.nn.Module; got {type(module).__name__}")
    if transform is not None and not callable(transform):
        raise BadChoice(
            f"transform must be callable (a PIL picture in, a C,H,W tensor out); got {type(transform).__name__}"
        )
    if embedding and labels is not None:
        raise BadChoice("an embedding has no classes: give labels= or embedding=True, not both")
    names = tuple(map(str, range(labels))) if isinstance(labels, int) else None if labels is None else tuple(labels)
    abilities = frozenset({"embedding"} if embedding else ())
    return Network(module, transform, names, layer, "", output, abilities=abilities)


def layers(module: nn.Module) -> list[nn.Module]:
    """Every submodule once, as `module.modules()` but several times quicker, which counts for one small picture."""
    found: dict[int, nn.Module] = {id(module): module}
    waiting = [module]
    while waiting:
        for child in waiting.pop()._modules.values():
            if child is not None and id(child) not in found:
                found[id(child)] = child
                waiting.append(child)
    return list(found.values())


@contextmanager
def as_found(network: Network) -> Iterator[list[nn.Module]]:
    """Explain in eval mode with gradients allowed; whatever happens, modes and random numbers are as before after.

    Gives the network's submodules, since they were counted.
    """
    parts = layers(network.module)
    in_training = [module for module in parts if module.training]
    rng = torch.get_rng_state()
    on_cuda = network.device.type == "cuda"
    cuda_rng = torch.cuda.get_rng_state(network.device) if on_cuda else None
    try:
        for module in in_training:
            module.training = False
        # cuDNN refuses a backward through a recurrent layer in eval mode
        with torch.inference_mode(False), torch.enable_grad(), _without_cudnn_rnn(parts, on_cuda):
            yield parts
    finally:
        for module in in_training:
            module.training = True
        torch.set_rng_state(rng)
        if cuda_rng is not None:
            torch.cuda.set_rng_state(cuda_rng, network.device)


@contextmanager
def _without_cudnn_rnn(parts: list[nn.Module], on_cuda: bool) -> Iterator[None]:
    if on_cuda and any(isinstance(module, nn.RNNBase) for module in parts):
        with torch.backends.cudnn.flags(enabled=False):
            yield
    else:
        yield


def reading_of(network: "Network") -> Reading:
    if not isinstance(network.transform, Reading):
        raise BadChoice(f"{network.name or 'the network'} reads no text; load one that does, such as anchornet_text-mr")
    return network.transform
