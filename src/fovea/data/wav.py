"""Sounds from .wav files, at the rate that a network takes: what a file claims is checked before it is believed."""

import os
import struct
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fovea.basics import BOUNDS, FoveaError, demand_bounds

if TYPE_CHECKING:
    from torch import Tensor

ADVICE = "write it as .wav with 8, 16, 24 or 32 bits per sample"
ORDERS = {b"RIFF": "<", b"RF64": "<", b"RIFX": ">"}  # of bytes, by how a file begins
REAL, EXTENSIBLE = 3, 0xFFFE  # formats by their numbers
WIDTHS = {1: (1, 2, 3, 4), REAL: (4, 8)}  # bytes per sample: of whole numbers, of floats
CHANNELS, MOST = 64, 1 << 25  # the most channels, and samples of each: an hour at 8 kHz, 12 minutes at 44.1 kHz
CHUNKS = 1000  # before the samples begin
PART = 1 << 20  # values read at a time
FINEST = 1 << 16  # rates whose ratio has larger numbers are taken as the nearest one that has not
LOUDEST = 2.0**31  # of floats: some files hold whole numbers as such


class BadSound(FoveaError):
    """A sound that cannot be read."""


@dataclass(frozen=True)
class Format:
    order: str  # of bytes
    real: bool
    channels: int
    rate: int
    width: int  # bytes per sample of one channel

    def values(self, data: bytes) -> NDArray[np.float64]:
        """Samples as shares of the largest (N,channels)."""
        if self.real:
            found = np.frombuffer(data, f"{self.order}f{self.width}").astype(np.float64)
        elif self.width == 1:
            found = (np.frombuffer(data, np.uint8) - 128.0) / 128
        elif self.width == 3:
            wide = np.zeros((len(data) // 3, 4), np.uint8)  # as 32 bits, of which the last 8 are 0
            wide[:, 1:] = np.frombuffer(data, np.uint8).reshape(-1, 3)[:, :: 1 if self.order == "<" else -1]
            found = wide.view("<i4")[:, 0] / 2.0**31
        else:
            found = np.frombuffer(data, f"{self.order}i{self.width}") / 2.0 ** (8 * self.width - 1)
        return found.reshape(-1, self.channels)


def read_sound(path: str | Path, rate: int = 8000) -> "Tensor":
    """Values within ±1, one per sample at `rate`; channels are averaged."""
    import torch
    from scipy.signal import resample_poly  # which takes a second to import

    demand_bounds({"rate": rate})
    path = Path(os.path.expanduser(path))
    if path.is_dir():
        raise BadSound(f"{path} is a folder; give a .wav file")
    if not path.is_file():
        raise BadSound(f"no sound {str(path)!r}")
    try:
        with open(path, "rb") as file:
            form, mono = _mono(file)
    except OSError as error:
        raise BadSound(f"{path} cannot be read: {error.strerror}") from None
    except (EOFError, struct.error) as error:
        raise BadSound(f"{path} is cut short{f': {error}' if isinstance(error, EOFError) else ''}") from None
    except ValueError as error:
        raise BadSound(f"{path} is not a .wav file that can be read ({error}); {ADVICE}") from None
    if not len(mono):
        raise BadSound(f"{path} holds no samples")
    if rate != form.rate:
        if len(mono) * rate > MOST * form.rate:
            raise BadSound(f"{path} would have more than {MOST:,} samples at {rate:,} Hz; cut it")
        low, high = sorted((rate, form.rate))
        ratio = Fraction(low, high).limit_denominator(FINEST)
        down, up = sorted(ratio.as_integer_ratio(), reverse=rate < form.rate)
        mono = resample_poly(mono, up, down)
    return torch.from_numpy(mono.astype(np.float32))


def _mono(file: IO[bytes]) -> tuple[Format, NDArray[np.float64]]:
    """The format, and the mean of the channels; read in parts, so that no claim of the file's takes memory."""
    size = os.fstat(file.fileno()).st_size
    kind = file.read(12)
    if kind[:4] not in ORDERS or kind[8:12] != b"WAVE":
        raise ValueError("it does not begin as one") if len(kind) == 12 else EOFError(f"it has {size} bytes")
    order, form, long = ORDERS[kind[:4]], None, 0
    for _ in range(CHUNKS):
        name, length = struct.unpack(f"{order}4sI", file.read(8))
        start = file.tell()
        if name == b"data" and form is not None:
            length = long if kind[:4] == b"RF64" and length == 0xFFFFFFFF else length
            return form, _averaged(file, form, start, length, size)
        if start + length > size:
            raise EOFError(f"it has {size:,} bytes of at least {start + length:,}")
        if name == b"fmt ":
            form = _format(order, file.read(min(length, 40)))
        elif name == b"ds64":
            (long,) = struct.unpack("<8xQ", file.read(16))
        file.seek(start + length + length % 2)
    raise ValueError(f"there are no samples in its first {CHUNKS:,} parts")


def _format(order: str, data: bytes) -> Format:
    kind, channels, rate, _, step, bits = struct.unpack(f"{order}HHIIHH", data[:16])
    if kind == EXTENSIBLE:
        kind = struct.unpack(f"{order}H", data[24:26])[0]
    width, widths, slow, fast = step // max(channels, 1), WIDTHS.get(kind), BOUNDS["rate"].least, BOUNDS["rate"].most
    if widths is None:
        raise ValueError(f"its format is number {kind:#x}: neither whole numbers nor floats")
    if not (1 <= channels <= CHANNELS and slow <= rate <= fast):
        few = f"1 to {CHANNELS} of {slow:,} to {fast:,} are read"
        raise ValueError(f"it has {channels:,} channels of {rate:,} Hz; {few}")
    if width * channels != step or not 1 <= bits <= 8 * width or width not in widths:
        raise ValueError(f"it has {bits}-bit {'floating-point' if kind == REAL else 'whole-number'} data")
    return Format(order, kind == REAL, channels, rate, width)


def _averaged(file: IO[bytes], form: Format, start: int, length: int, size: int) -> NDArray[np.float64]:
    step = form.width * form.channels
    if start + length > size:
        raise EOFError(f"its samples finish at {size:,} bytes, expected {start + length:,}")
    if length % step or length // step > MOST:
        raise ValueError(f"its samples are {length:,} bytes; a multiple of {step} up to {MOST * step:,} is read")
    found = np.empty(length // step)
    for first in range(0, len(found), PART // form.channels):
        count = min(PART // form.channels, len(found) - first)
        data = file.read(count * step)
        if len(data) < count * step:
            raise EOFError("it shrank while it was read")
        found[first : first + count] = form.values(data).mean(1)
    if form.real and not (np.abs(found) <= LOUDEST).all():
        raise ValueError("some of its samples are infinite, no numbers, or far too large")
    return found
