"""Files are whole or not there, have names of their own, and ordinary permissions."""

import json
import os
import sys
import threading
from pathlib import Path

import pytest

from fovea.basics import Names, claimed, locked, plain, printable, whole, write_json, write_text


def test_a_file_is_whole_or_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "below" / "file.txt"
    write_text(path, "first")
    with pytest.raises(UnicodeEncodeError), whole(path) as part:
        part.write_text("half of the sec\udcff", encoding="utf-8")
    assert path.read_text() == "first"
    assert os.listdir(path.parent) == ["file.txt"]


def test_permissions_are_those_of_any_new_file(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_text(tmp_path / "ours", "")
        (tmp_path / "any").touch()
    finally:
        os.umask(before)
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "any").stat().st_mode


def test_a_link_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (tmp_path / "out.txt").symlink_to(tmp_path / "elsewhere")
    write_text(tmp_path / "out.txt", "ours")
    assert (tmp_path / "elsewhere").read_text() == "precious"
    assert not (tmp_path / "out.txt").is_symlink()


@pytest.mark.parametrize("place", ["/dev/null", "/dev/stdout", "folder", "pipe"])
def test_what_is_no_file_is_not_replaced(place: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="no file that can be replaced"):
        write_text(tmp_path / place, "ours")


def test_a_name_of_any_bytes_comes_back(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    write_json(tmp_path / "x.json", {"name": name})
    assert name.encode("utf-8", "backslashreplace") in (tmp_path / "x.json").read_bytes()
    assert json.loads((tmp_path / "x.json").read_text())["name"] == name


def test_names_of_equal_stems_take_no_square_time() -> None:
    """Every name is looked at once: 20,000 took minutes when each began to count anew."""
    looks = 0

    class Counting(dict[str, str]):
        def setdefault(self, key: str, default: str = "") -> str:
            nonlocal looks
            looks += 1
            return super().setdefault(key, default)

    names = Names(taken=Counting())
    given = [names.take("x", str(i)) for i in range(20_000)]
    assert given[:3] == ["x", "x-2", "x-3"]
    assert len(set(given)) == 20_000
    assert looks < 45_000
    assert names.take("x", "77") == given[77]


def test_a_name_that_counting_gives_may_be_wanted_too() -> None:
    names = Names()
    assert [names.take(wanted, owner) for wanted, owner in (("x-2", "a"), ("x", "b"), ("x", "c"), ("x-2", "d"))] == [
        "x-2",
        "x",
        "x-3",
        "x-2-2",
    ]


def test_a_plain_name_can_be_written_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert plain("côte/d'or\n") == "côte_d_or"
    assert plain(os.fsdecode(b"\xff\xfe")) == "_"
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    assert plain("côte") == "cte"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[2Jb", r"a\x1b[2Jb"), ("a\nb", r"a\nb"), ("\u202egpj", r"\u202egpj"), ("\udcff", r"\udcff"), ("é…", "é…")],
)
def test_what_is_shown_steers_nothing(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


def test_a_claim_is_of_one_owner(tmp_path: Path) -> None:
    path = tmp_path / ".x.claim"
    assert claimed(path, "me")
    assert claimed(path, "me")
    assert not claimed(path, "m")
    assert not claimed(path, "you")


def test_a_claim_is_there_with_its_owner_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ended(*_: object, **__: object) -> None:
        raise SystemExit

    monkeypatch.setattr(os, "link", ended)
    with pytest.raises(SystemExit):
        claimed(tmp_path / ".x.claim", "me")
    assert not list(tmp_path.iterdir())


def test_a_disk_without_links_has_claims_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", link)
    test_a_claim_is_of_one_owner(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".x.claim"]


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_a_planted_claim_is_another_s(kind: str, tmp_path: Path) -> None:
    path = tmp_path / ".x.claim"
    if kind == "link":
        (tmp_path / "file").write_text("me")
        path.symlink_to(tmp_path / "file")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.mkdir()
    assert not claimed(path, "me")


def test_who_wants_the_same_folder_waits(tmp_path: Path) -> None:
    inside, most = 0, 0

    def work() -> None:
        nonlocal inside, most
        for _ in range(30):
            with locked(tmp_path):
                inside += 1
                most = max(most, inside)
                os.sched_yield()
                inside -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_disk_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr("fcntl.flock", flock)
    with pytest.warns(UserWarning, match="without locks.*let no two runs"), locked(tmp_path):
        pass
