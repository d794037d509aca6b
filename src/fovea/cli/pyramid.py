"""fovea pyramid."""

from fovea.basics import BadPicture
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, warn


@command(
    "pyramid",
    arguments=("picture", "to"),
    options=("lossless", "quality", "tile", "layout", "fresh"),
    help={"fresh": "Replace a file that is there."},
    examples=(
        "fovea pyramid huge.png huge.tif",
        "fovea pyramid scan.tif scan-tiled.tif --lossless",
    ),
)
def pyramid(asked: Asked) -> None:
    """Copy a picture of any size into a tiled TIFF, of which any part can be read without the rest.

    For 'fovea zoom' and 'fovea explain' of pictures too large to load. QuPath and QGIS read the file, too."""
    from fovea.pictures import open_big
    from fovea.pictures import pyramid as write

    options = {name: asked.values[name] for name in ("tile", "quality", "lossless", "layout", "fresh")}
    with bar(f"writing {asked.to.name}, percent") as advance:
        path = write(asked.picture, asked.to, **options, progress=advance)
    try:
        with open_big(path) as big:
            width, height = big.size
            what = f"{width:,} x {height:,}, {len(big.levels)} levels, "
    except BadPicture as reason:  # other programs may
        warn.print(f"fovea itself does not read what was written: {str(reason).split('; make')[0]}")
        what = ""
    say.print(f"{path}: {what}{path.stat().st_size / 1e6:,.1f} MB")
