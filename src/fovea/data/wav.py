"""Sounds from .wav files, at the rate that a network takes."""

import math
import os
import struct
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fovea.basics import FoveaError

if TYPE_CHECKING:
    from torch import Tensor

ADVICE = "write it as .wav with 8, 16, 24 or 32 bits per sample"


class BadSound(FoveaError):
    """A sound that cannot be read."""


def read_sound(path: str | Path, rate: int = 8000) -> "Tensor":
    """Values within ±1, one per sample at `rate`; channels are averaged."""
    import torch
    from scipy.io import wavfile
    from scipy.signal import resample_poly  # which takes a second to import

    path = Path(os.path.expanduser(path))
    if path.is_dir():
        raise BadSound(f"{path} is a folder; give a .wav file")
    if not path.is_file():
        raise BadSound(f"no sound {str(path)!r}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", wavfile.WavFileWarning)  # about parts that hold no sound
            warnings.filterwarnings("error", "Reached EOF", wavfile.WavFileWarning)
            own_rate, values = wavfile.read(path)
    except OSError as error:
        raise BadSound(f"{path} cannot be read: {error.strerror}") from None
    except wavfile.WavFileWarning as warning:
        raise BadSound(f"{path} is cut short: {warning}") from None
    except (ValueError, struct.error) as error:
        reason = error if isinstance(error, ValueError) and path.stat().st_size else "it is cut short"
        raise BadSound(f"{path} is not a .wav file that can be read ({reason}); {ADVICE}") from None
    if not len(values) or own_rate < 1:
        raise BadSound(f"{path} holds no samples")
    if values.dtype.kind != "f":  # whole numbers, signed but for bytes, as shares of the largest
        values = (values - 128.0) / 128 if values.dtype == np.uint8 else values / -float(np.iinfo(values.dtype).min)
    mono = values.reshape(len(values), -1).mean(1, dtype=np.float64)
    if rate != own_rate:
        shared = math.gcd(rate, own_rate)
        mono = resample_poly(mono, rate // shared, own_rate // shared)
    return torch.from_numpy(mono.astype(np.float32))
