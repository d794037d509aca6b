"""Models of transformers, from a folder of theirs (config.json, model.safetensors) or, by name, from the hub.

A folder is not trusted: weights are safetensors, no code of the folder's runs, nothing is fetched for it, and no file
elsewhere is opened."""

import json
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fovea.basics import BadChoice, BadNetwork, printable, uncollected
from fovea.networks.building import MOST, SPARE, Budget
from fovea.networks.hubs import hub
from fovea.networks.names import TRANSFORMERS
from fovea.networks.network import Network, wrap
from fovea.networks.running import Origin

LARGEST = 2**26  # bytes of a JSON file, as a tokenizer's
FORBIDDEN = {
    "auto_map": "it names code of its own",
    "quantization_config": "its weights are quantized",
    "use_pretrained_backbone": "its backbone would be fetched",
    "use_timm_backbone": "its backbone is another library's",
    "backbone": "its backbone would be fetched",
}
ELSEWHERE = re.compile(r"(vocab|merges|tokenizer|spm|model)_file")
KERNEL = re.compile(r"_?attn_implementation(_internal)?|experts_implementation")


def load_folder(name: str, pretrained: bool = True) -> Network:
    """A model of transformers with its processor: `FOLDER`, or `transformers/NAME` on the hub."""
    if find_spec("transformers") is None:
        raise BadNetwork(f"{name} is a model of transformers, which is not installed: pip install transformers")
    folder = Path(name) if Path(name).is_dir() else None
    where = name if folder is not None else name.removeprefix(TRANSFORMERS)
    budget = MOST if folder is None else _checked(folder, pretrained)
    with hub(name, offline=folder is not None), Budget(name, budget), uncollected():
        try:
            model, processor = _loaded(where, pretrained, folder is not None)
        except (BadNetwork, MemoryError):
            raise
        except Exception as error:  # whatever transformers says
            if folder is None and isinstance(error, OSError):
                raise
            said = printable(" ".join(str(error).split()))[:300]
            raise BadNetwork(f"{name} cannot be loaded as a model of transformers: {said}") from None
    network = wrap(model.eval(), processor)
    network.name, network.origin = folder.resolve().name if folder is not None else name, Origin("")  # theirs to save
    network.trained_on = "" if pretrained else None
    return network


def _loaded(where: str, pretrained: bool, local: bool) -> tuple[Any, Any]:
    import transformers as library

    transformers: Any = library

    how: dict[str, Any] = {"local_files_only": local, "trust_remote_code": False}
    config = transformers.AutoConfig.from_pretrained(where, **how)
    kind: Any = getattr(transformers, (config.architectures or [""])[0], None)
    if not hasattr(kind, "_from_config"):
        raise BadNetwork(f"{where} does not say which model of transformers it is (architectures in its config.json)")
    if pretrained:
        with _silent(transformers.utils.logging):
            safe = {"use_safetensors": True, "local_files_only": local, "attn_implementation": "eager"}
            model, about = kind.from_pretrained(where, config=config, output_loading_info=True, **safe)
        if missing := sorted(about["missing_keys"]):
            said = f"{len(missing)} of its tensors are not in its file, and random: {', '.join(missing[:3])}"
            warnings.warn(f"{where}: {said}", stacklevel=5)
    else:
        model = kind._from_config(config, attn_implementation="eager")
    for auto in (transformers.AutoProcessor, transformers.AutoImageProcessor):
        try:
            found = auto.from_pretrained(where, **how)
        except (OSError, ValueError):  # none is there: the config says what is usual
            continue
        if hasattr(found, "image_processor") or hasattr(found, "preprocess"):
            return model, found
    return model, None


@contextmanager
def _silent(logging: Any) -> Iterator[None]:
    """Without the bar and the report of transformers."""
    bar, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bar:
            logging.enable_progress_bar()


def _checked(folder: Path, pretrained: bool) -> int:
    """Refuses what would run code, fetch or read elsewhere; how many numbers the model may have."""
    weights = [path for path in folder.iterdir() if path.suffix == ".safetensors"]
    if pretrained and not weights:
        why = "(pytorch_model.bin) could run code, so it is refused: model.save_pretrained(FOLDER) writes safetensors"
        raise BadNetwork(f"{folder} holds no weights as safetensors; a pickle {why}")
    if (folder / "adapter_config.json").exists():
        raise BadNetwork(f"{folder} is refused: its weights are an adapter of another model, which would be fetched")
    for path in sorted(folder.glob("*.json")):
        for key, value in _entries(_read(path)):
            if why := _refusal(key, value, path.name.endswith(".index.json")):
                raise BadNetwork(f"{path} is refused: {why} ({printable(f'{key} = {value}')[:80]})")
    size = sum(path.stat().st_size for path in weights)
    return min(MOST, SPARE + 2 * size) if pretrained else MOST


def _refusal(key: str, value: Any, names_files: bool) -> str:
    """Why an entry of a JSON file is refused; nothing where it is not."""
    place = isinstance(value, str) and ("/" in value or "\\" in value)
    if place and (names_files or ELSEWHERE.fullmatch(key)):
        return "it names a file elsewhere"
    if place and KERNEL.fullmatch(key):
        return "it names code to fetch"
    return FORBIDDEN.get(key, "") if value else ""


def _read(path: Path) -> Any:
    if path.stat().st_size > LARGEST:
        raise BadNetwork(f"{path} is refused: a file of {path.stat().st_size:,} bytes says no more than a model needs")
    try:
        return json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        raise BadNetwork(f"{path} is damaged, or no JSON: get the folder anew from where it came from") from None


def _entries(value: Any) -> Iterator[tuple[str, Any]]:
    """Every key of whatever depth with its value."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield from value.items()
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def refuse_more(name: str, weights: Any, options: Any) -> None:
    if weights is not None or options:
        raise BadChoice(f"{name} is a model of transformers, whose weights and options are its own: leave them out")
