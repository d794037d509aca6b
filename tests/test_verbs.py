"""One shape for every verb: a network by name, module or Network; Results that show, save and describe themselves.

A verb is tested by a row of VERBS.
"""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

import fovea
import made_twostream
from conftest import Pooled, seeded
from fovea.basics import write_text
from fovea.pictures import Prepare
from fovea.results import Result, Results, read
from made_clips import make_clip
from made_twostream import made


def pooled() -> fovea.Network:
    return fovea.wrap(seeded(Pooled), Prepare((24, 24)), labels=["cat", "dog", "crane", "lynx", "ox"])


def tnet() -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625})


def pictures(folder: Path) -> None:
    for i in range(2):
        noise = np.random.default_rng(i).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{i}.png")
    (folder / "bad.png").write_text("hello")


def clips(folder: Path) -> None:
    for i in range(2):
        make_clip(folder / f"{i}.mp4", 6)
    (folder / "bad.mp4").write_text("hello")


def batch() -> Tensor:
    return torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(1))


@dataclass(frozen=True)
class Verb:
    name: str
    call: Callable[[Any, Any], Results[Any]]  # a network, and what it is given
    network: Callable[[], fovea.Network]
    make: Callable[[Path], None]  # two inputs that can be read and one that cannot, into a folder
    tensors: Callable[[], Tensor] | None = None  # what a bare module takes, which has no transform


VERBS = [
    Verb("explain", fovea.explain, pooled, pictures, batch),
    Verb("watch", fovea.watch, pooled, clips),
    Verb("localize", fovea.localize, pooled, pictures, batch),
    Verb("classify_patches", lambda net, given: fovea.classify_patches(net, pooled(), given), pooled, pictures, batch),
    Verb("look", fovea.look, pooled, pictures, batch),
    Verb("look_longer", fovea.look_longer, made_twostream.made, pictures),
    Verb("zoom", fovea.zoom, tnet, pictures, lambda: torch.randn(2, 3, 80, 80)),
    Verb("look_longer", fovea.look_longer, made, pictures),
]


@pytest.fixture(params=VERBS, ids=lambda verb: verb.name)
def verb(request: pytest.FixtureRequest) -> Verb:
    found: Verb = request.param
    return found


@pytest.fixture
def folder(verb: Verb, tmp_path: Path) -> Path:
    given = tmp_path / "given"
    given.mkdir()
    verb.make(given)
    return given


@pytest.fixture
def results(verb: Verb, folder: Path) -> Results[Any]:
    with pytest.warns(UserWarning, match="skipped"):
        return verb.call(verb.network(), str(folder))


def same(a: Results[Any], b: Results[Any]) -> bool:
    """But for the time that it took."""
    rows = [[row.to_dict() for row in results] for results in (a, b)]
    for row in (row for part in rows for row in part if isinstance(row.get("cost"), dict)):
        row["cost"].pop("ms", None)
    return rows[0] == rows[1]


def test_a_network_by_name_and_as_it_is(verb: Verb, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = verb.network()
    network.name = "made"
    monkeypatch.setattr("fovea.networks.loading.load", lambda name, *_, **__: {"made": network}[name])
    good = sorted(str(path) for path in folder.iterdir() if path.stem != "bad")
    assert same(verb.call("made", good), verb.call(network, good))


def test_a_bare_module(verb: Verb) -> None:
    if verb.tensors is None:
        pytest.skip("takes no tensors")
    network = verb.network()
    bare = verb.call(network.module, verb.tensors())
    assert [result.name for result in bare] == [result.name for result in verb.call(network, verb.tensors())]


def test_one_result_per_input_and_what_could_not_be_read(verb: Verb, results: Results[Any]) -> None:
    assert isinstance(results, Results)
    assert len(results) == len(list(results)) == 2
    assert [Path(result.name).stem for result in results] == ["0", "1"]
    assert [Path(name).stem for name, _ in results.skipped] == ["bad"]
    assert len(repr(results)) < 200
    assert repr(results).startswith(f"<{results.what}: 2 results, 1 skipped: ")
    assert (results._repr_png_() or b"")[:4] == b"\x89PNG"


def test_results_keep_the_protocol(results: Results[Any]) -> None:
    for result in results:
        assert isinstance(result, Result)
        assert isinstance(result.label, str)
        assert result.probability is None or 0 <= result.probability <= 1
        assert np.asarray(result.boxes).size
        assert isinstance(result.draw(), Image.Image)
        assert json.loads(json.dumps(result.to_dict(), allow_nan=False)) == result.to_dict()
        assert "\n" not in repr(result)
        assert len(repr(result)) < 200


def test_what_is_saved_can_be_read(verb: Verb, results: Results[Any], tmp_path: Path) -> None:
    rows = results.save(tmp_path / "out")
    saved = read(tmp_path / "out")
    assert (saved.what, saved.results) == (results.what, rows)
    assert [row["name"] for row in saved.results] == [result.name for result in results]
    assert [Path(row["name"]).stem for row in saved.skipped] == ["bad"]
    for row, result in zip(saved.results, results, strict=True):
        assert result.to_dict().items() <= row.items()
        assert row["files"]
    page = (tmp_path / "out" / "index.html").read_text()
    assert all(Path(result.name).name in page.replace("<wbr>", "") for result in results)
    inside = results.page(tmp_path / "page.html").read_text()
    assert inside.count("data:image/jpeg") == sum(len(result.view().panels) for result in results)


def test_what_a_folder_held_stays(verb: Verb, results: Results[Any], tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    before = {"name": "elsewhere/0.png", "stem": "0", "label": "ox", "probability": 0.5, "files": {}}
    content = {"what": results.what, "settings": {}, "results": [before], "skipped": []}
    write_text(out / "results.json", json.dumps(content))
    results.save(out)
    saved = read(out)
    assert saved.results[0] == before
    assert [row["stem"] for row in saved.results] == ["0", "0-2", "1"]  # no file of another picture's is written over


def test_all_bad_is_an_error(verb: Verb, folder: Path) -> None:
    bad = next(path for path in folder.iterdir() if path.stem == "bad")
    with pytest.raises(fovea.BadPicture, match="bad"):
        verb.call(verb.network(), str(bad))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:100])


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def another(path: Path) -> None:
    before = path.stat()
    Image.new("RGB", (40, 30), "red").save(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


@pytest.mark.parametrize("harm", [Path.unlink, cut, to_folder, another], ids=["gone", "cut", "a folder", "changed"])
def test_a_picture_that_cannot_be_read_again_to_be_drawn_is_skipped(
    verb: Verb, results: Results[Any], folder: Path, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    if verb.make is clips:
        pytest.skip("short clips stay in memory")
    harm(folder / "0.png")
    with pytest.warns(UserWarning, match=r"1 picture\(s\) skipped: .*0\.png"):
        rows = results.save(tmp_path / "out")
    assert [Path(row["name"]).name for row in rows] == ["1.png"]
    assert [Path(row["name"]).name for row in read(tmp_path / "out").skipped] == ["bad.png", "0.png"]
    with pytest.warns(UserWarning, match=r"0\.png"):
        inside = results.page(tmp_path / "page.html").read_text()
    assert inside.count("data:image/jpeg") == len(results[1].view().panels)
