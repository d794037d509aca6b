"""What comes from files and is not trusted: one schema, one error."""

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Self
from zlib import crc32

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError

from fovea.basics.errors import Damaged, FoveaError
from fovea.basics.files import printable


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("Input should be a string")
    return value


Count = Annotated[int, Field(ge=0, lt=2**53)]
Text = Annotated[str, PlainValidator(_text)]  # of any characters: a file's name need not be Unicode


class Record(BaseModel):
    """A part of a file with its fields and their bounds; a subclass declares them. No field that is not declared."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def read(
        cls, content: str | bytes | Mapping[str, Any], where: object, remedy: str, error: type[FoveaError] = Damaged
    ) -> Self:
        """The record that a text of JSON, or a mapping, holds. `remedy` says what to do where it holds none."""
        try:
            return cls.model_validate(json.loads(content) if isinstance(content, (str, bytes)) else content)
        except ValidationError as wrong:
            first = wrong.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            what = f"{place}: {first['msg']}" if place else first["msg"]
        except (ValueError, RecursionError) as wrong:
            what = f"no JSON ({wrong})"
        raise error(f"{where} is damaged, or not fovea's ({printable(what)[:200]}): {remedy}")


def checksum(cells: Iterable[bytes | None]) -> int:
    """Of a row in a file: the cells and their lengths, so that neither a digit nor a border can move."""
    found = 0
    for cell in cells:
        found = crc32(b"" if cell is None else cell, crc32(b"%d" % (-1 if cell is None else len(cell)), found))
    return found
