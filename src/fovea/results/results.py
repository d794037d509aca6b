"""What every verb gives: a sequence with one result per picture, which shows, saves and describes itself."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, Protocol, Self, TypeVar, overload, runtime_checkable

from PIL import Image

from fovea.basics import write_text
from fovea.pictures import Shown, tell_skipped
from fovea.results.drawing import Size
from fovea.results.views import Panel, View
from fovea.results.writing import Skipped, Writer, page_text, write_picture


@runtime_checkable
class Result(Protocol):
    """One picture, text, sound or clip: what it is taken for, and the evidence."""

    @property
    def name(self) -> str:
        """The file's path, or what stands for it."""
        ...

    @property
    def label(self) -> str: ...

    @property
    def probability(self) -> float | None: ...

    @property
    def boxes(self) -> Any:
        """Where the evidence is, x0 y0 x1 y1 in the user's own pixels (or its span); one row per target, patch, …"""
        ...

    def draw(self) -> Image.Image: ...

    def to_dict(self) -> dict[str, Any]:
        """Everything that is not a picture, as JSON takes it."""
        ...

    def view(self) -> View:
        """What a page shows of it."""
        ...

    def files(self, folder: Path, stem: str, size: Size = None) -> dict[str, Any]:
        """Write this result's pictures and values under names that begin with `stem`; names by what they hold. Overlays
        are of this size."""
        ...


T = TypeVar("T", bound=Result)
T_co = TypeVar("T_co", bound=Result, covariant=True)


@dataclass(frozen=True)
class Step(Generic[T_co]):
    """Some inputs done: their results, and what could not be read."""

    results: Sequence[T_co]
    skipped: Skipped
    done: int
    total: int


class Results(Sequence[T_co]):
    """One result per picture, in the order given; `skipped` names those that could not be read, and why.

    Where the whole batch has one tensor of values, `values` is it.
    """

    writer: ClassVar[type[Writer]] = Writer

    def __init__(
        self,
        items: Iterable[T_co],
        skipped: Skipped = (),
        what: str = "results",  # the verb
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._items, self.skipped = tuple(items), tuple(skipped)
        self.what = what
        self.settings: Mapping[str, Any] = dict(settings or {})

    @property
    def items(self) -> tuple[T_co, ...]:
        return self._items

    @classmethod
    def of(cls, steps: Iterable[Step[T_co]], what: str, settings: Mapping[str, Any] | None = None) -> Self:
        """All steps together; a warning where some inputs could not be read, an error where none could."""
        items: list[T_co] = []
        skipped: list[tuple[str, str]] = []
        for step in steps:
            items += step.results
            skipped += step.skipped
        tell_skipped(bool(items), skipped, stacklevel=4)
        return cls(tuple(items), tuple(skipped), what, dict(settings or {}))

    @overload
    def __getitem__(self, index: int) -> T_co: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[T_co]: ...

    def __getitem__(self, index: int | slice) -> T_co | Sequence[T_co]:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[T_co]:
        return iter(self.items)

    def save(self, folder: str | Path, files: bool | Literal["full"] = False) -> list[dict[str, Any]]:
        """A page (index.html, with its pictures in a folder beside it) and results.json; the rows come back.

        `files` asks for loose pictures and arrays of values, too; "full" for overlays at the pictures' own size.
        What the folder held of other pictures, verbs and settings stays.
        """
        with self.writer(Path(folder), self.what, self.settings, files) as writer:
            writer.add(self.items, self.skipped)
        tell_skipped(True, writer.skipped[len(self.skipped) :])
        return writer.rows

    def html(self) -> str:
        """One page with the pictures inside."""
        return page_text(self.what, self.settings, self.items, self.skipped)

    def page(self, file: str | Path) -> Path:
        """The same as a file, to open in a browser or to send on."""
        write_text(Path(file), self.html())
        return Path(file)

    def __repr__(self) -> str:
        left = f", {len(self.skipped)} skipped" if self.skipped else ""
        first = f": {self.items[0].name} {said(self.items[0])}" if self.items else ""
        more = ", …" if len(self.items) > 1 else ""
        return f"<{self.what}: {len(self)} result{'' if len(self) == 1 else 's'}{left}{first}{more}>"

    def _repr_png_(self) -> bytes | None:
        return png(self.items[0].draw()) if self.items else None


def said(result: Result) -> str:
    """The answer in words: the label and its probability."""
    share = result.probability
    return result.label if share is None else f"{result.label} {share:.2f}"


def png(image: Image.Image) -> bytes:
    buffer = BytesIO()
    image.save(buffer, "png")
    return buffer.getvalue()


class Shows:
    """How a result shows itself: in a notebook as its picture, in a shell in one line, in a folder as a file."""

    saved_as: ClassVar[tuple[str, str]] = ("figure", "figure.png")  # what the file is, and how its name ends

    def _repr_png_(self: Result) -> bytes:  # type: ignore[misc]
        return png(self.draw())

    def __repr__(self: Result) -> str:  # type: ignore[misc]
        return f"<{type(self).__name__} {self.name}: {said(self)}>"

    def view(self: Any) -> View:
        return View((Panel(self.draw),))

    def line(self: Result) -> str:  # type: ignore[misc]
        """In a line: the label, its probability, and what else there is to say."""
        return ", ".join(filter(None, (said(self), self.view().words)))

    def files(self: Any, folder: Path, stem: str, size: Size = None) -> dict[str, Any]:
        kind, end = self.saved_as
        write_picture(folder / f"{stem}.{end}", self.draw(), quality=88)  # of a .jpg
        return {kind: f"{stem}.{end}"}


class ShowsBoxes(Shows):
    """A result with the picture that its boxes are of."""

    shown: Shown

    @property
    def name(self) -> str:
        return self.shown.name

    def crops(self: Any) -> list[Image.Image]:
        """The boxes, cut out of the user's own picture; those of a big file shrunk where they are large."""
        return self.shown.parts(self.boxes)
