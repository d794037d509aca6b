"""docs/networks.md: its lines run as they stand, with random weights built here."""

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from commands import ran

PAGE = Path(__file__).parents[3] / "docs/networks.md"


@pytest.fixture
def folder(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    vit: Any,
    vit_processor: Any,
    clip: Any,
    clip_processor: Any,
    photograph: Image.Image,
) -> Path:
    for name, parts in {"my-vit": (vit, vit_processor), "my-clip": (clip, clip_processor)}.items():
        for part in parts:
            part.save_pretrained(tmp_path / name)
    photograph.resize((320, 300)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_ten_lines(folder: Path) -> None:
    (lines,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    exec(compile(lines, str(PAGE), "exec"), {})
    assert sorted(path.name for path in (folder / "out").iterdir()) == ["boxes", "clip", "pixels", "vit"]
    assert all((folder / "out" / name / "index.html").is_file() for name in ("boxes", "clip", "pixels", "vit"))


def test_a_text_by_the_command_line(folder: Path) -> None:
    (line,) = re.findall(r"^```\nfovea (.*?)\n```$", PAGE.read_text(encoding="utf-8"), re.S | re.M)
    words = line.replace("FOLDER", "my-clip").partition(' --target "')
    done = ran([*words[0].split(), "--target", words[2].rstrip('"'), "--method", "gradcam"])
    assert "a red bicycle" in done.output
