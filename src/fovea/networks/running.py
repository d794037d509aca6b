"""A module that can be asked: its inputs made, its output read, and itself left as it was found."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from PIL import Image
from torch import Tensor, nn

from fovea.basics import BadChoice, BadNetwork, Entry, Registry, nearest, shown, spelled_device
from fovea.data import Reading
from fovea.networks.adapters import Asked
from fovea.networks.checking import refuse_tensor, refusing
from fovea.networks.names import class_index
from fovea.networks.threads import Parts, alone, hooked, in_eval, owned, plain, usual_threads
from fovea.pictures import Placement, Prepare, Transform, placement_of

Layers = Sequence[nn.Module]
FEW, LISTED = 1000, 10  # classes: fewer are said, and so many by name
ABILITIES = {
    "branches": "its branches' cells see known patches: it localizes by its own evidence",
    "glimpses": "it walks through a picture and reads a few glimpses",
    "steps": "its walk can end after any glimpse: when it is sure, or when a budget is spent",
    "controls": "it can go to places that it has not learned: random ones, or the middle",
    "streams": "it looks at a picture as a whole and at patches of it, in steps",
    "prototypes": "it compares cells with prototypes",
    "frames": "it takes clips, N,T,C,H,W",
    "embedding": "its output is a vector to compare, without classes",
    "several": "its classes do not exclude each other: each has a probability by itself",
    "pixels": "it tells the class of every pixel; a class's score is its mean",
    "complement": "a second classifier sees what the first does not rely on",
    "texts": "it reads texts",
    "spans": "its cells see known spans of words",
    "sounds": "it hears sounds",
}


@dataclass(frozen=True)
class Origin:
    """What builds the network again: a name that `fovea.load` knows, and its options."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(eq=False, repr=False)
class Runnable:
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
    asked: Asked | None = None  # other targets than classes, such as texts
    fit: str = ""  # of FITS, or "given": by the user's own transform; nothing where nobody has said
    trained: Transform | None = None  # as it was before another fit was asked for
    trained_on: str | None = None  # data, by its card ("" where it has none); None where no file says what it is for
    chosen_on: str | None = None  # what its settings were chosen on, by its card
    temperature: float | None = None  # what its logits are divided by for probabilities; None: never calibrated
    records: bool | None = None  # its trunk's passes on a GPU, to play them again; None: those of small batches
    kept: dict[Any, Any] = field(default_factory=dict, repr=False)  # what completes its inputs, once made
    _cuts: dict[Any, Any] = field(default_factory=dict, repr=False)
    _placements: dict[tuple[int, int], tuple[Transform, Placement]] = field(default_factory=dict, repr=False)
    _classes: dict[Any, int | None] = field(default_factory=dict, repr=False)  # of one without labels, once it has run
    _steps: dict[Any, int] = field(default_factory=dict, repr=False)  # of its input's size, once it was tried
    _parts: Parts | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to another process: not what was worked out here, which it works out again."""
        fresh = ("kept", "_cuts", "_placements", "_classes", "_steps")
        return {**vars(self), **{name: {} for name in fresh}, "_parts": None}

    def __repr__(self) -> str:
        size = getattr(self.transform, "size", None)
        classes = "no labels" if self.labels is None else f"{len(self.labels)} classes"
        parts = [classes, *([f"{size[1]} x {size[0]} pixels"] if size else []), str(self.device)]
        return f"<Network {self.name or type(self.module).__name__}: {', '.join(parts)}>"

    def __call__(self, batch: Any) -> Tensor:
        """The output, in eval mode, for a batch of tensors, or for texts, which are prepared first."""
        if isinstance(self.transform, Reading) and not isinstance(batch, Tensor):
            batch = self.transform.batch(batch)
        refuse_tensor(batch)
        batch = batch.to(self.device, self.dtype if batch.is_floating_point() else None)
        parts = self.parts
        with in_eval(parts), turn(self, parts):
            return self.read(self.answer(batch))

    def answer(self, batch: Tensor) -> Any:
        """What the module returns; what it `needs` beside pictures, as boxes of their patches, is found first."""
        needs = getattr(self.module, "needs", "")
        given = completion.get(needs)(self, batch) if needs else batch
        with refusing(self.module, batch, self.name):
            return self.module(given)

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
        told = f"the network returned a {type(out).__name__}, not a tensor"
        raise BadNetwork(f"{told}: say which part to explain, fovea.wrap(module, {how})")

    @property
    def parts(self) -> list[nn.Module]:
        """Every layer once; those of the last time, if none was replaced."""
        if self._parts is None or not self._parts.current(self.module):
            parts = layers(self.module)
            if not all("_modules" in vars(part) and "training" in vars(part) for part in parts):
                return parts  # a jit module has them elsewhere
            self._parts = Parts(parts)
        return self._parts

    @property
    def knows(self) -> str:
        """Of a network that was trained for few classes, which they are; it gives one of them to any picture."""
        if self.trained_on is None or not self.labels or len(self.labels) >= FEW or isinstance(self.transform, Reading):
            return ""
        names = [label.replace("_", " ").strip() for label in self.labels[:LISTED]]
        more = f" and {len(self.labels) - LISTED} more" if len(self.labels) > LISTED else ""
        data = f" of {self.trained_on}" if self.trained_on else ""
        knows = f"{self.name} knows only: {', '.join(names)}{more} ({len(self.labels)} classes{data})"
        return f"{knows}; anything else is taken for one of these, too"

    def settings(self, **asked: Any) -> dict[str, Any]:
        """What results say of the network, and how it was asked."""
        return {"net": self.name, **asked, **({"note": self.knows} if self.knows else {})}

    def can(self, ability: str) -> bool:
        """Whether the network was declared to do something that others do not: ABILITIES."""
        if not isinstance(ability, str) or ability not in ABILITIES:
            near = nearest(str(ability), ABILITIES)
            raise BadChoice(f"no ability {shown(ability)}{near} (there are: {', '.join(ABILITIES)})")
        return ability in self.abilities or ability in getattr(self.module, "abilities", ())

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.module.parameters()), torch.device("cpu"))

    @property
    def dtype(self) -> torch.dtype:
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), torch.float32)

    def prepare(self, image: Image.Image, raw: bool = False) -> tuple[Tensor, Placement]:
        """A picture as the network takes it (C,H,W), and where its pixels went; `raw`: as bytes that its batch will be
        normalized from, where the transform is ours."""
        if self.transform is None:
            mend = "give fovea.wrap(module, transform=...)"
            raise BadChoice(f"this network has no transform, so it takes tensors only; {mend}")
        takes = "reads text" if isinstance(self.transform, Reading) else "hears sounds" if self.can("sounds") else None
        if takes is not None:
            raise BadChoice(f"{self.name or 'this network'} {takes}, not pictures; fovea.load another for pictures")
        transform, placement = self._placements.get(image.size, (None, None))
        if placement is None or transform is not self.transform:  # several threads may prepare pictures at once
            if len(self._placements) > 4096:
                self._placements.clear()
            placement = placement_of(self.transform, *image.size)
            self._placements[image.size] = self.transform, placement
        ours = raw and isinstance(self.transform, Prepare)
        return self.transform.pixels(image) if ours else self.transform(image), placement  # type: ignore

    def label(self, index: int) -> str:
        return self.labels[index] if self.labels is not None and index < len(self.labels) else str(index)

    def index(self, label: str | int, classes: int | None = None) -> int:
        """The class that a name or a number stands for."""
        return class_index(label, self.labels, classes)


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
def as_found(network: Runnable) -> Iterator[list[nn.Module]]:
    """Explain in eval mode with gradients allowed; whatever happens, modes and random numbers are as before after.
    Gives the network's submodules, since they were counted."""
    with switched(network) as parts, turn(network, parts):
        yield parts


@contextmanager
def switched(network: Runnable) -> Iterator[list[nn.Module]]:
    """The network in eval mode with gradients allowed, for all threads that use it."""
    parts = network.parts
    with in_eval(parts), torch.inference_mode(False), torch.enable_grad():
        yield parts


@contextmanager
def turn(network: Runnable, parts: Layers, quiet: bool = False, given: Iterable[Any] = ()) -> Iterator[None]:
    """Beside other threads where nothing is kept between calls, which is known of plain layers, and of what else is
    `quiet`; otherwise when the others are done. `given` are functions of the user's that are called as well."""
    # cuDNN refuses a backward through a recurrent layer in eval mode, and is switched off for all threads
    recurrent = network.device.type == "cuda" and any(issubclass(kind, nn.RNNBase) for kind in set(map(type, parts)))
    compiled = is_compiled(parts)
    if not (recurrent or compiled) and keeps_nothing(parts, quiet, given):
        yield
        return
    with (
        alone(network.device),
        torch.backends.cudnn.flags(enabled=False) if recurrent else nullcontext(),
        torch.compiler.set_stance("force_eager") if compiled else nullcontext(),
    ):
        yield


def keeps_nothing(parts: Sequence[nn.Module], quiet: bool = False, given: Iterable[Any] = ()) -> bool:
    """Whether any number of threads may run these layers and functions at once."""
    return plain(given) and not hooked(parts) and (quiet or plain(set(map(type, parts))))


def at_once(network: Runnable, given: Iterable[Any] = ()) -> int:
    """How many threads may run a network on a CPU at a time, each by itself, so that none waits for another at every
    layer; 0 where it is run by all of torch's threads, one batch after the other."""
    parts = network.parts
    by_itself = network.device.type == "cpu" and not torch.is_autocast_enabled("cpu")  # which is a thread's own
    return usual_threads() if by_itself and not is_compiled(parts) and keeps_nothing(parts, given=given) else 0


def is_compiled(parts: Sequence[nn.Module]) -> bool:
    """Whether some part was compiled, which then runs as it was written. The compiler is not imported for it."""
    return "torch._dynamo" in sys.modules and (
        "OptimizedModule" in {kind.__name__ for kind in set(map(type, parts))}
        or any([own.get("_compiled_call_impl") for own in owned(parts)])
    )


Complete = Callable[[Any, "Tensor"], Any]  # a network and a batch to all that its module takes


def _checked(entry: Entry, thing: Any) -> Complete:
    if not callable(thing):
        raise BadNetwork(f"completion {entry.name}: give a function of a network and a batch; got {thing!r}")
    return thing


completion: Registry[Complete] = Registry("completion", ("fovea.streams.taken",), _checked)


N = TypeVar("N", bound=Runnable)


def device_of(device: str | torch.device) -> torch.device:
    """A device that there is; "auto" is a GPU where torch can use one."""
    text = spelled_device(device)
    if text == "auto":
        return torch.device("cuda" if _count("cuda") else "cpu")
    wanted = torch.device(text)
    count = 1 if wanted.type == "cpu" else _count(wanted.type)
    if not count:
        mend = "leave the device out, or name cpu"
        raise BadChoice(f"device {text!r}: there is no GPU that torch can use here in this way; {mend}")
    if (wanted.index or 0) >= count:
        last = f" to {wanted.type}:{count - 1}" if count > 1 else ""
        raise BadChoice(f"device {text!r}: there is no such number here; name {wanted.type}:0{last}")
    return wanted


def _count(kind: str) -> int:
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    there = torch.cuda if kind == "cuda" else torch.xpu
    return there.device_count() if there.is_available() else 0


def placed(network: N, device: str | torch.device) -> N:
    """The network on a device, itself: it is not copied."""
    network.module.to(device_of(device))
    return network
