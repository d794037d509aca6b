"""Sounds from .wav files, at the rate that a network takes."""

import math
import os
import wave
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fovea.basics.errors import FoveaError

ADVICE = "write it as .wav with 8, 16, 24 or 32 bits a sample, not as floats"


class BadSound(FoveaError):
    """A sound that cannot be read."""


def read_sound(path: str | Path, rate: int = 8000) -> Tensor:
    """Values within ±1, one a sample at `rate`; channels are averaged."""
    from scipy.signal import resample_poly  # which takes a second to import

    path = Path(path).expanduser()
    if path.is_dir():
        raise BadSound(f"{path} is a folder; give a .wav file")
    if not path.is_file():
        raise BadSound(f"no sound {str(path)!r}")
    try:
        with wave.open(os.fspath(path), "rb") as file:
            about = file.getparams()
            data = file.readframes(about.nframes)
    except OSError as error:
        raise BadSound(f"{path} cannot be read: {error.strerror}") from None
    except (wave.Error, EOFError) as error:
        raise BadSound(f"{path} is not a plain PCM .wav file ({str(error) or 'it is cut short'}); {ADVICE}") from None
    if about.sampwidth not in (1, 2, 3, 4) or about.framerate < 1:
        raise BadSound(f"{path} has {8 * about.sampwidth} bits a sample, {about.framerate} Hz; {ADVICE}")
    whole = about.nframes * about.nchannels * about.sampwidth
    if len(data) < whole:
        raise BadSound(f"{path} is cut short: {len(data):,} bytes of sound where its header says {whole:,}")
    if not data:
        raise BadSound(f"{path} holds no samples")
    mono = _values(data, about.sampwidth).reshape(-1, about.nchannels).mean(1)
    shared = math.gcd(rate, about.framerate)
    if rate != about.framerate:
        mono = resample_poly(mono, rate // shared, about.framerate // shared)
    return torch.from_numpy(mono.astype(np.float32))


def _values(data: bytes, width: int) -> NDArray[np.float64]:
    """Little-endian whole numbers, signed but for bytes, as shares of the largest."""
    if width == 1:
        return (np.frombuffer(data, np.uint8) - 128.0) / 128
    parts = np.frombuffer(data, np.uint8).reshape(-1, width)
    padded = np.zeros((len(parts), 4), np.uint8)
    padded[:, 4 - width :] = parts  # in the upper bytes, which keeps the sign
    values: NDArray[np.float64] = padded.view("<i4")[:, 0] / 2.0**31
    return values
