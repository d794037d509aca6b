"""What the parts of a recipe are made of: strict, frozen tables, and the kinds of numbers in them."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from fovea.basics import BOUNDS, SEED, Bound


def bounds(bound: Bound) -> Any:
    """As pydantic declares them."""
    return Field(ge=bound.least, le=bound.most)


Name = Annotated[str, Field(min_length=1, max_length=10_000)]
Share = Annotated[float, Field(ge=0, le=1)]
Smoothing = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0, le=1e6)]  # rates, weights, epochs, seconds
NotNegative = Annotated[float, Field(ge=0, le=1e6)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Side = Annotated[int, bounds(BOUNDS["size"])]  # of pictures, in pixels
Batch = Annotated[int, bounds(BOUNDS["batch"])]
Seed = Annotated[int, bounds(SEED)]
Threads = Annotated[int, Field(ge=1, le=512)]  # each takes room for its stack
Workers = Annotated[int, bounds(BOUNDS["workers"])]
Range = Annotated[list[NotNegative], Field(min_length=2, max_length=2)]


class Part(BaseModel):
    """No unknown keys, no guessing of types: a recipe that is read is a recipe that was meant."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
