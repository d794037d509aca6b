import struct
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.io import wavfile

from checks import raises
from fovea.data import BadSound, read_sound


def write(path: Path, data: bytes, width: int, channels: int = 1, rate: int = 8000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(data)
    return path


# silence, a half up, a half down, the lowest of all
@pytest.mark.parametrize(
    ("width", "data"),
    [
        (1, bytes([128, 192, 64, 0])),
        (2, struct.pack("<4h", 0, 2**14, -(2**14), -(2**15))),
        (3, b"".join(v.to_bytes(3, "little", signed=True) for v in (0, 2**22, -(2**22), -(2**23)))),
        (4, struct.pack("<4i", 0, 2**30, -(2**30), -(2**31))),
    ],
)
def test_whole_numbers_of_every_width(width: int, data: bytes, tmp_path: Path) -> None:
    assert read_sound(write(tmp_path / "a.wav", data, width)).tolist() == [0, 0.5, -0.5, -1]


def test_floats_are_taken_as_they_are(tmp_path: Path) -> None:
    wavfile.write(tmp_path / "a.wav", 8000, np.array([0, 0.5, -1], np.float32))
    assert read_sound(tmp_path / "a.wav").tolist() == [0, 0.5, -1]


def test_channels_are_averaged(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", struct.pack("<4h", 2**14, 0, -(2**14), -(2**14)), 2, channels=2)
    assert read_sound(path).tolist() == [0.25, -0.5]


def test_another_rate_keeps_the_pitch(tmp_path: Path) -> None:
    """One second of 1,000 Hz at 44,100 Hz becomes 8,000 samples, still with 1,000 periods."""
    tone = 0.5 * np.sin(2 * np.pi * 1000 * np.arange(44100) / 44100)
    path = write(tmp_path / "a.wav", np.rint(tone * 32767).astype("<i2").tobytes(), 2, rate=44100)
    sound = read_sound(path, 8000)
    assert sound.shape == (8000,)
    assert int(torch.fft.rfft(sound).abs().argmax()) == 1000
    assert float(sound.abs().max()) == pytest.approx(0.5, abs=0.03)


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    raises(BadSound, "no sound", read_sound, tmp_path / "none.wav")
    raises(BadSound, "is a folder", read_sound, tmp_path)
    (tmp_path / "text.wav").write_text("not a sound at all, but long enough")
    raises(BadSound, r"not a \.wav file that can be read", read_sound, tmp_path / "text.wav")
    (tmp_path / "empty.wav").write_bytes(b"")
    raises(BadSound, "cut short", read_sound, tmp_path / "empty.wav")
    raises(BadSound, "holds no samples", read_sound, write(tmp_path / "a.wav", b"", 2))
    whole = write(tmp_path / "b.wav", bytes(400), 2).read_bytes()
    (tmp_path / "b.wav").write_bytes(whole[:-100])
    raises(BadSound, r"cut short: .*finished at 344 bytes, expected 444", read_sound, tmp_path / "b.wav")
    floats = bytearray(whole)
    floats[20] = 3  # the format's number: floats
    (tmp_path / "c.wav").write_bytes(floats)
    raises(BadSound, r"16-bit floating-point data.*; write it as .wav with 8, 16", read_sound, tmp_path / "c.wav")
