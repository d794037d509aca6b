"""What goes wrong, said so that the reader knows what to do next."""

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST = 80  # characters of what was given that an error repeats


class FoveaError(Exception):
    """Anything fovea refuses to do; the message says what was given, what was expected and what to do."""


class BadPicture(FoveaError):
    """A picture that cannot be read; `passing`, for a reason that may be gone the next time (a disk that fails, no
    memory left), so that nothing may remember it as damaged."""

    def __init__(self, reason: str, passing: bool = False) -> None:
        super().__init__(reason)
        self.passing = passing


class BadText(FoveaError):
    """A text that cannot be read."""


class BadChoice(FoveaError, ValueError):
    """A name, number or option that does not exist."""


class Damaged(FoveaError):
    """A file of fovea's that does not hold what it should."""


class BadNetwork(FoveaError):
    """A network, or its weights file, that cannot be used as it is."""


class DoesNotApply(BadChoice, BadNetwork):
    """A method that this network, layer or target does not allow; others may be used. Where all methods were asked for,
    those that do not apply are reported, and the rest go on."""


def within(what: str, value: float, least: float, most: float) -> None:
    """Refuses a number before memory is taken for it; NaN is within nothing."""
    if not least <= value <= most:
        raise BadChoice(f"{what} is {least:,} to {most:,}; got {shown(value)}")


def shown(value: object) -> str:
    """What was given, in a line that is not too long."""
    try:
        text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    except (ValueError, RecursionError):  # Python writes no number of more than 4,300 digits, nor what is very deep
        return "what is too long, or too deep, to be shown"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}… ({len(text):,} characters)"


def nearest(given: str, choices: Iterable[str], most: int = 3) -> str:
    """'; did you mean …?' with the closest choices, or nothing when none is close."""
    given = given[:LONGEST]
    folded = {choice.lower(): choice for choice in choices}
    close = get_close_matches(given.lower(), folded, n=most, cutoff=0.5)
    inside = [name for name in folded if given.lower() in name and name not in close] if len(given) > 2 else []
    found = [repr(folded[name]) for name in (close + sorted(inside, key=len))[:most]]
    return f"; did you mean {' or '.join(found)}?" if found else ""
