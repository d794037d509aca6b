"""Indexes made by somebody else, with checksums that are right: what does not fit is damaged, nothing is followed."""

import json
import os
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_colors import BLUE, RED, colors, draw, folder
from PIL import Image

from checks import raises
from fovea import BadNetwork, FoveaError
from fovea.basics import Damaged
from fovea.basics.database import writing
from fovea.pictures import gathering
from fovea.retrieval import index, open_index, store


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return index(colors(), folder(tmp_path / "set"), tmp_path / "a.fovea").file


def crafted(file: Path, about: dict[str, Any] | bytes = b"", row: tuple[Any, ...] = ()) -> Path:
    """The index with parts of what it says about itself changed, or all of it, and with another row."""
    with writing(file, store.FORMAT) as database:
        with database.reading() as known:
            assert known is not None
        changed = about if isinstance(about, bytes) else json.dumps(json.loads(known) | about).encode()
        database.write(changed or known, [row] if row else [])
    return file


GOOD = json.dumps([10, 20]).encode()
VECTOR = np.array([1, 0, 0], "<f4").tobytes()


@pytest.mark.parametrize(
    "row",
    [
        (b"a.png", GOOD, VECTOR[:-1], b""),
        (b"a.png", GOOD, VECTOR[:-4], b""),
        (b"a.png", GOOD, VECTOR * 1000, b""),
        (b"a.png", GOOD, b"", b""),
        (b"a.png", GOOD, np.array([np.nan, 0, 0], "<f4").tobytes(), b""),
        (b"a.png", GOOD, np.array([np.inf, 0, 0], "<f4").tobytes(), b""),
        (b"a.png", GOOD, np.array([3e38, 3e38, 0], "<f4").tobytes(), b""),
        (b"a.png", GOOD, 10**14, b""),
        (7, GOOD, VECTOR, b""),
        (b"a.png", None, VECTOR, b""),
        (b"a.png", b"", VECTOR, b""),
        (b"a.png", b"[1]", VECTOR, b""),
        (b"a.png", b'["x", {}]', VECTOR, b""),
        (b"a.png", b"[" * 100_000, VECTOR, b""),
        (b"a.png", b"[1, 1e999]", VECTOR, b""),
        (b"a.png", GOOD, VECTOR, None),
        (b"../secret.jpg", GOOD, VECTOR, b""),
        (b"cold/../../secret.jpg", GOOD, VECTOR, b""),
        (b"/etc/secret.jpg", GOOD, VECTOR, b""),
        (b"", GOOD, VECTOR, b""),
        (b"a\0.png", GOOD, VECTOR, b""),
    ],
    ids=str,
)
def test_rows_that_do_not_fit(row: tuple[Any, ...], file: Path) -> None:
    raises(Damaged, r"is damaged.*--fresh", open_index, crafted(file, row=row), colors())


@pytest.mark.parametrize(
    "about",
    [
        b"?", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"identity": {}}',
        {"identity": None}, {"identity": {"dimensions": 3}}, {"net": 5}, {"net": ["smallnet"]}, {"weights": {}},
        {"folder": None}, {"beside": 1}, {"wanted": -1}, {"wanted": 10**30}, {"wanted": "x"}, {"more": 1},
    ],
    ids=lambda about: str(about)[:20],
)  # fmt: skip
def test_what_it_says_about_itself(about: dict[str, Any] | bytes, file: Path) -> None:
    raises(Damaged, r"is damaged.*--fresh", open_index, crafted(file, about), colors())
    raises(Damaged, r"is damaged.*--fresh", index, colors(), file.parent / "set", file)


@pytest.mark.parametrize("dimensions", [0, -1, 2, 4, 10**7, 10**14, 2.5, "3", None, True])
def test_lengths_that_do_not_fit_take_no_memory(dimensions: Any, file: Path) -> None:
    identity = {**store.read(file).about.identity.model_dump(), "dimensions": dimensions}
    crafted(file, {"identity": identity})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if dimensions == "3":  # a number in quotes is one
        assert len(open_index(file, colors())) == 5
        return
    raises(Damaged, r"is damaged.*--fresh", open_index, file, colors())
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000  # kB


text = st.text(max_size=5) | st.integers() | st.none() | st.floats() | st.lists(st.integers(), max_size=3)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(["identity", "net", "weights", "folder", "beside", "wanted"]),
    value=text,
    row=st.none() | st.tuples(*[st.binary(max_size=12) | st.integers(-(2**63), 2**63 - 1) | st.none()] * 4),
)
def test_whatever_it_holds_there_are_words(key: str, value: Any, row: tuple[Any, ...] | None, file: Path) -> None:
    content = file.read_bytes()
    try:
        crafted(file, {key: value}, row or ())
        assert len(open_index(file, colors())) in (5, 6)
    except FoveaError:
        pass
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize("name", ["timm/resnet18", "torchvision/resnet18", "acol/timm/resnet18", "os:system", None,
                                  "tnet/os:system.pth", "nowhere.safetensors", "http://nowhere/net.pth"])  # fmt: skip
def test_no_file_says_what_to_fetch_or_import(name: str | None, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fovea.retrieval.knowing.load", lambda *given: pytest.fail("it was loaded"))
    raises(BadNetwork, "net=that_network", open_index, crafted(file, {"net": name}))


def test_a_link_that_leads_out_of_the_folder_is_not_shown(file: Path, tmp_path: Path) -> None:
    secret, pictures = draw(tmp_path / "secret/diary.png", RED, BLUE), tmp_path / "set"
    (pictures / "warm/red.png").unlink()
    (pictures / "warm/red.png").symlink_to(secret)
    (pictures / "cold/blue.png").unlink()
    (pictures / "cold/blue.png").symlink_to(pictures / "cold/green.png")  # inside it, links are as good as files
    (found,) = open_index(file, colors()).search(draw(tmp_path / "query.png", RED), count=5)
    reasons = {neighbor.name: reason for neighbor, reason in found.maps.lost}
    assert set(reasons) == {"warm/red.png"}
    assert "leads out of the indexed folder" in reasons["warm/red.png"]
    assert [card.neighbor.name for card in found.drawn.cards if card.picture is None] == ["warm/red.png"]
    assert found.draw().width > 100


def test_a_neighbor_that_goes_after_its_maps_were_made_is_said(file: Path, tmp_path: Path) -> None:
    (found,) = open_index(file, colors()).search(draw(tmp_path / "query.png", RED), count=5)
    assert found.maps.lost == ()
    (tmp_path / "set/warm/red.png").unlink()
    assert [card.reason.split(" ", 1)[1][:14] for card in found.drawn.cards if card.reason] == ["does not exist"]


def test_a_neighbor_over_the_limit_is_not_decoded(file: Path, tmp_path: Path) -> None:
    (found,) = open_index(file, colors()).search(draw(tmp_path / "q.png", RED), count=5, max_pixels=1000)
    assert found.maps.lost == ()
    Image.new("RGB", (50, 50), RED).save(tmp_path / "set/warm/red.png")
    (found,) = open_index(file, colors()).search(tmp_path / "q.png", count=5, max_pixels=1000)
    assert ["over the limit" in reason for _, reason in found.maps.lost] == [True]


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), MemoryError()])
def test_what_failed_for_a_passing_reason_is_tried_again(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pictures, file, opened = folder(tmp_path / "set"), tmp_path / "a.fovea", gathering.decode

    def fails(source: Any, name: str, max_pixels: int) -> Any:
        if Path(name).name == "red.png":
            raise error
        return opened(source, name, max_pixels)

    with monkeypatch.context() as patch:
        patch.setattr(gathering, "decode", fails)
        found = index(colors(), pictures, file)
        assert [name for name, _ in found.skipped] == ["warm/red.png"]
        assert open_index(file, colors()).skipped == found.skipped
    again = index(colors(), pictures, file)
    assert (again.pictures, again.added, again.already, again.skipped) == (5, 1, 4, ())


def test_embeddings_are_held_once(tmp_path: Path) -> None:
    held = store.read(index(colors(), folder(tmp_path / "set"), tmp_path / "a.fovea").file)
    assert all(np.shares_memory(row.vector, held.vectors) for row in held.rows.values())
    opened = open_index(tmp_path / "a.fovea", colors())
    assert opened.vectors.shape == (5, 3)
    assert [os.fsencode(name) for name in opened.names] == sorted(map(os.fsencode, held.rows))


def test_a_picture_that_is_gone_is_asked_for_again(file: Path, tmp_path: Path) -> None:
    (tmp_path / "set/warm/link.png").symlink_to(tmp_path / "later.png")
    assert [name for name, _ in index(colors(), tmp_path / "set", file).skipped] == ["warm/link.png"]
    draw(tmp_path / "later.png", BLUE)
    assert index(colors(), tmp_path / "set", file).added == 1
