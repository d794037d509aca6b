"""Searches into a folder: a page to open in a browser, a sheet, and JSON."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fovea.basics.files import Names, write_json
from fovea.results.folder import told
from fovea.results.pages import breaking, inside, page, ramp
from fovea.retrieval.alike import OWN, PAIR
from fovea.retrieval.figure import Card, Drawn, drawn, sheet
from fovea.retrieval.found import Found

PAGE, SHEET, JSON = "index.html", "sheet.png", "search.json"
STYLE = """
.query { display: grid; grid-template-columns: repeat(auto-fit, minmax(280px, 1fr)); gap: 18px }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(250px, 1fr)); gap: 18px; margin-top: 22px }
.card { border: 1px solid var(--line); border-radius: 10px; padding: 12px; display: flex; flex-direction: column;
  gap: 8px }
.frame { display: flex; align-items: center; justify-content: center; height: 190px; background: var(--page);
  border-radius: 8px }
.frame img { width: auto; max-width: 100%; max-height: 100% }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 8px; margin-top: auto }
.pair figcaption { text-align: center }
.pair figure { display: grid; grid-template-rows: 1fr auto; align-items: center }
.map { position: relative; width: fit-content; margin: 0 auto; border-radius: 8px; overflow: hidden }
.map img { width: auto; max-width: 100% } .pair .map img { max-height: 130px } .query .map img { max-height: 420px }
.map .plain { position: absolute; inset: 0; width: 100%; height: 100%; max-height: none; opacity: 0;
  transition: opacity .15s }
.map:hover .plain, #plain:checked ~ section .map .plain { opacity: 1 }
.name { overflow-wrap: anywhere; font-size: 13.5px; color: var(--dim) }
.name b { color: var(--ink); font-size: 15px; font-weight: 600 } .name .same { color: var(--bar) }
.like { display: grid; grid-template-columns: 1fr 52px; gap: 8px; align-items: center }
.like div { background: var(--line); border-radius: 4px }
.like i { display: block; height: 7px; border-radius: 4px; background: var(--bar) }
.like span { font-variant-numeric: tabular-nums; font-weight: 600; text-align: right }
.tag { font-size: 12px; border: 1px solid var(--line); border-radius: 8px; padding: 0 6px }
#plain { margin: 18px 6px 0 0 }
"""


def write(
    searches: Sequence[Found],
    folder: Path,
    skipped: Sequence[tuple[str, str]] = (),
    json: Path | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Path:
    """`folder`/index.html, a sheet a search and search.json (also as the file `json`); the page's path comes back."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, sections, names = [], [], Names()
    for done, found in enumerate(searches, 1):
        picture = SHEET if len(searches) == 1 else f"{names.take(Path(found.name).stem or 'picture', found.name)}.png"
        search = drawn(found)
        sheet(search).save(folder / picture)
        rows.append({**_row(found), "sheet": picture})
        sections.append(_section(search, done))
        progress(done, len(searches))
    content = {**_about(searches[0]), "searches": rows, "skipped": told(list(skipped))}
    for file in filter(None, (folder / JSON, json)):
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, content)
    index = folder / PAGE
    index.write_text(page("pictures that look alike", [_heading(searches[0]), *sections], STYLE), encoding="utf-8")
    return index


def _about(found: Found) -> dict[str, Any]:
    index = found.index
    return {
        "net": index.known.name,
        "features": index.known.identity["features"],
        "index": index.file.name,
        "pictures": len(index),
        "similarity": "cosine of embeddings",
        "maps": {"own": OWN, "pair": PAIR},
    }


def _row(found: Found) -> dict[str, Any]:
    """Boxes are in the pictures' own pixels, of the parts that make the two alike."""
    maps = found.maps
    boxes = maps.pairs.boxes()[:, 0].tolist() if maps.pairs is not None else []
    parts = {one.name: boxes[2 * k : 2 * k + 2] for k, one in enumerate(maps.told)}
    reasons = {one.name: reason for one, reason in maps.lost}
    return {
        "picture": found.name,
        "itself": found.itself.name if found.itself else None,
        "label": found.label,
        "seconds": round(found.seconds, 4),
        "neighbours": [
            {
                "name": one.name,
                "similarity": round(one.similarity, 6),
                "label": one.label,
                "itself": one.itself,
                "query_box": parts.get(one.name, [None, None])[0],
                "box": parts.get(one.name, [None, None])[1],
                "no_maps": reasons.get(one.name),
            }
            for one in found.neighbours
        ],
    }


def _heading(found: Found) -> str:
    index, known = found.index, found.index.known
    what = "the features that its last layer reads" if known.identity["features"] == "pooled" else "its embedding"
    return f"""<h1>Pictures that look alike</h1>
<p>Of {len(index):,} pictures the nearest to the query, as {html.escape(known.name)} sees them (by {what}), and
what makes each pair alike: a part of the query, and a part of the neighbour.</p>
{ramp("adds nothing", "makes them alike")}
<input type="checkbox" id="plain"><label for="plain">show pictures without maps</label>
<span class="dim">(or point at a map)</span>
"""


def _section(search: Drawn, number: int) -> str:
    found = search.found
    label = f" &middot; {breaking(found.label)}" if found.label else ""
    itself = '<br><span class="tag">in the index itself</span>' if found.itself else ""
    query = f'<figure><div class="map"><img alt="" src="{inside(search.query)}"></div>'
    query += f"<figcaption><b>{breaking(Path(found.name).name)}</b>{label}{itself}</figcaption></figure>"
    if search.own is not None:
        query += f'<figure><div class="map"><img alt="" src="{inside(search.own)}">{_plain(number)}</div>'
        query += "<figcaption><b>where the network looks</b>, whatever it is compared with</figcaption></figure>"
    cards = "".join(_card(card, found, number) for card in search.cards)
    style = f"<style>.q{number} {{ background: center / 100% 100% url({inside(search.small)}) }}</style>"
    return f'<section>{style}<div class="query">{query}</div><div class="cards">{cards}</div></section>'


def _plain(number: int) -> str:
    """The query without a map, which is in the page once for all its maps."""
    return f'<span class="plain q{number}"></span>'


def _card(card: Card, found: Found, number: int) -> str:
    one = card.neighbour
    same = ' class="same"' if one.label and one.label == found.label else ""
    label = f"<b{same}>{breaking(one.label)}</b><br>" if one.label else ""
    itself = ' <span class="tag">itself</span>' if one.itself else ""
    share = max(one.similarity, 0) * 100
    like = f'<div class="like"><div><i style="width: {share:.1f}%"></i></div><span>{one.similarity:.3f}</span></div>'
    name = f'<div class="name">{label}{breaking(Path(one.name).name if one.label else one.name)}{itself}</div>'
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
