"""fovea patches, which finds them in pictures and data sets."""

from typing import TYPE_CHECKING

from fovea.basics import BadChoice
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, tell_skipped, write
from fovea.cli.glossary import writable

if TYPE_CHECKING:
    from fovea.data import DataSet
    from fovea.patches import Extracted


@command(
    "patches",
    arguments=("pictures?",),
    options=("source", "data", "out", "split", "limit", "batch", "fit", "device", "fresh", "sheet", "json"),
    required=("source",),
    usual={"fit": "squash"},
    help={
        "pictures": "Picture files, folders, or patterns in quotes; no labels are needed.",
        "data": "A data set instead of pictures, as cub100:split=train.",
        "out": "The file for the patches; one below out/patches if not given.",
        "fresh": "Start over, and replace what the file holds.",
    },
    examples=(
        "fovea patches photos/ --source l2caf:efficientnet_lite0 --sheet sheet.jpg",
        "fovea patches --data cub100:split=train --source l2caf:efficientnet_lite0-cub100",
    ),
)
def patches(asked: Asked) -> None:
    """Find the patches that matter in every picture, without labels or boxes, and keep them in a file.

    The file is for networks that are trained on patches. Stopped at any moment, it goes on where it was."""
    if asked.out is not None:
        writable("--out", asked.out)
    if (asked.data is None) == (not asked.pictures):
        raise BadChoice("name pictures, as photos/, or a data set, as --data cub100:split=train: one of the two")
    if asked.pictures and asked.split:
        raise BadChoice("--split is for a data set (--data), and pictures have no splits: leave it out")
    from fovea.data import pictures_of
    from fovea.measures.figures import Figures
    from fovea.networks import device_of
    from fovea.patches import extract, open_source

    line = asked.one("source") + (f",fit={asked.fit_asked}" if asked.fit_asked else "")
    with bar(f"opening {line}"):
        source = open_source(line, device_of(asked.device))
    given = pictures_of(asked.pictures).first(asked.limit) if asked.pictures else asked.dataset()
    with bar(f"looking for patches in {given.name}", resumes=True) as advance:
        found = extract(given, source, asked.out, asked.batch, asked.fresh, progress=advance)
    tell_skipped(found.skipped)
    rows = [{"name": name, "patches": len(patches.boxes)} for name, patches in found.items()]
    settings = {"source": line, "data": given.name, "file": found.file.name}
    write(Figures("patches", settings, rows, found.skipped), asked.json)
    number = sum(len(patches.boxes) for patches in found.values())
    before = f", {found.already} pictures already there" if found.already else ""
    left_out = f", {len(found.skipped)} skipped" if found.skipped else ""
    say.print(f"{number} patches of {len(found)} pictures{before}{left_out}")
    _say_where(given, found)
    say.print(str(found.file))
    if asked.sheet:
        from fovea.patches.sheet import sheet
        from fovea.results import write_picture

        write_picture(asked.sheet, sheet(given, found))
        say.print(str(asked.sheet))


def _say_where(data: "DataSet", found: "Extracted") -> None:
    """Where true boxes are known, how many first patches have their center in one."""
    from fovea.measures.patch_sources import centers_inside

    boxed = [sample for sample in data.with_boxes().samples if sample.boxes and sample.name in found]
    if boxed:
        inside = sum(bool(centers_inside(found[sample.name], sample.boxes)[0]) for sample in boxed)
        say.print(f"center of the first patch in a true box: {inside / len(boxed):.3f} of {len(boxed)} pictures")
