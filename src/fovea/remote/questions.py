"""What a service may be asked, field by field, and what comes back: the service, its client and the command line all
read it here. Words and bounds are those of the command line. Nothing here waits for torch."""

from collections.abc import Callable
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from fovea import evidence, glimpses, networks, patches, remote
from fovea.basics import BOUNDS
from fovea.pictures.fits import FITS

LETTERS = 20_000  # of a text
PASSES = 600  # of one look, at most: a minute

Word: TypeAlias = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Fits: TypeAlias = Literal[tuple(FITS)]  # type: ignore[valid-type]
Fit: TypeAlias = Annotated[Fits | None, Field(description="How a picture of other proportions comes in.")]


def _number(name: str, about: str, most: float | None = None) -> Any:
    bound = BOUNDS[name]
    return Field(None, ge=bound.least, le=bound.most if most is None else most, description=about)


class Keeping(BaseModel):
    """A picture."""

    model_config = ConfigDict(extra="forbid")
    lists: ClassVar[tuple[str, ...]] = ()  # fields that take several values

    picture: Annotated[str, StringConstraints(min_length=1)] | None = Field(
        None, description="The file: as a part of a form, or in base64.", json_schema_extra={"format": "byte"}
    )
    name: Annotated[str, StringConstraints(max_length=1000)] | None = Field(None, description="What it is called.")


class Asking(Keeping):
    """What every verb takes."""

    verb: ClassVar[str]
    gives: ClassVar[Callable[[], type] | None] = None  # what a client reads, exactly; None where the service draws it
    gives_of_text: ClassVar[Callable[[], type] | None] = None

    picture_id: Word | None = Field(None, description="Instead of the file: one sent before, or example:NAME.")
    net: Word | None = Field(None, description="The network; the usual one of the verb if not given.")

    @property
    def kind(self) -> str:
        """The same for requests that may go through the network together."""
        return self.model_dump_json(exclude={"picture", "picture_id", "name", "net", "output", "text"})


class Looking(Asking):
    """One answer with all of its evidence: where, what is enough, what is needed, in words."""

    verb, gives = "look", lambda: evidence.Evidence
    method: Word | None = Field(None, description="Of the maps; what each cell adds to a logit if not given.")
    glimpses: int | None = _number("glimpses", "Parts of a large picture that are looked at closely.", 16)
    forwards: int | None = _number("forwards", "Passes through the network, at most; more find smaller parts.", PASSES)
    trust: bool = Field(True, description="Check the maps.")
    fit: Fit = None


class Explaining(Asking):
    """Where the network looks: a heatmap per method and class."""

    verb, gives, lists = "explain", lambda: remote.ExplainedPicture, ("method", "target")
    method: list[Word] = Field([], max_length=30, description="Methods; all share one pass through the trunk.")
    target: list[Word] = Field(
        [], max_length=20, description="Classes by name or index, top1, top5, contrast, 'A vs B', output."
    )
    applicable: bool = Field(False, description="Leave out methods that do not apply, and say why.")
    layer: Word | None = Field(None, description="Where to look; the last feature map if not given.")
    fit: Fit = None


class Localizing(Asking):
    """The patches of a picture, or the words of a text, that speak for a class."""

    verb, gives = "localize", lambda: patches.LocalizedPicture
    gives_of_text = lambda: patches.LocalizedText  # noqa: E731
    text: Annotated[str, StringConstraints(min_length=1, max_length=LETTERS)] | None = Field(
        None, description="Instead of a picture, for a network that reads texts."
    )
    count: int | None = _number("count", "At most so many patches (K).", 1000)
    overlap: float | None = _number("overlap", "Patches overlap by an IoU below this (T).")
    share: float | None = _number("share", "Among this share of the best cells (P).")
    branch: int | None = _number("branch", "By the branch of this side.")
    target: Word | None = Field(None, description="A class by name or index; the answer if not given.")
    method: Word | None = Field(None, description="Of the heatmap of a network without branches.")
    side: int | None = _number("side", "Of the patches of a network without branches, in its own pixels.")
    evidence: Literal["map", "crops", "few-crops"] | None = Field(
        None, description="Of a network without branches: its map, or crops that it sees alone."
    )
    fit: Fit = None


class Zooming(Asking):
    """The answer from a few regions read closely, and what reading them cost."""

    verb, gives = "zoom", lambda: glimpses.ZoomAnswer
    glimpses: int | None = _number("glimpses", "Regions read; as the network usually does if not given.", 64)
    until: float | None = _number("until", "Read no more once the answer is this certain.")
    order: Literal["best", "levels"] | None = Field(None, description="What is read next.")
    levels: int | None = _number("levels", "How deep.")
    budget_ms: float | None = _number("budget_ms", "Read no more once so many milliseconds would be spent.")
    budget_macs: float | None = _number("budget_macs", "Likewise of multiplications.")


class Predicting(Asking):
    """The best labels, with their probabilities."""

    verb, gives = "predict", lambda: networks.Prediction
    top: int = Field(5, ge=1, le=1000, description="So many labels.")
    fit: Fit = None


class Searching(Asking):
    """The nearest pictures of the index."""

    verb = "search"
    count: int | None = _number("count", "Neighbors; 8 if not given.", 100)


class Checking(Asking):
    """Whether the map changes when the network's weights are random, as it must."""

    verb = "sanity"
    method: Word | None = Field(None, description="The method to check.")
    fit: Fit = None


QUESTIONS = {kind.verb: kind for kind in (Looking, Explaining, Localizing, Zooming, Predicting, Searching, Checking)}
