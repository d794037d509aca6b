"""Clips whose every pixel is known."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray
from PIL import Image

STEP = 8  # gray levels from one frame to the next


def picture(number: int, size: tuple[int, int] = (64, 48)) -> NDArray[np.uint8]:
    """Gray that tells the frame's number; the left upper quarter is red, so that a turned frame shows."""
    width, height = size
    pixels = np.full((height, width, 3), number * STEP % 256, np.uint8)
    pixels[: height // 2, : width // 2] = (255, 0, 0)
    return pixels


def told(image: Image.Image) -> int:
    """The number that a frame was made with."""
    middle = np.asarray(image)[-image.height // 4, -image.width // 4].mean()
    return round(float(middle) / STEP)


def make_clip(
    path: Path,
    count: int = 20,
    size: tuple[int, int] = (64, 48),
    rate: int = 10,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    rotation: float | None = None,
    stamps: list[int] | None = None,  # milliseconds
    options: dict[str, str] | None = None,
    container: str | None = None,
    faststart: bool = True,
    paint: Callable[[int, tuple[int, int]], NDArray[np.uint8]] = picture,
) -> Path:
    with av.open(str(path), "w", format=container, options={"movflags": "faststart"} if faststart else {}) as file:
        stream = file.add_stream(codec, rate=rate, options=options or {})
        stream.width, stream.height, stream.pix_fmt = *size, pixels
        if rotation is not None:
            stream.set_display_rotation(rotation)
        if stamps is not None:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(count):
            frame = av.VideoFrame.from_ndarray(paint(number, size))
            if stamps is not None:
                frame.pts, frame.time_base = stamps[number], Fraction(1, 1000)
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path
