"""What stands out in an audit: shortcuts, answers that rest on the background, classes that are hardly told apart."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from PIL import Image

from fovea.evidence.audit.clusters import Cluster
from fovea.evidence.audit.table import FAR, PatchTable
from fovea.evidence.words import percent, place_of
from fovea.networks import Network
from fovea.results import spaced

CARRIES = 0.6  # of a cluster's patches keep the answer alone
MOVES, MOVES_ALL = 0.1, 0.3  # of other pictures take the class over, at least; so many tell without the former
RARE = 0.1  # of other classes' pictures have such a patch, at most
KEPT = 0.25  # of a class's pictures keep their answer without what is in their boxes
CLOSE = 1.0  # of logits: a picture whose answer is no further ahead
PAIRS = 5  # of classes, at most
FEW = 10  # pictures of a pair, at least


@dataclass(frozen=True)
class AuditFinding:
    """`kind` is shortcut, background or pair; the larger the score, the sooner it should be looked at."""

    kind: str
    label: str
    score: float
    words: str
    figures: dict[str, Any]
    pictures: tuple[tuple[str, tuple[float, ...]], ...]  # names, and the box to look at, none for all of a picture
    other: str = ""  # the class that it is told apart from
    between: tuple[int, ...] = ()  # the numbers of both
    drawn: tuple[Image.Image, ...] = ()  # the pictures with maps over them, where that shows more

    def to_dict(self) -> dict[str, Any]:
        shown = [{"name": name, "box": [round(side, 2) for side in box]} for name, box in self.pictures]
        about = {"kind": self.kind, "class": self.label, "other": self.other or None, "score": round(self.score, 4)}
        return {**about, "words": self.words, **self.figures, "pictures": shown}


def is_suspect(cluster: Cluster) -> bool:
    """Whether it is worth trying on pictures of other classes: it has a place of its own, or lies off the objects, and
    is rare elsewhere."""
    return (cluster.same_place or cluster.off_object) and cluster.elsewhere <= RARE


def is_shortcut(cluster: Cluster, moves: float, blank: int) -> bool:
    """`moves`: the share of other pictures that it makes its class; `blank`: the class of a picture with nothing on it,
    which any patch carries."""
    tells = cluster.carries >= CARRIES and cluster.label != blank and moves >= MOVES
    return is_suspect(cluster) and (tells or moves >= MOVES_ALL)


def shortcut(network: Network, table: PatchTable, cluster: Cluster, moves: float) -> AuditFinding:
    name = spaced(network.label(cluster.label))
    x, y = cluster.place
    where = place_of((x, y, x, y), (1, 1))
    often = f"{percent(cluster.carries)} of {len(cluster.patches)} cases"
    parts = [f"{name}: a patch {where} keeps the answer by itself in {often}"]
    parts.append(f"it is in {percent(cluster.share)} of the pictures that are taken for {name}")
    if cluster.same_place:
        chance = f"{percent(cluster.by_chance)} of all others have any patch"
        parts.append(f"{percent(cluster.there)} of these at this place, where {chance}")
    if cluster.off_object and cluster.outside is not None:
        parts.append(f"{percent(cluster.outside)} of them outside the boxes")
    parts.append(f"put into pictures of other classes it makes {percent(moves)} of them {name}")
    figures = {
        "share": cluster.share,
        "patches": len(cluster.patches),
        "carries": cluster.carries,
        "needed": cluster.needed,
        "place": list(cluster.place),
        "there": cluster.there,
        "by_chance": cluster.by_chance,
        "outside": cluster.outside,
        "elsewhere": cluster.elsewhere,
        "moves": moves,
    }
    score = cluster.share * cluster.carries * (1 + moves)
    return AuditFinding(
        "shortcut", network.label(cluster.label), score, "; ".join(parts) + ".", figures, shown(table, cluster)
    )


def once_each(found: Sequence[AuditFinding]) -> list[AuditFinding]:
    """Of shortcuts of one class at one place, which are parts of one thing, the first."""
    kept = list[AuditFinding]()
    for one in found:
        same = (other.figures["place"] for other in kept if other.label == one.label)
        if not any(np.abs(np.subtract(place, one.figures["place"])).max() < FAR for place in same):
            kept.append(one)
    return kept


def shown(table: PatchTable, cluster: Cluster, most: int = 8) -> tuple[tuple[str, tuple[float, ...]], ...]:
    """A cluster's patches, one per picture, those nearest to its middle first."""
    first = dict[int, int]()
    for patch in cluster.patches.tolist():
        first.setdefault(int(table.picture[patch]), patch)
    return tuple(
        (table.names[picture], tuple(table.boxes[patch].tolist())) for picture, patch in [*first.items()][:most]
    )


def backgrounds(network: Network, table: PatchTable) -> list[AuditFinding]:
    """Classes many of whose pictures keep their answer with the boxes hidden; of pictures that have boxes."""
    found = []
    for label in np.unique(table.answer).tolist():
        boxed = np.flatnonzero((table.answer == label) & (table.without >= 0))
        rests = boxed[table.without[boxed] == label]
        if len(boxed) < FEW or len(rests) < KEPT * len(boxed):
            continue
        share = len(rests) / len(boxed)
        order = rests[np.argsort(table.evidence_inside[rests])][:8]
        inside = float(np.mean(table.evidence_inside[boxed]))
        words = (
            f"{spaced(network.label(label))}: {percent(share)} of its {len(boxed)} pictures keep the answer when what "
            f"is in their boxes is hidden; {percent(inside)} of the evidence lies in the boxes."
        )
        figures = {"share": share, "patches": len(boxed), "inside": inside}
        pictures = tuple((table.names[place], ()) for place in order.tolist())
        found.append(AuditFinding("background", network.label(label), share, words, figures, pictures))
    return sorted(found, key=lambda finding: -finding.score)


def pairs(network: Network, table: PatchTable) -> list[AuditFinding]:
    """The classes that are told apart by least: many pictures of the one are taken for the other, or nearly so."""
    rows = dict[tuple[int, int], list[int]]()
    for place, (answer, runner) in enumerate(zip(table.answer.tolist(), table.runner_up.tolist(), strict=True)):
        rows.setdefault((min(answer, runner), max(answer, runner)), []).append(place)
    found = []
    for (one, other), places in rows.items():
        own = np.array(places)
        close = own[table.margin[own] < CLOSE]
        known = own[table.truth[own] >= 0]
        wrong = known[(table.truth[known] != table.answer[known]) & np.isin(table.truth[known], (one, other))]
        if len(own) < FEW or not len(close):
            continue
        told = float(table.told_by[own].mean())
        names = network.label(one), network.label(other)
        words = (
            f"{spaced(names[0])} and {spaced(names[1])}: of {len(own)} pictures between the two, {len(wrong)} are "
            f"taken for the wrong one and {len(close)} are within {CLOSE:g} of a logit; half of what tells them apart "
            f"lies on {percent(told)} of a picture."
        )
        figures = {"pictures_between": len(own), "wrong": len(wrong), "close": len(close), "told_by": told}
        first = dict.fromkeys([*wrong.tolist(), *close[np.argsort(table.margin[close])].tolist()])
        pictures = tuple((table.names[place], ()) for place in [*first][:6])
        score = (len(wrong) + 0.5 * len(close)) / len(own) * np.log1p(len(own))
        found.append(AuditFinding("pair", names[0], float(score), words, figures, pictures, names[1], (one, other)))
    return sorted(found, key=lambda finding: -finding.score)[:PAIRS]


def first_words(findings: Sequence[AuditFinding], labels: int, boxed: bool) -> str:
    """What to look at first."""
    shortcuts = [finding for finding in findings if finding.kind == "shortcut"]
    classes = "1 class" if labels == 1 else f"{labels} classes"
    head = f"{len(shortcuts)} likely shortcut{'' if len(shortcuts) == 1 else 's'} in {classes}."
    rest = [f"{number}. {finding.words}" for number, finding in enumerate(findings[:5], 1)]
    unknown = [] if boxed else ["Without boxes it is not known whether an answer rests on the background."]
    return " ".join([head, *rest, *unknown])
