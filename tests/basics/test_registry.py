"""One registry idiom: declared without running, checked at the door, open to a stranger's file."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fovea.basics import BadChoice, Entry, Registry

FILE = '''
"""A stranger's file."""
import things

@things.thing("bold", about="a bold thing", options={"size": 3}, loud=True)
class Bold:
    def __init__(self, size): self.size = size

def plain():
    """A function that nobody declared."""
    return 1
'''


def made(entry: Entry, thing: Any) -> Any:
    if not callable(thing):
        raise BadChoice(f"thing {entry.name}: give something to call")
    return thing(**entry.options)


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry[Any]:
    registry = Registry("thing", (), made)
    for name in ("strange", "things"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "things", type(sys)("things"))
    sys.modules["things"].thing = registry  # type: ignore[attr-defined]
    (tmp_path / "strange.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    return registry


def test_a_strangers_thing_by_reference_then_by_its_plain_name(thing: Registry[Any]) -> None:
    assert thing.get("strange:bold").size == 3
    assert thing.get("bold") is thing.get("strange:Bold")  # made once, by any of its names
    assert (thing.entry("bold").about, thing.entry("bold").traits) == ("a bold thing", {"loud": True})
    assert thing.get("strange:plain") == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bald", r"no thing 'bald'; did you mean 'bold'.*your own: package.module:name"),
        ("nowhere.at_all:x", r"there is no module 'nowhere.at_all' to import"),
        ("strange:bolt", r"strange has no thing 'bolt'; did you mean '[Bb]old'"),
        ("strange:__doc__", r"give something to call"),
    ],
)
def test_wrong_names_are_refused_in_words(thing: Registry[Any], name: str, words: str) -> None:
    thing.get("strange:bold")
    with pytest.raises(BadChoice, match=words):
        thing.get(name)


def test_a_file_that_imports_what_is_not_there_says_so(thing: Registry[Any], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("import not_there_at_all")
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        thing.get("broken:x")


def test_a_name_is_taken_once(thing: Registry[Any]) -> None:
    thing.get("strange:bold")
    with pytest.raises(BadChoice, match="a thing 'bold' is there already, in strange"):
        thing("bold")(lambda: 2)


def test_what_fovea_declares_is_read_without_torch() -> None:
    code = (
        "import sys\nfrom fovea.basics.registry import Registry\n"
        "names = list(Registry('method', ('fovea.heatmaps.methods',), None))\n"
        "assert 'torch' not in sys.modules; print(*names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
