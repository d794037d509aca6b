"""What was found of a picture, in plain words: every number is one of the row's own, and nothing else is known here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from fovea.results import spaced

Row = Mapping[str, Any]  # of results.json
EVERYWHERE = 0.6  # of the picture: a box as large as that has no place in it
GROUNDS = {"mean": "gray", "blur": "blurred"}


def paragraph(row: Row) -> str:
    """Of one picture."""
    return " ".join(
        filter(None, (_answer(row), _contrast(row), _patches(row), _closer(row), *_beside(row), _trust(row)))
    )


def place_of(box: Sequence[float], size: Sequence[float]) -> str:
    """'in the middle', 'at the upper left', … of a picture of this width and height."""
    (x0, y0, x1, y1), (width, height) = box, size
    if (x1 - x0) * (y1 - y0) >= EVERYWHERE * width * height:
        return "all over the picture"
    across, down = (x0 + x1) / (2 * width), (y0 + y1) / (2 * height)
    column = "left" if across < 0.4 else "right" if across > 0.6 else ""
    row = "upper" if down < 0.4 else "lower" if down > 0.6 else ""
    if row and column:
        return f"at the {row} {column}"
    if column:
        return f"on the {column}"
    return {"upper": "at the top", "lower": "at the bottom", "": "in the middle"}[row]


def percent(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1f} %"


def _named(label: str, share: float | None) -> str:
    return spaced(label) if share is None else f"{spaced(label)} ({share:.2f})"


def _answer(row: Row) -> str:
    seen = f", seen {place}" if (place := _place(row, "answer")) else ""
    shares = {each["label"]: each["probability"] for each in row["predictions"]}
    if len(row["unsure"]) > 1:
        return f"Not sure between {_listed([_named(label, shares[label]) for label in row['unsure']])}{seen}."
    doubtful = "Perhaps " if row["unsure"] else ""
    return f"{doubtful}{_named(row['label'], row['probability'])}{seen}."


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _contrast(row: Row) -> str:
    place = _place(row, "contrast")
    return f"What tells it from {spaced(row['runner_up'])} lies {place}." if place else ""


def _place(row: Row, kind: str) -> str | None:
    return next((each["place"] for each in row["where"] if each["kind"] == kind), None)


def _patches(row: Row) -> str:
    enough, needed = row["enough"], row["needed"]
    parts = ["Nothing less than the whole was found to be enough"]
    if enough and not enough["boxes"]:
        parts = ["The answer stays even where all of it is hidden"]
    elif enough:
        parts = [f"{percent(enough['share'])} of the picture is enough{_one(enough)}"]
    if needed:
        labels = dict.fromkeys(said["label"] for said in needed["backgrounds"].values())
        becomes = " or ".join(map(spaced, labels))
        parts.append(f"without {percent(needed['share'])} of it the answer becomes {becomes}{_one(needed)}")
    else:
        parts.append("nothing was found without which the answer changes")
    return f"{'; '.join(parts)}."


def _one(part: Row) -> str:
    """Where one background alone would do with far less, the two do not agree."""
    found = [(ground, share) for ground, share in part["on_one_background"].items() if share < part["share"] / 2]
    words = {
        ground: f"{percent(share)} would do" if share else "nothing of it has to be shown" for ground, share in found
    }
    return "".join(f" (with the rest {GROUNDS[ground]} {said})" for ground, said in [*words.items()][:1])


def _closer(row: Row) -> str:
    closer = row["closer"]
    if not closer:
        return ""
    count = len(closer["windows"])
    how = "" if closer["resolution"] >= 0.995 else f"{closer['resolution']:.2f} of "
    read = f"{count} part{'s' * (count > 1)} at {how}full resolution, {percent(closer['share'])} of the pixels"
    said = _named(closer["label"], closer["probability"])
    stays = closer["label"] == row["label"]
    return f"With {read}, it {'stays' if stays else 'becomes'} {said}."


def _beside(row: Row) -> Iterator[str]:
    if longer := row["longer"]:
        whole, local = (_named(each["label"], each["probability"]) for each in (longer["global"], longer["local"]))
        yield f"The picture as a whole is taken for {whole}, its parts for {local}."
    if alike := row["prototypes"]:
        first = alike[0]
        which = f"prototype {first['prototype']} of {spaced(first['label'])}"
        yield f"It looks most like {which} (similarity {first['similarity']:.2f})."
    if like := row["like"]:
        names = [_named(each["label"] or each["name"], each["similarity"]) for each in like["neighbors"][:2]]
        yield f"Nearest in the index: {_listed(names)}."


def _trust(row: Row) -> str:
    trust = row["trust"]
    if not trust:
        return ""
    doubts = trust["doubts"]
    return f"Doubts: {'; '.join(doubts)}." if doubts else "The map stood all checks."
