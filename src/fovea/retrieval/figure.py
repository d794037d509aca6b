"""A search as pictures: the query with its map, and its neighbors, each with the two maps of what makes them alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fovea.basics import BadPicture
from fovea.heatmaps import HeatMaps
from fovea.pictures import MAX_PIXELS, Picture, on_pixels
from fovea.results import drawing, spaced
from fovea.retrieval.alike import Maps, Neighbor

LARGE, SMALL = (560, 420), (300, 225)  # pixels that the query, and a neighbor, fit in
COLUMNS = 2  # neighbors beside one another on a sheet


@dataclass(frozen=True)
class Card:
    """One neighbor as drawn: its picture, the query's part and its own; or why there are no parts."""

    neighbor: Neighbor
    picture: Image.Image | None = None
    query_part: Image.Image | None = None
    own_part: Image.Image | None = None
    reason: str = ""


@dataclass(frozen=True)
class Drawn:
    """A whole search: the query, where the network looks at it, and one card per neighbor, the nearest first."""

    query: Image.Image
    small: Image.Image  # the query as large as its neighbors
    own: Image.Image | None
    cards: tuple[Card, ...]


def drawn(picture: Picture, neighbors: Sequence[Neighbor], maps: Maps, max_pixels: int = MAX_PIXELS) -> Drawn:
    """Every file is decoded once, and drawn on at the size that it is shown at."""
    whole = picture.read(max_pixels)
    query, small = drawing.fitted(whole, LARGE), drawing.fitted(whole, SMALL)
    own = over(maps.own, 0, query) if maps.own is not None else None
    return Drawn(query, small, own, tuple(_card(neighbor, maps, small, max_pixels) for neighbor in neighbors))


def _card(neighbor: Neighbor, maps: Maps, query: Image.Image, max_pixels: int) -> Card:
    """Its file may have gone since its maps were made."""
    reason = dict(maps.lost).get(neighbor, "")
    try:
        image = drawing.fitted(neighbor.picture.read(max_pixels), SMALL)
    except BadPicture as gone:
        return Card(neighbor, reason=reason or str(gone))
    if reason or maps.pairs is None:
        return Card(neighbor, image, reason=reason)
    k = maps.neighbors.index(neighbor)
    return Card(neighbor, image, over(maps.pairs, 2 * k, query), over(maps.pairs, 2 * k + 1, image))


def over(seen: HeatMaps, number: int, image: Image.Image) -> Image.Image:
    """A map over its picture at another size."""
    placement = seen.shown[number].placement
    assert placement is not None  # pictures always have one
    scaled = placement.at_size(image.size)
    heat = on_pixels(seen.map(number).clip(0), scaled)
    return drawing.blend(image, heat, scaled.window).resize(image.size, Image.Resampling.LANCZOS)


def sheet(search: Drawn, title: str, subtitle: str, net: str) -> Image.Image:
    """The same without a browser."""
    neighbors = [_tile(card) for card in search.cards]
    top = [drawing.named(search.query, LARGE, title, subtitle)]
    if search.own is not None:
        top.append(drawing.named(search.own, LARGE, "where the network looks", net))
    rows = [neighbors[start : start + COLUMNS] for start in range(0, len(neighbors), COLUMNS)]
    return drawing.framed(drawing.grid([[drawing.grid([top], 10)], [drawing.grid(rows, 24)]], 16))


def _tile(card: Card) -> Image.Image:
    neighbor, nothing = card.neighbor, Image.new("RGB", (1, 1), "white")
    itself = "itself" if neighbor.itself else ""
    words = " ".join(filter(None, (spaced(neighbor.label or ""), f"similarity {neighbor.similarity:.3f}", itself)))
    row = [drawing.named(card.picture or nothing, SMALL, words, card.reason or Path(neighbor.name).name)]
    if card.query_part and card.own_part:
        row.append(drawing.named(card.query_part, SMALL, "part of the query", "where it is like the neighbor"))
        row.append(drawing.named(card.own_part, SMALL, "part of the neighbor", "where it is like the query"))
    return drawing.grid([row], 4)
