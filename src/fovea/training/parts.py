"""What the parts of a recipe are made of: strict, frozen tables, and the kinds of numbers in them."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from fovea.basics import BOUNDS, Bound, plain, shown


def bounds(bound: Bound) -> Any:
    """As pydantic declares them."""
    return Field(ge=bound.least, le=bound.most)


def called(name: str) -> str:
    """What a network may be called: what may be a part of a file's name."""
    if plain(name) != name:
        raise ValueError(f"a name is made of letters, digits, - and _, such as {plain(name)!r}; got {shown(name)}")
    return name


Called = Annotated[str, AfterValidator(called)]
Share = Annotated[float, Field(ge=0, le=1)]
Smoothing = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, le=1e6)]  # rates, weights, epochs, seconds
NotNegative = Annotated[float, Field(ge=0, le=1e6)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Side = Annotated[int, bounds(BOUNDS["size"])]  # of pictures, in pixels
Batch = Annotated[int, bounds(BOUNDS["batch"])]


class Part(BaseModel):
    """No unknown keys, no guessing of types: a recipe that is read is a recipe that was meant."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
