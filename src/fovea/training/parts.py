"""What the parts of a recipe are made of: strict, frozen tables, and the kinds of numbers in them."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Name = Annotated[str, Field(min_length=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Smoothing = Annotated[float, Field(ge=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=1)]
Range = Annotated[list[float], Field(min_length=2, max_length=2)]


class Part(BaseModel):
    """No unknown keys, no guessing of types: a recipe that is read is a recipe that was meant."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
