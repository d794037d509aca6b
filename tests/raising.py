from collections.abc import Callable

import pytest


def raises(error: type[Exception], words: str, call: Callable[..., object], /, *given: object, **how: object) -> None:
    """The call is refused, in words that match."""
    with pytest.raises(error, match=words):
        call(*given, **how)
