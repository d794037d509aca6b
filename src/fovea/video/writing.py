"""What was seen in clips into a folder: strip, film, values, and a row of the manifest."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fovea.basics.files import Names, finite
from fovea.heatmaps.writing import Writer
from fovea.pictures.shown import about
from fovea.video.watched import Watched


def add(
    writer: Writer, found: Sequence[Watched], advance: Callable[[int, int], object] = lambda done, total: None
) -> None:
    """One clip, with a Watched a method: STEM.strip.png and STEM.film.mp4, or one of each a map of several."""
    writer.folder.mkdir(parents=True, exist_ok=True)
    first = found[0]
    stem = writer.names.take(Path(first.name).stem or "clip", first.name)
    pairs = [(one, target, name) for one in found for target, name in enumerate(_names(one))]
    maps = []
    for i, (one, target, name) in enumerate(pairs):
        own = f"{stem}.{one.map.method}.{name}"
        files = {"values": f"{own}.npy", **{kind: f"{stem if len(pairs) == 1 else own}.{end}" for kind, end in ENDS}}
        np.save(writer.folder / files["values"], one.values[:, target])  # T,h,w
        one.strip(target).save(writer.folder / files["strip"])
        one.save_film(
            writer.folder / files["film"],
            target,
            lambda done, total, i=i: advance(i * total + done, total * len(pairs)),  # type: ignore[misc]
        )
        maps.append(_row(one, target, files))
    writer.rows.append({**about(first.map.shown[0]), **_frames(first), "maps": maps})
    reasons = [row["diagnosis"] for row in maps if row["diagnosis"] is not None]
    writer.blank.update(reasons)
    writer.explained += len(reasons) < len(maps)
    writer.now_and_then()


def _names(one: Watched) -> list[str]:
    """The targets, as parts of file names."""
    names = Names()
    return [names.take(target, str(place)) for place, target in enumerate(one.map.targets[0])]


ENDS = (("strip", "strip.png"), ("film", "film.mp4"))


def _frames(one: Watched) -> dict[str, Any]:
    return {
        "rate": one.rate,
        "frames": [{"number": number, "time": time} for number, time in zip(one.numbers, one.times, strict=True)],
        "notes": list(one.notes),
    }


def _row(one: Watched, target: int, files: dict[str, str]) -> dict[str, Any]:
    """As of a picture, with a loss, a probability and boxes for each frame."""
    seen = one.map
    losses = None if seen.loss is None else seen.loss[0, :, target].float().cpu().tolist()
    return {
        "target": seen.targets[0][target],
        "class": seen.classes[0][target],
        "probability": finite(one.share[target]) if one.share else None,
        "probabilities": [finite(row[target]) for row in one.shares if row] or None,
        "method": seen.method,
        "layer": seen.layer,
        "solver": seen.solver,
        "loss": None if losses is None else list(map(finite, losses)),
        "iterations": seen.iterations,
        "boxes": [[box.tolist()] if box.any() else [] for box in one.boxes()[:, target]],
        "diagnosis": seen.diagnosis[0][target],
        "note": seen.note or None,
        "files": files,
    }
