"""Steps over texts or sounds as one sequence of results."""

import warnings
from collections.abc import Iterable, Mapping
from typing import Any

from fovea.basics import FoveaError
from fovea.results import Results, Step, T


def collected(steps: Iterable[Step[T]], kind: str, bad: type[FoveaError], settings: Mapping[str, Any]) -> Results[T]:
    """One result per text or sound; what cannot be read is warned about, and refused where there is nothing else."""
    done = list(steps)
    skipped = [pair for step in done for pair in step.skipped]
    found = [result for step in done for result in step.results]
    if not found:
        raise bad(skipped[0][1] if skipped else f"no {kind} was given")
    if skipped:
        warnings.warn(f"{len(skipped)} {kind}(s) skipped: {skipped[0][1]}", stacklevel=4)
    return Results(found, skipped, "localize", settings)
