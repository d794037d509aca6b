"""A search as pictures: the query with its map, and its neighbours, each with the two maps of what makes them alike."""

import sys
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fovea.basics.errors import BadPicture
from fovea.heatmaps.heatmap import HeatMap
from fovea.pictures import Picture
from fovea.pictures.placement import on_pixels
from fovea.results import drawing
from fovea.retrieval.found import Found, Neighbour

LARGE, SMALL = (560, 420), (300, 225)  # pixels that the query, and a neighbour, fit in
COLUMNS = 2  # neighbours beside one another on a sheet


@dataclass(frozen=True)
class Card:
    """One neighbour as drawn: its picture, the query's part and its own; or why there are no parts."""

    neighbour: Neighbour
    picture: Image.Image | None = None
    query_part: Image.Image | None = None
    own_part: Image.Image | None = None
    reason: str = ""


@dataclass(frozen=True)
class Drawn:
    """A whole search: the query, where the network looks at it, and a card a neighbour, the nearest first."""

    found: Found
    query: Image.Image
    small: Image.Image  # the query as large as its neighbours
    own: Image.Image | None
    cards: tuple[Card, ...]


def drawn(found: Found) -> Drawn:
    """Every file is decoded once, and drawn on at the size that it is shown at."""
    maps, whole = found.maps, found.picture.read(sys.maxsize)
    query, small = _fitted(whole, LARGE), _fitted(whole, SMALL)
    cards = {one.name: Card(one, _picture(one), reason=reason) for one, reason in maps.lost}
    for k, one in enumerate(maps.told):
        picture = _picture(one)
        assert maps.pairs is not None
        assert picture is not None  # it was read for its maps
        cards[one.name] = Card(one, picture, over(maps.pairs, 2 * k, small), over(maps.pairs, 2 * k + 1, picture))
    own = over(maps.own, 0, query) if maps.own is not None else None
    return Drawn(found, query, small, own, tuple(cards[one.name] for one in found.neighbours))


def _picture(one: Neighbour) -> Image.Image | None:
    try:
        return _fitted(Picture(one.name, one.path).read(sys.maxsize), SMALL)  # its size was accepted before
    except BadPicture:
        return None


def _fitted(image: Image.Image, room: tuple[int, int]) -> Image.Image:
    return drawing.fitted(image.convert("RGB"), room)


def over(seen: HeatMap, number: int, image: Image.Image) -> Image.Image:
    """A map over its picture at another size."""
    placement = seen.shown[number].placement
    assert placement is not None  # pictures always have one
    scaled = placement.at_size(image.size)
    heat = on_pixels(seen.map(number).clip(0), scaled)
    return drawing.blend(image, heat, scaled.window).resize(image.size, Image.Resampling.LANCZOS)


def sheet(search: Drawn) -> Image.Image:
    """The same without a browser."""
    found, neighbours = search.found, [_tile(card) for card in search.cards]
    top = [drawing.named(search.query, LARGE, Path(found.name).name, found.label or "the query")]
    if search.own is not None:
        top.append(drawing.named(search.own, LARGE, "where the network looks", found.index.known.name))
    rows = [neighbours[start : start + COLUMNS] for start in range(0, len(neighbours), COLUMNS)]
    return drawing.framed(drawing.grid([[drawing.grid([top], 10)], [drawing.grid(rows, 24)]], 16))


def _tile(card: Card) -> Image.Image:
    one, nothing = card.neighbour, Image.new("RGB", (1, 1), "white")
    words = " ".join(filter(None, (f"{one.similarity:.3f}", one.label, "itself" if one.itself else "")))
    row = [drawing.named(card.picture or nothing, SMALL, words, card.reason or Path(one.name).name)]
    if card.query_part and card.own_part:
        row.append(drawing.named(card.query_part, SMALL, "part of the query", "where it is like the neighbour"))
        row.append(drawing.named(card.own_part, SMALL, "part of the neighbour", "where it is like the query"))
    return drawing.grid([row], 4)
