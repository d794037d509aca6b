"""Many pictures, or texts, for one question: several are on their way at once, and results come in order."""

import base64
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

from fovea.basics import BadChoice, BadPicture, BadText, Damaged, ahead
from fovea.heatmaps import Explained, HeatMap
from fovea.pictures import Picture
from fovea.pictures.decoding import as_bad_picture, opened
from fovea.remote.neighbors import neighbors_of
from fovea.remote.questions import QUESTIONS
from fovea.remote.service import Refusal, Service
from fovea.results import Step, unpack

EXACT, VIEW = "exact", "view"


@dataclass(frozen=True, repr=False)
class ExplainedPicture(Explained):
    """Maps of a picture, which travel; those of a clip do not."""

    parts: tuple[HeatMap, ...]


def exactly(kind: type, data: Any, item: Any) -> Any:
    """The one result of that kind."""
    results = unpack(list[kind], data.get("results"), item if isinstance(item, Picture) else None)  # type: ignore[valid-type]
    if len(results) != 1:
        raise Damaged(f"{len(results)} results came for one question")
    return results[0]


@dataclass
class Question:
    """One question about many pictures or texts; Steps come out, one for each, in order. `settings` is what the service
    tells of how it was asked, once it has answered, and `refused` the methods that it left out, and why."""

    service: Service
    verb: str
    fields: Mapping[str, Any]
    items: Sequence[Picture | str]
    settings: dict[str, Any] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Step[Any]]:
        answers = ahead(self._one, self.items, self.service.at_once, 2 * self.service.at_once)
        for done, (item, found) in enumerate(zip(self.items, answers, strict=True), 1):
            if isinstance(found, (BadPicture, BadText)):
                name = item if isinstance(item, str) else item.name
                yield Step([], [(name, str(found))], done, len(self.items))
            else:
                yield Step([found], [], done, len(self.items))

    def _one(self, item: Picture | str) -> Any:
        """The result, or why there is none."""
        text, picture = (item, None) if isinstance(item, str) else (None, item)
        kind = QUESTIONS[self.verb].gives if text is None else QUESTIONS[self.verb].gives_of_text
        output, read = (VIEW, neighbors_of) if kind is None else (EXACT, partial(exactly, kind()))
        called = f"picture-{secrets.token_hex(8)}"  # by which what is said of it is known; paths are nobody's business
        if picture is not None and output == VIEW:  # which has it drawn
            called = os.path.basename(picture.name)
        try:
            about = {"text": text} if picture is None else {"picture": encoded(picture), "name": called}
            answer = self.service.ask(f"v1/{self.verb}", {**self.fields, **about, "output": output})
        except BadPicture as reason:
            return reason
        except Refusal as refusal:
            return self._why_not(refusal, item, called)
        if picture is not None and output == EXACT:
            answer = answer.replace(called.encode(), json.dumps(picture.name)[1:-1].encode())
        data = self.service.read(answer)
        if not isinstance(data, dict):
            raise Damaged(f"what answers at {self.service.url} is no fovea service")
        self.settings.update(unpack(dict[str, Any], data.get("settings")))
        self.refused.update(unpack(dict[str, str], data.get("refused", {})))
        return whole(read, data, item)

    def _why_not(self, refusal: Refusal, item: Picture | str, called: str) -> Exception:
        """An item that cannot be read is told with the others; what is wrong with the question is raised."""
        words = str(refusal)
        if refusal.status == 422 and isinstance(item, str):
            return BadText(words)
        if refusal.status == 413 and isinstance(item, Picture):
            return BadPicture(f"{item.name} is too large for the service: {words}")
        if refusal.status == 422 and isinstance(item, Picture) and called in words:
            return BadPicture(words.replace(called, str(item.source) if isinstance(item.source, Path) else item.name))
        raise BadChoice(words) if refusal.status == 422 else refusal


def whole(read: Callable[[Any, Any], Any], data: Any, item: Any) -> Any:
    """A result that can say all that it holds: damaged ones cannot."""
    result = read(data, item)
    try:
        result.to_dict(), result.line()
    except Exception as reason:
        raise Damaged(f"the parts of the answer do not belong together ({type(reason).__name__}: {reason})") from None
    return result


def encoded(picture: Picture) -> str:
    """A file as it is; what is in memory as PNG, which keeps every pixel; in base64."""
    if not isinstance(picture.source, Path):
        buffer = BytesIO()
        picture.read().save(buffer, "png", compress_level=1)
        return base64.b64encode(buffer.getvalue()).decode()
    with as_bad_picture(str(picture.source)), opened(picture.source, stamps=picture.stamps) as file:
        return base64.b64encode(file.read()).decode()
