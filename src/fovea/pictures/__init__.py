"""Pictures: decoding of everything a user gives, transforms, and where they put pixels."""

from fovea.pictures.decoding import (
    MAX_PIXELS as MAX_PIXELS,
)
from fovea.pictures.decoding import (
    Given,
    Picture,
    expand,
    from_array,
    gather,
    is_picture_name,
    open_lazily,
    read,
    read_all,
    read_bytes,
    tell_skipped,
    upright,
)

__all__ = [
    "MAX_PIXELS", "Given", "Picture", "expand", "from_array", "gather", "is_picture_name", "open_lazily", "read",
    "read_all", "read_bytes", "tell_skipped", "upright",
]  # fmt: skip
