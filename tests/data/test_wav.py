import struct
import tempfile
import tracemalloc
import wave
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import wavfile

from checks import raises
from fovea.data import BadSound, read_sound, wav


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
    raises(BadSound, r"cut short: .*finish at 344 bytes, expected 444", read_sound, tmp_path / "b.wav")
    floats = bytearray(whole)
    floats[20] = 3  # the format's number: floats
    (tmp_path / "c.wav").write_bytes(floats)
    raises(BadSound, r"16-bit floating-point data.*; write it as .wav with 8, 16", read_sound, tmp_path / "c.wav")


@pytest.mark.parametrize("kind", ["u1", "i2", "i4", "f4", "f8"])
@pytest.mark.parametrize("channels", [1, 2, 5])
def test_numbers_are_those_that_scipy_reads(kind: str, channels: int, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(wav, "PART", 64)  # in many parts
    random = np.random.default_rng(channels)
    wave = random.uniform(-1, 1, (333, channels))
    scale = 1 if kind[0] == "f" else 127 if kind == "u1" else 2.0 ** (8 * int(kind[1]) - 1) - 1
    values = (wave * scale + (128 if kind == "u1" else 0)).astype(kind)
    wavfile.write(tmp_path / "a.wav", 8000, values)
    read = wavfile.read(tmp_path / "a.wav")[1]
    if kind[0] != "f":
        read = (read - 128.0) / 128 if kind == "u1" else read / -float(np.iinfo(kind).min)
    expected = read.reshape(333, -1).mean(1, dtype=np.float64).astype(np.float32)
    assert np.array_equal(read_sound(tmp_path / "a.wav").numpy(), expected)


Piece = tuple[bytes, int, bytes]


def riff(*parts: Piece, start: bytes = b"RIFF") -> bytes:
    """A file of parts, each with the length that it claims."""
    order = ">" if start == b"RIFX" else "<"
    body = b"".join(struct.pack(f"{order}4sI", name, length) + data for name, length, data in parts)
    return struct.pack(f"{order}4sI4s", start, len(body) + 4, b"WAVE") + body


def fmt(
    kind: int = 1, channels: int = 1, rate: int = 8000, bits: int = 16, order: str = "<"
) -> tuple[bytes, int, bytes]:
    step = channels * (bits // 8)
    return b"fmt ", 16, struct.pack(f"{order}HHIIHH", kind, channels, rate, rate * step & 0xFFFFFFFF, step, bits)


DATA = (b"data", 8, bytes(8))
HOSTILE = {
    "prime rate": (riff(fmt(rate=4294967291), DATA), "4,294,967,291 Hz; 1 to 64 of 1,000 to 768,000"),
    "no rate": (riff(fmt(rate=0), DATA), "0 Hz"),
    "no channels": (riff(fmt(channels=0), DATA), "0 channels"),
    "many channels": (riff(fmt(channels=65535, bits=8), DATA), "65,535 channels"),
    "no bits": (riff(fmt(bits=0), DATA), "0-bit"),
    "odd bits": (riff(fmt(bits=40), DATA), "40-bit"),
    "compressed": (riff(fmt(kind=0x55), DATA), "number 0x55"),
    "claims 4 GB": (riff(fmt(), (b"data", 0xFFFFFFF0, bytes(8))), "cut short: its samples finish at 52 bytes"),
    "claims a part of 4 GB": (riff((b"LIST", 0xFFFFFFF0, b""), fmt(), DATA), "cut short: it has"),
    "half a sample": (riff(fmt(), (b"data", 7, bytes(8))), "a multiple of 2"),
    "no format": (riff(DATA), "cut short"),
    "short format": (riff((b"fmt ", 4, bytes(4)), DATA), "cut short"),
    "a million parts": (riff(*[(b"junk", 0, b"")] * 5000, fmt(), DATA), "no samples in its first 1,000 parts"),
    "not numbers": (riff(fmt(kind=3, bits=32), (b"data", 4, struct.pack("<f", np.nan))), "no numbers"),
    "infinite": (riff(fmt(kind=3, bits=64), (b"data", 8, struct.pack("<d", np.inf))), "infinite"),
    "absurdly loud": (riff(fmt(kind=3, bits=64), (b"data", 8, struct.pack("<d", 1e300))), "far too large"),
    "long, by its table": (riff((b"ds64", 16, struct.pack("<QQ", 1, 2**60)), fmt(), (b"data", 2**32 - 1, b""),
                                start=b"RF64"), "cut short"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_claims_are_not_believed(name: str, tmp_path: Path) -> None:
    content, words = HOSTILE[name]
    (tmp_path / "a.wav").write_bytes(content)
    tracemalloc.start()
    raises(BadSound, words, read_sound, tmp_path / "a.wav")
    assert tracemalloc.get_traced_memory()[1] < 50e6
    tracemalloc.stop()


def test_other_orders_and_long_files(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(riff(fmt(order=">"), (b"data", 4, struct.pack(">2h", 2**14, 0)), start=b"RIFX"))
    assert read_sound(tmp_path / "a.wav").tolist() == [0.5, 0]
    table = (b"ds64", 16, struct.pack("<QQ", 0, 4))
    long = riff(table, fmt(), (b"data", 2**32 - 1, struct.pack("<2h", 2**14, 0)), start=b"RF64")
    (tmp_path / "b.wav").write_bytes(long)
    assert read_sound(tmp_path / "b.wav").tolist() == [0.5, 0]
    (tmp_path / "c.wav").write_bytes(riff(fmt(), (b"data", 2**31, b"")))
    with open(tmp_path / "c.wav", "r+b") as file:
        file.truncate(2**31 + 44)  # sparse: two gigabytes that take no room
    raises(BadSound, "its samples are 2,147,483,648 bytes", read_sound, tmp_path / "c.wav")


@pytest.mark.parametrize(("own", "rate"), [(767_957, 8000), (1009, 768_000), (44_101, 8000), (8000, 22_050)])
def test_rates_that_share_no_divisor(own: int, rate: int, tmp_path: Path) -> None:
    """A quarter of a second of 100 Hz keeps its length and its periods; the filter stays small."""
    tone = 0.5 * np.sin(2 * np.pi * 100 * np.arange(own // 4) / own)
    path = write(tmp_path / "a.wav", np.rint(tone * 32767).astype("<i2").tobytes(), 2, rate=own)
    sound = read_sound(path, rate)
    assert abs(len(sound) - rate / 4) <= rate / own + 1
    assert int(torch.fft.rfft(sound).abs().argmax()) == 25
    raises(BadSound, "more than 1,000 samples at", shortened, path)


def shortened(path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wav, "MOST", 1000)
        patch.setattr(wav, "_mono", lambda file: (wav.Format("<", False, 1, 1000, 2), np.zeros(900)))
        read_sound(path, 8000)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_of_a_file_is_read_or_refused(draw: st.DataObject) -> None:
    content = bytearray(riff(fmt(channels=2, bits=24), (b"LIST", 4, bytes(4)), (b"data", 60, bytes(60))))
    for _ in range(draw.draw(st.integers(1, 4))):
        content[draw.draw(st.integers(0, len(content) - 1))] = draw.draw(st.integers(0, 255))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.wav")
        path.write_bytes(content[: draw.draw(st.integers(0, len(content)))])
        with suppress(BadSound):
            assert torch.isfinite(read_sound(path)).all()
