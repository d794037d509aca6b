"""What a weights file says about itself. None of it is trusted: it is checked before anything is built from it."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, TypeAdapter, ValidationError, model_validator

from fovea.basics import BadNetwork, Record, Text, nearest, printable

MADE_ANEW = "get it anew from where it came from, or save the network again (Network.save)"
PIXELS = 2**24  # of a network's input
NUMBER = 2**20  # no option is larger
WORDS = 2**20  # of a list, as a vocabulary
LETTERS = 200  # of a name or a word
TEMPERATURES = 0.01, 100.0  # of a calibrated network, at least and at most
SOURCE = re.compile(  # options that would say where weights, or anything else, comes from
    r"pretrained(_cfg\w*|_strict)?|checkpoint\w*|weights\w*|(\w+_)?(cache|hub)(_\w+)?|state_dict|"
    r"(?!drop_path$)(\w+_)?(path|dir|directory|folder|url|uri|file|filename)s?"
)
PATH = re.compile(r"[/~]|.*(://|\.\.|\\|[^ -\U0010ffff])", re.DOTALL)  # a place, or what no name holds

Parsed = BeforeValidator(json.loads)
Side = Annotated[int, Field(strict=True, ge=1, le=16384)]
Share = Annotated[float, Field(strict=True, ge=-1e6, le=1e6)]
Channels = Annotated[tuple[Share, ...], Field(min_length=1, max_length=3)]
Temperature = Annotated[float, Field(strict=True, ge=TEMPERATURES[0], le=TEMPERATURES[1])]
Label = Annotated[Text, AfterValidator(lambda label: _short(label, 1000))]
Name = Annotated[Text, AfterValidator(lambda name: _name(name))]
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


def _short(text: str, most: int) -> str:
    if len(text) > most:
        raise ValueError(f"a text of {len(text):,} characters; at most {most:,} are expected")
    return text


def _name(name: str) -> str:
    if PATH.match(_short(name, LETTERS)) or name.count("/") > 3 or not all(name.split("/")):
        raise ValueError(f"{name[:40]!r} is no network's name")
    return name


class Transform(Record):
    """Of pictures, as `Prepare` has it."""

    size: tuple[Side, Side]
    mean: Channels
    std: Channels
    crop: Annotated[float, Field(strict=True, gt=0, le=1)] | None
    interpolation: Literal["nearest", "bilinear", "bicubic", "lanczos"]
    whole: Annotated[bool, Field(strict=True)] = False

    @model_validator(mode="after")
    def _checked(self) -> Self:
        if math.prod(self.size) > PIXELS:
            raise ValueError(f"an input of {self.size[1]} x {self.size[0]} pixels; at most {PIXELS:,} are expected")
        if not len(self.mean) == len(self.std) != 2 or min(self.std) < 1e-6:
            raise ValueError("mean and std have one number, or three, and std is above 0")
        return self


class Facts(Record):
    """The metadata of a weights file: `fovea.network`, and so on."""

    network: Name | None = None
    name: Name | None = None  # what it is called, where that is not what it is built by
    labels: Annotated[Annotated[tuple[Label, ...], Field(max_length=WORDS)] | None, Parsed] = None
    options: Annotated[dict[str, Any], Field(max_length=100), Parsed] = Field(default_factory=dict)
    transform: Annotated[Transform | None, Parsed] = None
    temperature: Annotated[Temperature | None, Parsed] = None
    borrowed: Hash | None = None  # the weights of another network that it is trained over
    sha256: Hash | None = None  # of the tensors


def facts(path: Path) -> Facts:
    """What a weights file says about itself; only a safetensors file says anything."""
    from safetensors import safe_open

    if path.suffix.lower() != ".safetensors":
        return Facts()
    try:
        with named(path) as name, safe_open(name, framework="np") as file:
            about = dict(file.metadata() or {})
    except Exception as error:  # safetensors', and those of the disk and the memory
        raise BadNetwork(f"{path} is not a whole safetensors file: {printable(str(error))[:LETTERS]}") from None
    ours = {key.removeprefix("fovea."): value for key, value in about.items() if key.startswith("fovea.")}
    return Facts.read(ours, path, MADE_ANEW, BadNetwork)


@contextmanager
def named(path: Path) -> Iterator[str]:
    """A name that safetensors opens the file by: it takes no other than UTF-8."""
    with path.open("rb") as file:
        yield str(path) if str(path).isprintable() else f"/proc/self/fd/{file.fileno()}"


def refuse_options(path: Path, given: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """Refuses, by name, what a weights file may not ask of its network; `declared` are its options with their types."""
    for key, value in given.items():
        if SOURCE.fullmatch(key.lower()):
            raise refused(key, path, "no file says where weights come from; fovea.load(NAME, weights=FILE) does")
        if key not in declared:
            raise refused(key, path, f"the network declares no such option{nearest(key, declared)}; {yourself(path)}")
        if not _is_plain(value):
            plain = f"a number up to {NUMBER:,}, a short text that is no path, or a flat list of these"
            raise refused(key, path, f"an option is {plain}")
        try:
            TypeAdapter(declared[key]).validate_json(json.dumps(value), strict=True)
        except ValidationError as error:
            raise refused(key, path, f"{error.errors(include_url=False)[0]['msg']}; {MADE_ANEW}") from None


def refused(option: str, path: Path, why: str) -> BadNetwork:
    return BadNetwork(f"option {printable(option)[:LETTERS]} of {path} is refused: {why}")


def yourself(path: Path) -> str:
    return f"if you trust the file, give it yourself: fovea.load({str(path)!r}, options={{…}})"


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        words = [item for item in value if isinstance(item, str)]
        rest = (item for item in value if not isinstance(item, str))
        short = len(value) <= WORDS and all(len(word) <= LETTERS for word in words)
        return short and not any(isinstance(item, list) or not _is_plain(item) for item in rest)
    if isinstance(value, str):
        return len(value) <= LETTERS and not PATH.match(value)
    return value is None or (isinstance(value, (bool, int, float)) and abs(value) <= NUMBER)
