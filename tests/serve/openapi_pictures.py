"""What schemathesis sends where the schema says that a picture comes: no schema can say what one is."""

from base64 import b64encode
from io import BytesIO

import schemathesis
from hypothesis import strategies as st
from PIL import Image


def _picture(kind: str, width: int, height: int) -> bytes:
    buffer = BytesIO()
    Image.linear_gradient("L").resize((width, height)).convert("RGB").save(buffer, kind)
    return buffer.getvalue()


PICTURES = [
    _picture(kind, *size) for kind in ("png", "jpeg", "webp", "tiff") for size in ((40, 30), (128, 128), (2, 90))
]

schemathesis.openapi.format("binary", st.sampled_from(PICTURES))
schemathesis.openapi.format("byte", st.sampled_from([b64encode(picture).decode() for picture in PICTURES]))
