"""How devices are spelled, which is checked before torch is imported."""

import re

from fovea.basics.errors import BadChoice, nearest, shown

DEVICES = ("auto", "cpu", "cuda", "mps", "xpu")


def spelled_device(given: object) -> str:
    """One of DEVICES, with its number where there are several: cuda:1."""
    text = str(given)
    kind, colon, number = text.partition(":")
    if kind not in DEVICES or (colon and (kind == "auto" or not re.fullmatch("[0-9]{1,3}", number))):
        near = nearest(kind, DEVICES)
        raise BadChoice(f"a device is {', '.join(DEVICES)}, or a numbered one, as cuda:1; got {shown(text)}{near}")
    return text
