"""The nearest pictures of a service's index: they lie there, so they are drawn there."""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from PIL import Image

from fovea.basics import Damaged
from fovea.pictures import Picture, read_bytes
from fovea.results import Shows, unpack


@dataclass(frozen=True, repr=False)
class SearchAnswer(Shows):
    """What an index has nearest to one picture, the nearest first."""

    name: str
    row: Mapping[str, Any]  # as retrieval.Search.to_dict gives it
    drawn: bytes  # the sheet, as a picture file

    saved_as = ("sheet", "png")
    probability = None

    @property
    def label(self) -> str:
        """The folder that the picture lies in, where it is in the index itself and folders tell classes."""
        return self.row["label"] or ""

    @property
    def neighbors(self) -> list[dict[str, Any]]:
        return self.row["neighbors"]

    @property
    def boxes(self) -> list[list[float]]:
        """Of the parts of the query that make it like each of its neighbors that has maps."""
        return [neighbor["query_box"] for neighbor in self.neighbors if neighbor["query_box"]]

    def draw(self) -> Image.Image:
        return read_bytes(self.drawn, self.name)

    def to_dict(self) -> dict[str, Any]:
        return dict(self.row)


def neighbors_of(data: Any, picture: Picture) -> SearchAnswer:
    """From what a service answers as a view."""
    try:
        row, sheet = unpack(dict[str, Any], data["result"]), data["view"]["panels"][0]["src"]
        drawn = base64.b64decode(sheet.partition("base64,")[2], validate=True)
        row.pop("name")
        return SearchAnswer(picture.name, row, drawn)
    except (KeyError, IndexError, TypeError, AttributeError, binascii.Error, ValueError):
        raise Damaged("the answer holds no neighbors of a picture") from None
