"""fovea explain, for clips."""

import glob
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fovea.basics.errors import BadPicture
from fovea.cli.common import bar, warn

if TYPE_CHECKING:
    from fovea.heatmaps.explain import Method
    from fovea.heatmaps.writing import Writer
    from fovea.networks.network import Network


def apart(given: Sequence[str]) -> tuple[list[str], list[Path]]:
    """What pictures, and which clips, were named: files, folders and globs may hold both."""
    from fovea.pictures import expand

    pictures: list[str] = []
    clips: list[Path] = []
    for one in given:
        own = list(_clips(one))
        clips += own
        try:
            pictures += [str(path) for path in expand(one) if path not in own] if own else [one]
        except BadPicture:  # clips alone
            continue
    return pictures, clips


def _clips(given: str) -> Iterator[Path]:
    from fovea.pictures.clips import is_clip

    path = Path(given).expanduser()
    if path.is_dir():
        for root, folders, files in os.walk(path):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            yield from (
                Path(root, name) for name in sorted(files) if not name.startswith(".") and is_clip(Path(root, name))
            )
    elif path.exists():
        yield from [path] if is_clip(path) else []
    elif glob.has_magic(given):
        yield from (
            hit for hit in map(Path, sorted(glob.glob(str(path), recursive=True))) if hit.is_file() and is_clip(hit)
        )


def watch_clips(
    network: "Network",
    clips: Sequence[Path],
    methods: Sequence["Method"],
    target: Any,
    layer: str | None,
    frames: int | None,
    every: int | None,
    batch: int,
    max_pixels: int,
    writer: "Writer",
) -> None:
    """Strip, film, values and a row of the manifest for each; one that cannot be read is reported, and skipped."""
    from fovea.video.watch import reel_of, watch_reel
    from fovea.video.writing import add

    for number, path in enumerate(clips, 1):
        which = f"{path.name} ({number} of {len(clips)})" if len(clips) > 1 else path.name
        try:
            reel = reel_of(path, frames, every, max_pixels=max_pixels)
            with bar(f"explaining {which}") as advance:
                found = watch_reel(network, reel, methods, target, layer, batch, advance=advance)
            for note in found[0].notes:
                warn.print(f"note: {note}", markup=False)
            with bar(f"drawing {which}") as advance:
                add(writer, found, advance)
        except BadPicture as reason:
            writer.skipped.append((str(path), str(reason)))
