"""The page of searches: the query with its map, and every neighbor with the two maps of what makes them alike."""

import html
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fovea.results import breaking, inside, page, ramp, strip
from fovea.retrieval.figure import Card

if TYPE_CHECKING:
    from fovea.retrieval.search import Search


def whole(searches: "Sequence[Search]", settings: Mapping[str, Any], before: Sequence[Mapping[str, Any]] = ()) -> str:
    """The page; `before` are rows of earlier searches, of which it shows the sheets."""
    sections = [_section(search, number) for number, search in enumerate(searches, 1)]
    style = files("fovea.retrieval").joinpath("page.css").read_text()
    return page("pictures that look alike", [_heading(settings), *sections, *strip(before)], style)


def _heading(settings: Mapping[str, Any]) -> str:
    what = "the features that its last layer reads" if settings["features"] == "pooled" else "its embedding"
    return f"""<h1>Pictures that look alike</h1>
<p>Of {settings["pictures"]:,} pictures the nearest to the query, as {html.escape(settings["net"])} sees them
(by {what}), and what makes each pair alike: a part of the query, and a part of the neighbor.</p>
{ramp("adds nothing", "makes them alike")}
<input type="checkbox" id="plain"><label for="plain">show pictures without maps</label>
<span class="dim">(or point at a map)</span>
"""


def _section(search: "Search", number: int) -> str:
    drawn = search.drawn
    label = f" &middot; {breaking(search.label)}" if search.label else ""
    itself = '<br><span class="tag">in the index itself</span>' if search.itself else ""
    query = f'<figure><div class="map"><img alt="" src="{inside(drawn.query)}"></div>'
    query += f"<figcaption><b>{breaking(Path(search.name).name)}</b>{label}{itself}</figcaption></figure>"
    if drawn.own is not None:
        query += f'<figure><div class="map"><img alt="" src="{inside(drawn.own)}">{_plain(number)}</div>'
        query += "<figcaption><b>where the network looks</b>, whatever it is compared with</figcaption></figure>"
    cards = "".join(_card(card, search.label, number) for card in drawn.cards)
    style = f"<style>.q{number} {{ background: center / 100% 100% url({inside(drawn.small)}) }}</style>"
    return f'<section>{style}<div class="query">{query}</div><div class="cards">{cards}</div></section>'


def _plain(number: int) -> str:
    """The query without a map, which is in the page once for all its maps."""
    return f'<span class="plain q{number}"></span>'


def _card(card: Card, query_label: str, number: int) -> str:
    neighbor = card.neighbor
    same = ' class="same"' if neighbor.label and neighbor.label == query_label else ""
    label = f"<b{same}>{breaking(neighbor.label)}</b><br>" if neighbor.label else ""
    itself = ' <span class="tag">itself</span>' if neighbor.itself else ""
    bar = f'<div><i style="width: {max(neighbor.similarity, 0) * 100:.1f}%"></i></div>'
    like = f'<div class="like">{bar}<span>{neighbor.similarity:.3f}</span></div>'
    file = breaking(Path(neighbor.name).name if neighbor.label else neighbor.name)
    name = f'<div class="name">{label}{file}{itself}</div>'
    picture = inside(card.picture) if card.picture is not None else ""
    frame = f'<div class="frame"><img alt="" src="{picture}"></div>' if picture else ""
    if card.query_part is None or card.own_part is None:
        return f'<div class="card">{frame}{like}{name}<p class="dim">No maps: {html.escape(card.reason)}</p></div>'
    plain = f'<img class="plain" alt="" src="{picture}">'
    parts = f'<figure><div class="map"><img alt="" src="{inside(card.query_part)}">{_plain(number)}</div>'
    parts += "<figcaption>this of the query</figcaption></figure>"
    parts += f'<figure><div class="map"><img alt="" src="{inside(card.own_part)}">{plain}</div>'
    parts += "<figcaption>is like this</figcaption></figure>"
    return f'<div class="card">{frame}{like}{name}<div class="pair">{parts}</div></div>'
