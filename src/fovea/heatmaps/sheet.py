"""The sheet of one picture: its maps by several methods and for several targets."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from fovea.results import drawing, spaced

if TYPE_CHECKING:
    from fovea.heatmaps.heatmap import HeatMap

COLUMNS, SIDE, GAP = 6, 260, 10  # maps beside one another; pixels of a map's longer side, and between blocks


def draw(maps: Sequence["HeatMap"]) -> Image.Image:
    """The photograph, then under its name the maps of each method, one per target, in rows as even as can be."""
    first, most = maps[0], max(len(heatmap.targets) for heatmap in maps)
    photograph = drawing.enlarged(first.shown.image(), SIDE)
    blocks = [_block("photograph", [photograph], [" "] * (most > 1))]
    for heatmap in maps:
        count = len(heatmap.targets)
        tiles = [heatmap.over(target, size=SIDE) for target in range(count)]
        titles = [heatmap.diagnosis[target] or heatmap.title(target) for target in range(count)]
        blocks.append(_block(heatmap.method, tiles, titles if most > 1 or heatmap.note else []))
    rows = drawing.in_rows(blocks, max(1, COLUMNS // most), 2 * GAP)
    body = drawing.grid([[rows], [drawing.legend(rows.width, 18)]], GAP)
    title = f"{Path(first.name).name}: {spaced(first.title() if most == 1 else first.label)}"
    return drawing.framed(drawing.titled(body, title, drawing.UNSEEN if first.crops else ""), GAP, above=0)


def _block(name: str, tiles: Sequence[Image.Image], titles: Sequence[str]) -> Image.Image:
    """Maps side by side, each under its title, all under a name."""
    under = [
        drawing.headed(tile, [(drawing.shortened(spaced(title), 12, tile.width), 12, drawing.GRAY)], 0, 5, 0)
        for tile, title in zip(tiles, titles, strict=True)
    ] if titles else tiles  # fmt: skip
    row = drawing.grid([under], 4)
    return drawing.headed(row, [(name, 15, "black")], 0, 5, 0)
