"""Weights in files: read, written, told apart, and put into modules."""

import hashlib
import pickle
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice, BadNetwork, nearest

FILES = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")


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
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    try:
        save_file(tensors, str(part), {**about, **({"fovea.borrowed": hash_of(another)} if borrows else {})})
    except SafetensorError as error:  # a full disk, for one
        part.unlink(missing_ok=True)
        raise OSError(f"the weights could not be written to {path}: {error}") from None
    part.replace(path)


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


def read_weights(path: Path) -> dict[str, Tensor]:
    """A state dict from safetensors, or from a pickle that holds tensors and no code."""
    if not path.is_file():
        raise no_file(path)
    if path.suffix.lower() == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(str(path))
        except (SafetensorError, OSError) as error:
            raise BadNetwork(f"{path} is not a whole safetensors file: {error}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the pickle's protocol: what matters is said below
            state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        asked = re.search(r"GLOBAL:? (\S+)", str(error))
        what = f"a pickle that calls {asked[1]}, more" if asked else "no weights file, or a pickle with more"
        raise BadNetwork(
            f"{path} is {what} than tensors, which could run code, so it is refused; "
            "save the state_dict as safetensors instead"
        ) from None
    except Exception as error:  # torch has no error of its own for a damaged file
        said = str(error).partition(". ")[0] if isinstance(error, RuntimeError) else "it is damaged or cut short"
        raise BadNetwork(f"{path} cannot be read as weights: {said}") from None
    while isinstance(state, dict) and isinstance(state.get("state_dict", state.get("model")), dict):
        state = state.get("state_dict", state.get("model"))
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise BadNetwork(f"{path} holds no state dict (names to tensors)")
    return state


def no_file(path: Path) -> BadChoice:
    neighbors = [p.name for p in path.parent.iterdir()] if path.parent.is_dir() else []
    return BadChoice(f"no weights file {str(path)!r}{nearest(path.name, neighbors)}")


def facts(path: Path) -> dict[str, str]:
    """What a weights file says about itself; only a safetensors file says anything."""
    from safetensors import SafetensorError, safe_open

    if path.suffix.lower() != ".safetensors":
        return {}
    try:
        with safe_open(str(path), framework="pt") as file:
            return dict(file.metadata() or {})
    except (SafetensorError, OSError) as error:
        raise BadNetwork(f"{path} is not a whole safetensors file: {error}") from None


def put(module: nn.Module, state: dict[str, Tensor], path: Path) -> None:
    """The weights of a file into the module that they are for."""
    another, _ = borrowed_of(module, module.state_dict())
    borrowed = facts(path).get("fovea.borrowed") if another else None
    if borrowed is not None:  # what it borrows is not in the file
        if borrowed != getattr(module, "lent", ""):
            raise BadNetwork(
                f"{path} was trained over features that have changed since: get the weights that they had then, or "
                "train it anew"
            )
        state = another | state
    try:
        module.load_state_dict(of_extractor(state, module))
    except RuntimeError as error:
        raise BadNetwork(f"{path} does not fit {type(module).__name__}: {str(error)[:400]}") from None


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
