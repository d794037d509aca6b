"""How the body of a request becomes what is asked, and what OpenAPI says of it."""

import asyncio
import binascii
import re
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, Field, ValidationError, create_model
from starlette.datastructures import Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from fovea.basics import printable, shown
from fovea.remote.questions import Asking, Keeping
from fovea.serve.options import Limits
from fovea.serve.refusing import Refused
from fovea.serve.room import Share

FIELDS, NAME = 40, 120  # of a form, of a picture's name
BOUNDARY = re.compile(r""";\s*boundary=("?)([\w'()+,./:=?-]{1,70})\1\s*(?:;|$)""", re.IGNORECASE | re.ASCII)
CLOSE = {"Connection": "close"}  # the rest of the body is not read
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGNkYPjPwMDAwMDAxAADABAOAQPhKj1QAAAAAElFTkSuQmCC"
COMMAS = 25_000  # of JSON, at most: what fields may hold is in a list or a text; base64 has none


def schemas(kind: type[BaseModel], verb: str) -> dict[str, Any]:
    """Of the two bodies a request may have, with an example each."""
    plain, form = kind.model_json_schema(), kind.model_json_schema()
    form["properties"] = {name: _in_a_form(schema) for name, schema in form["properties"].items()}
    form["properties"]["picture"] = {"type": "string", "format": "binary", "description": "The file."}
    about: dict[str, Any] = {"picture": PIXEL} if verb == "pictures" else {"picture_id": "example:coffee"}
    if verb == "pictures":
        plain["required"] = form["required"] = ["picture"]
        plain["properties"]["picture"] = plain["properties"]["picture"] | {
            "anyOf": [{"type": "string", "minLength": 1}]
        }
    return {
        "multipart/form-data": {"schema": form},
        "application/json": {"schema": plain, "examples": {verb: {"value": about}}},
    }


def _in_a_form(schema: Mapping[str, Any]) -> dict[str, Any]:
    """There is no null in a form: what is left empty is not given."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    if len(kinds) != 1:
        return dict(schema)
    about = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {name: value for name, value in kinds[0].items() if name != "minLength"} | about


def narrowed(kind: type[Asking], outputs: tuple[str, ...], nets: tuple[str, ...]) -> type[Asking]:
    """The same with the outputs of a verb, and the networks that can do it."""
    usual = {"output": (Literal[outputs], Field(outputs[0], description="What comes back."))}
    net = {"net": (Literal[nets] | None, Field(None, description="The first if not given."))} if nets else {}
    return create_model(f"{kind.__name__}Request", __base__=kind, __doc__=kind.__doc__, **usual, **net)  # type: ignore[call-overload]


Kind = TypeVar("Kind", bound=Keeping)


class _InMemory(MultiPartParser):
    spool_max_size = sys.maxsize  # never on the disk: `limited` bounds it


async def read(request: Request, kind: type[Kind], limits: Limits, share: Share) -> tuple[Kind, bytes | None]:
    """What is asked, and the picture's bytes where the request has them."""
    body, data = limited(request, limits, share), None
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given == "application/json":
        text = b"".join([chunk async for chunk in body])
        asked = await asyncio.to_thread(_of_json, kind, text)
        if asked.picture is not None:
            data = await asyncio.to_thread(_decoded, asked.picture)
    elif given == "multipart/form-data":
        form, data, name = await _form(request, body)
        asked = _of_form(kind, form)
        asked = asked if asked.name or not name else asked.model_copy(update={"name": name})
    else:
        words = f"the body is {shown(given or 'of no type')}; send multipart/form-data or application/json"
        raise Refused(415, words)
    return asked.model_copy(update={"picture": None}), data


async def limited(request: Request, limits: Limits, share: Share) -> AsyncIterator[bytes]:
    """The body as it comes; refused where it is too large or too slow."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limits.bytes:
        raise too_large(limits)
    taken, more, last = 0, True, time.monotonic() + limits.body
    while more:
        try:
            message = await asyncio.wait_for(request.receive(), last - time.monotonic())
        except TimeoutError:
            raise Refused(408, f"the request did not come within {limits.body:g} s", CLOSE) from None
        if message["type"] == "http.disconnect":
            raise Refused(400, "the request was cut short")
        chunk, more = message.get("body", b""), message.get("more_body", False)
        taken += len(chunk)
        if taken > limits.bytes:
            raise too_large(limits)
        share.take(len(chunk))
        yield chunk


def too_large(limits: Limits) -> Refused:
    words = f"a request has at most {limits.bytes:,} bytes here; send a smaller picture (--max-bytes raises it)"
    return Refused(413, words, CLOSE)


async def _form(request: Request, body: AsyncIterator[bytes]) -> tuple[dict[str, list[str]], bytes | None, str]:
    """The fields of a form, and its file with its name."""
    fields, data, name = dict[str, list[str]](), None, ""
    plain = Headers({"content-type": f'multipart/form-data; boundary="{_boundary(request)}"'})
    parser = _InMemory(plain, body, max_files=1, max_fields=FIELDS)  # type: ignore[arg-type]
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, ValueError, UnicodeError) as error:
        words = getattr(error, "message", "") or "no whole form"
        raise Refused(400, f"the form cannot be read: {words.rstrip('.')}") from None
    try:
        for key, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields.setdefault(key, []).append(value)
            elif key == "picture":
                data, name = await value.read(), value.filename or ""
            else:
                raise Refused(422, f"the file is sent as {shown(key)}; send it as 'picture'")
    finally:
        await form.close()
    return fields, data, name


def _boundary(request: Request) -> str:
    """Nothing else of the header is used: a charset would name a module of Python to import."""
    found = BOUNDARY.search(request.headers.get("content-type", ""))
    if found is None:
        raise Refused(400, "the form cannot be read: its Content-Type has no boundary of 1 to 70 plain letters")
    return found[2]


def _of_form(kind: type[Kind], form: Mapping[str, list[str]]) -> Kind:
    values: dict[str, Any] = {}
    for key, given in form.items():
        if key == "picture":
            raise Refused(422, "picture is a file in a form: send it with a file name, or send base64 as JSON")
        if key not in kind.lists and len(given) > 1:
            raise Refused(422, f"{shown(key)} is given {len(given)} times, and takes one value")
        if key in kind.lists:
            values[key] = [word.strip() for text in given for word in re.split(r",(?!\s*\w+=)", text) if word.strip()]
        elif given[0] != "":  # a field of a form that was left empty
            values[key] = given[0]
    return _checked(lambda: kind.model_validate(values))


def _of_json(kind: type[Kind], text: bytes) -> Kind:
    if text.count(b",") > COMMAS:  # each may take a hundred times its place in memory, once it is read
        raise Refused(422, f"the body has more than {COMMAS:,} values; send fewer")
    return _checked(lambda: kind.model_validate_json(text, strict=True))


def _checked(make: Callable[[], Kind]) -> Kind:
    try:
        return make()
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        broken = first["type"] == "json_invalid"
        where = ".".join(str(part) for part in first["loc"])
        got = "" if broken or first["type"] == "missing" else f"; got {shown(first['input'])}"
        words = f"the body is no JSON: {first['msg']}" if broken else f"{printable(where)}: {first['msg']}{got}"
        raise Refused(400 if broken else 422, words) from None


def _decoded(text: str) -> bytes:
    """Also in lines, and as an address that holds it (data:…;base64,…)."""
    plain = text.partition(",")[2] if text.startswith("data:") else text
    try:
        return binascii.a2b_base64("".join(plain.split()), strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise Refused(422, f"picture is no base64: {error}") from None


def named(name: str | None) -> str:
    """A picture's name without folders, and short: it is told, never opened."""
    last = printable(re.split(r"[/\\]", name or "")[-1]).strip()
    return last[-NAME:] or "picture"
