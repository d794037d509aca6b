"""Networks that are called the same but for a last -seed<N>: one training repeated."""

import re

SEED = re.compile(r"(.+)-seed(\d+)")


def of(name: str) -> tuple[str, str]:
    """What a network is called without its seed, and the seed; a name without one is itself, and its seed empty."""
    named = SEED.fullmatch(name)
    return (named[1], named[2]) if named else (name, "")
