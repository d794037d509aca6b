"""The XML that ImageNet and Stanford Dogs keep beside each picture: its size, and a name and a box per object.

Numbers there are 0-based and the last pixel counts (a picture 500 wide has 0 to 499), so that x1 = xmax + 1."""

from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from fovea.basics import BadPicture, contents, within
from fovea.data.samples import Box, inside

LONGEST = 1_000_000  # bytes of a file
MOST = 1e6  # pixels


@dataclass(frozen=True)
class Marked:
    """What one file says; `names` has one name an object."""

    names: tuple[str, ...]
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class XmlBoxes:
    """The boxes of one picture; without a file it has none."""

    folder: Path
    file: str

    @property
    def path(self) -> Path:
        return self.folder / self.file

    def read(self) -> tuple[Box, ...]:
        try:
            return read_marked(inside(self.folder, self.file)).boxes
        except FileNotFoundError:
            return ()


def read_marked(path: Path) -> Marked:
    names, boxes = [], []
    try:
        root = ElementTree.fromstring(contents(path, LONGEST))  # expat refuses entities that grow
        width, height = (float(root.findtext(f"size/{side}") or 0) for side in ("width", "height"))
        for item in root.iter("object"):
            x0, y0, x1, y1 = (float(item.findtext(f"bndbox/{side}") or "") for side in ("xmin", "ymin", "xmax", "ymax"))
            # some boxes end one pixel outside; a size of 0 says nothing
            boxes.append((max(x0, 0.0), max(y0, 0.0), min(x1 + 1, width or x1 + 1), min(y1 + 1, height or y1 + 1)))
            names.append((item.findtext("name") or "").strip())
            for side in boxes[-1]:
                within("a box's side", side, 0, MOST)
    except FileNotFoundError:
        raise
    except (OSError, ElementTree.ParseError, ValueError) as error:
        raise BadPicture(f"the boxes in {path} cannot be read: {error}") from None
    return Marked(tuple(names), tuple(boxes))
