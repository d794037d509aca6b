"""Weights in files: read, written, told apart, and put into modules."""

import hashlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fovea.basics import BadNetwork, printable, whole
from fovea.networks.facts import LETTERS, MADE_ANEW, facts, named
from fovea.networks.names import no_file


def write_weights(path: Path, module: nn.Module, about: Mapping[str, str], half: bool) -> None:
    """A module's weights with what is told about them, whole or not at all; what it borrows is left out."""
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    # cloned, since tied weights share their memory, which the format refuses
    tensors = {key: value.detach().cpu().contiguous().clone() for key, value in module.state_dict().items()}
    another, rest = borrowed_of(module, tensors)
    borrows = bool(another) and hash_of(another) == getattr(module, "lent", "")
    tensors = rest if borrows else tensors  # what has changed since it was borrowed is the module's own
    if half:
        tensors = {key: fit_for_half(value) for key, value in tensors.items()}
    lent = {"fovea.borrowed": hash_of(another)} if borrows else {}
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole(path) as part:
        try:
            save_file(tensors, str(part), {**about, **lent, "fovea.sha256": hash_of(tensors)})
        except SafetensorError as error:  # a full disk, for one
            raise OSError(f"the weights could not be written to {path}: {error}") from None


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
        digest.update(value.view(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    return digest.hexdigest()


def fit_for_half(value: Tensor) -> Tensor:
    """Floats as fp16, except where that would not hold them: too large, or variances too small to keep their digits."""
    if not value.is_floating_point() or not value.numel():
        return value
    limits = torch.finfo(torch.float16)
    least, most = float(value.min()), float(value.abs().max())
    return value if most > limits.max or 0 < least < limits.tiny else value.half()


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict from safetensors, or from a pickle that holds tensors and no code."""
    if not path.is_file():
        raise no_file(path)
    state = _safetensors(path) if path.suffix.lower() == ".safetensors" else _pickled(path)
    strange = [name for name, value in state.items() if value.layout != torch.strided or value.is_quantized]
    if strange or any(value.device.type != "cpu" or value.is_complex() for value in state.values()):
        raise BadNetwork(f"{path} holds tensors that no network of fovea's has (sparse, quantized, complex or empty)")
    return state


def _safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors.torch import load_file

    told = facts(path).sha256
    try:
        with named(path) as name:
            state: dict[str, Tensor] = load_file(name)
    except Exception as error:  # safetensors', and torch's for what it does not know
        raise BadNetwork(f"{path} is not a whole safetensors file: {printable(str(error))[:LETTERS]}") from None
    if told is not None and told != hash_of(state):
        raise BadNetwork(f"{path} is damaged: its tensors are not those that were saved; {MADE_ANEW}")
    return state


def _pickled(path: Path) -> dict[str, Tensor]:
    try:
        if zipfile.is_zipfile(path):  # what torch saves is not compressed, so nothing in it is larger than the file
            with zipfile.ZipFile(path) as packed:
                unpacked = sum(member.file_size for member in packed.infolist())
            if unpacked > path.stat().st_size:
                raise BadNetwork(f"{path} would unpack to more than its size, as no weights file does; it is refused")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle's protocol: what matters is said below
            state: Any = torch.load(path, map_location="cpu", weights_only=True)
    except BadNetwork:
        raise
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL:? (\S+)", str(error))
        what = f"a pickle that calls {printable(asked[1])}, more" if asked else "no weights file, or a pickle with more"
        mend = "save the state_dict as safetensors instead"
        raise BadNetwork(f"{path} is {what} than tensors, which could run code, so it is refused; {mend}") from None
    except Exception as error:  # torch has no error of its own for a damaged file
        said = str(error).partition(". ")[0] if isinstance(error, RuntimeError) else "it is damaged or cut short"
        raise BadNetwork(f"{path} cannot be read as weights: {printable(said)[:LETTERS]}") from None
    for _ in range(3):  # as {"state_dict": {"model": …}}; one may hold itself
        inner = state.get("state_dict", state.get("model")) if isinstance(state, dict) else None
        state = inner if isinstance(inner, dict) else state
    if not isinstance(state, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in state.items()):
        raise BadNetwork(f"{path} holds no state dict (names to tensors)")
    return state


def put(module: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """The weights of a file into the module that they are for."""
    another, _ = borrowed_of(module, module.state_dict())
    borrowed = facts(path).borrowed if another else None
    if borrowed is not None:  # what it borrows is not in the file
        if borrowed != getattr(module, "lent", ""):
            mend = "get the weights that they had then, or train it anew"
            raise BadNetwork(f"{path} was trained over features that have changed since: {mend}")
        state = another | state
    fitted, its = of_extractor(state, module), module.state_dict()
    try:
        both = fitted.keys() & its.keys()
        if wrong := sorted(key for key in both if fitted[key].is_floating_point() != its[key].is_floating_point()):
            raise RuntimeError(f"{wrong[0]} is {fitted[wrong[0]].dtype}, not {its[wrong[0]].dtype}")
        module.load_state_dict(fitted)
    except RuntimeError as error:
        said = printable(" ".join(str(error).split()))[:400]
        raise BadNetwork(f"{path} does not fit {type(module).__name__}: {said}") from None


def of_extractor(state: dict[str, Tensor], module: nn.Module) -> dict[str, Tensor]:
    """A TNet's features as the weights of the network that they are of: its last layer, which TNet has not, is as the
    module has it, and its norms are those of the deepest level."""
    within, own = "extractor.module.", module.state_dict()
    found = {key.removeprefix(within): value for key, value in state.items() if key.startswith(within)}
    if not found or not set(found) <= set(own):
        return state
    for kept, packed in (("running_mean", "mean"), ("running_var", "var")):
        levels, start = state.get(f"extractor.statistics.{packed}"), 0
        if levels is not None:
            for key in [key for key in own if key.endswith(f".{kept}")]:  # in the order in which they were packed
                found[key] = levels[0, -1, start : start + len(own[key])]
                start += len(own[key])
    return own | found
