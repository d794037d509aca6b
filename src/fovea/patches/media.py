"""What is localized in: pictures, text or sounds. What a word of a command stands for, and what each medium takes."""

import glob
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fovea.basics import BadChoice, BadText, contents, nearest
from fovea.pictures import is_picture_name

if TYPE_CHECKING:
    from fovea.networks import Network

LONGEST = 1 << 26  # bytes of a file of texts
Medium = Literal["pictures", "texts", "sounds"]
TAKES: Mapping[Medium, Collection[str]] = {
    "pictures": ("count", "overlap", "share", "branch", "target", "method", "side", "evidence"),
    "texts": ("branch", "target"),
    "sounds": ("count",),
}


@dataclass(frozen=True)
class Media:
    """What was given, by its medium; `missing` are files that are not there, and why that is thought."""

    pictures: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    sounds: tuple[str, ...] = ()
    missing: tuple[tuple[str, str], ...] = ()

    @property
    def present(self) -> list[Medium]:
        named: dict[Medium, Sequence[str]] = {"pictures": self.pictures, "texts": self.texts, "sounds": self.sounds}
        return [medium for medium, given in named.items() if given]


def sort_out(given: Sequence[str]) -> Media:
    """Files by what they hold, a .txt file as one text per line; words that look like no path are a text."""
    pictures, texts, sounds, missing = list[str](), list[str](), list[str](), list[tuple[str, str]]()
    for word in given:
        path = Path(os.path.expanduser(word))
        suffix = path.suffix.lower()
        if not (word and _exists(path)):  # nothing is no path, though Path takes it for the folder word stands in
            if not _looks_like_path(word):
                texts.append(word)
            elif glob.has_magic(word):
                pictures.append(word)  # none may match, which is told where it is looked for
            else:
                missing.append((word, _not_there(word, path)))
        elif suffix == ".txt" and path.is_file():
            try:
                texts += _lines(path)
            except (OSError, BadChoice, BadText) as reason:
                missing.append((word, str(reason)))
        elif suffix == ".wav" and path.is_file():
            sounds.append(word)
        else:
            pictures.append(word)
    return Media(tuple(pictures), tuple(texts), tuple(sounds), tuple(missing))


def refuse_unused(media: Collection[Medium], options: Mapping[str, Any]) -> None:
    """An option that would change nothing is an error, not a silence."""
    for name, value in options.items():
        if value is not None and not any(name in TAKES[medium] for medium in media):
            takers = [medium for medium, names in TAKES.items() if name in names]
            raise BadChoice(f"{name} is for {' and '.join(takers)}, not for {' or '.join(media)}; leave {name} out")


def medium_of(network: "Network") -> Medium:
    return "texts" if network.can("texts") else "sounds" if network.can("sounds") else "pictures"


def _exists(path: Path) -> bool:
    try:
        return path.exists() or path.is_symlink()
    except (OSError, ValueError):  # a text may be longer than a path can be
        return False


def _looks_like_path(word: str) -> bool:
    """A name with a file's ending, or one word with a separator; a glob that matches something, too."""
    path = Path(word)
    # a sentence has no ending, and Pillow's formats need not be asked, which takes a while
    if re.search(r"\w\.\w{2,5}$", word) and (path.suffix.lower() in (".txt", ".wav") or is_picture_name(path)):
        return True
    if " " not in word.strip() and any(mark in word for mark in (os.sep, os.altsep or os.sep)):
        return True
    return glob.has_magic(word) and any(True for _ in glob.iglob(os.path.expanduser(word)))


def _not_there(word: str, path: Path) -> str:
    try:
        neighbors = [file.name for file in path.parent.iterdir()] if path.parent.is_dir() else []
    except OSError:
        neighbors = []
    where = "" if path.parent.is_dir() else f" (nor a folder {str(path.parent)!r})"
    return f"no file or folder {word!r}{where}{nearest(path.name, neighbors)}"


def _lines(path: Path) -> list[str]:
    """The lines with anything on them."""
    data = contents(path, LONGEST)
    if b"\0" in data:
        raise BadText(f"{path} is no text file: it holds zero bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    found = [line.strip() for line in text.split("\n") if line.strip()]
    if not found:
        raise BadText(f"{path} holds no text")
    return found
