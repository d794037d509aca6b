"""Five pictures by their mean colors: an index holds what the folder holds, whatever happens in between."""

import multiprocessing
import os
import shutil
import signal
import sqlite3
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_colors import BLUE, GREEN, RED, Colors, colors, draw, folder, slow, work_slowly
from PIL import Image

import fovea
from checks import raises, refused
from fovea import BadNetwork, BadPicture, FoveaError
from fovea.networks import Network
from fovea.retrieval import index, open_index, store


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return folder(tmp_path / "set")


def test_every_picture_by_its_path_below_the_folder(pictures: Path, tmp_path: Path) -> None:
    net = colors()
    opened = open_index(index(net, pictures, tmp_path / "a.fovea", batch=2).file, net)
    assert opened.names == ("cold/blue.png", "cold/green.png", "warm/half.png", "warm/mostly.png", "warm/red.png")
    assert opened.paths[0] == pictures / "cold/blue.png"
    wanted = np.array([[0, 0, 1], [0, 1, 0], [0.5**0.5, 0.5**0.5, 0], [0.8**0.5, 0.2**0.5, 0], [1, 0, 0]])
    np.testing.assert_allclose(opened.vectors, wanted, atol=1e-6)
    assert opened.unfinished is None


def test_run_again_nothing_is_looked_at_and_the_file_stays(pictures: Path, tmp_path: Path) -> None:
    net = colors()
    file = index(net, pictures, tmp_path / "a.fovea").file
    before, seen = file.read_bytes(), net.module.seen
    again = index(net, pictures, tmp_path / "a.fovea")
    assert (again.already, again.added, again.changed, again.dropped) == (5, 0, 0, 0)
    assert file.read_bytes() == before
    assert net.module.seen == seen + 1  # a blank picture, which tells how wide embeddings are


def test_new_changed_and_removed_pictures(pictures: Path, tmp_path: Path) -> None:
    net = colors()
    index(net, pictures, tmp_path / "a.fovea")
    (pictures / "warm/half.png").unlink()
    draw(pictures / "warm/new.png", RED, BLUE)
    draw(pictures / "cold/blue.png", GREEN, BLUE)
    os.utime(pictures / "cold/blue.png", ns=(1, 1))
    found = index(net, pictures, tmp_path / "a.fovea")
    assert (found.pictures, found.added, found.changed, found.dropped, found.already) == (5, 1, 1, 1, 3)
    opened = open_index(tmp_path / "a.fovea", net)
    assert opened.names == ("cold/blue.png", "cold/green.png", "warm/mostly.png", "warm/new.png", "warm/red.png")
    np.testing.assert_allclose(opened.vectors[0], [0, 0.5**0.5, 0.5**0.5], atol=1e-6)


class Wide(Colors):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).repeat(1, 2000)


def test_the_room_of_dropped_pictures_is_given_back(pictures: Path, tmp_path: Path) -> None:
    net, file = Network(Wide().eval(), colors().transform), tmp_path / "a.fovea"
    whole = index(net, pictures, file).file.stat().st_size
    shutil.rmtree(pictures / "cold")
    (pictures / "warm/half.png").unlink()
    index(net, pictures, file)
    assert file.stat().st_size < 0.6 * whole
    assert open_index(file, net).names == ("warm/mostly.png", "warm/red.png")
    np.testing.assert_allclose(open_index(file, net).vectors[1, :3], np.array([1, 0, 0]) / 2000**0.5, atol=1e-6)
    before = file.read_bytes()
    assert index(net, pictures, file).already == 2
    assert file.read_bytes() == before


def test_the_folder_may_move(pictures: Path, tmp_path: Path) -> None:
    net, file = colors(), tmp_path / "a.fovea"
    index(net, pictures, file)
    pictures.rename(tmp_path / "moved")
    seen = net.module.seen
    moved = open_index(file, net, folder=tmp_path / "moved")
    assert moved.search(tmp_path / "moved/warm/red.png")[0].itself is not None
    assert index(net, tmp_path / "moved", file).already == 5
    assert net.module.seen - seen == 3  # two blank pictures and the one searched for
    assert open_index(file, net).paths[0] == tmp_path / "moved/cold/blue.png"
    raises(BadPicture, "no folder", open_index, file, net, folder=tmp_path / "nowhere")


def test_the_folder_and_the_index_may_move_together(pictures: Path, tmp_path: Path) -> None:
    net = colors()
    index(net, pictures, tmp_path / "a.fovea")
    (tmp_path / "elsewhere").mkdir()
    for name in ("set", "a.fovea"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    assert open_index(tmp_path / "elsewhere/a.fovea", net).paths[0] == tmp_path / "elsewhere/set/cold/blue.png"


def test_another_folder_beside_it_keeps_what_is_known(pictures: Path, tmp_path: Path) -> None:
    net, file = colors(), tmp_path / "a.fovea"
    index(net, pictures, file)
    draw(tmp_path / "more/sky.png", BLUE)
    found = index(net, [pictures, tmp_path / "more"], file)
    assert (found.already, found.added, found.dropped) == (5, 1, 0)
    assert open_index(file, net).names[:2] == ("more/sky.png", "set/cold/blue.png")
    back = index(net, str(pictures / "*/*.png"), file)
    assert (back.already, back.added, back.dropped) == (5, 0, 1)
    assert open_index(file, net).names[0] == "cold/blue.png"


def test_given_twice_a_picture_counts_once(pictures: Path, tmp_path: Path) -> None:
    assert index(colors(), [pictures, pictures / "warm"], tmp_path / "a.fovea").pictures == 5


def test_what_cannot_be_read_is_told_and_tried_again_when_it_changes(pictures: Path, tmp_path: Path) -> None:
    net, file = colors(), tmp_path / "a.fovea"
    (pictures / "warm/bad.png").write_bytes(b"no picture")
    (pictures / "cold/empty.jpg").touch()
    (pictures / "cold/link.png").symlink_to("nowhere.png")
    found = index(net, pictures, file, batch=3)
    assert found.pictures == 5
    assert [name for name, _ in found.skipped] == ["cold/empty.jpg", "cold/link.png", "warm/bad.png"]
    assert "0 bytes" in found.skipped[0][1]
    assert open_index(file, net).skipped == found.skipped
    again = index(net, pictures, file)
    assert (again.already, again.added, again.skipped) == (5, 0, found.skipped)
    draw(pictures / "warm/bad.png", RED)
    mended = index(net, pictures, file)
    assert (mended.pictures, mended.added, mended.changed, len(mended.skipped)) == (6, 1, 0, 2)


def test_a_picture_over_the_limit_is_tried_again_with_a_higher_one(pictures: Path, tmp_path: Path) -> None:
    Image.new("RGB", (50, 50), RED).save(pictures / "warm/red.png")
    assert len(index(colors(), pictures, tmp_path / "a.fovea", max_pixels=1000).skipped) == 1
    assert not index(colors(), pictures, tmp_path / "a.fovea").skipped


def test_no_picture_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    raises(BadPicture, "no pictures in the folder", index, colors(), tmp_path / "set", tmp_path / "a.fovea")
    raises(BadPicture, "no file or folder", index, colors(), tmp_path / "sett", tmp_path / "a.fovea")
    assert not (tmp_path / "a.fovea").exists()
    (tmp_path / "set/bad.png").write_bytes(b"no picture")
    with pytest.raises(BadPicture, match=r"could be read.*bad.png is not a picture"):
        index(colors(), tmp_path / "set", tmp_path / "a.fovea")
    raises(FoveaError, "holds no picture", open_index, tmp_path / "a.fovea", colors())


def other(net: Network) -> Network:
    net.module.cells.weight.data *= 2
    return net


def test_another_network_is_refused(pictures: Path, tmp_path: Path) -> None:
    file = index(colors(), pictures, tmp_path / "a.fovea").file
    before = file.read_bytes()
    raises(BadNetwork, r"another network.*weights.*--fresh", index, other(colors()), pictures, file)
    raises(BadNetwork, "another network", open_index, file, other(colors()))
    cropped = Network(colors().module, fovea.load("smallnet", pretrained=False).transform)
    raises(BadNetwork, r"transform.*--fresh", index, cropped, pictures, file)
    assert file.read_bytes() == before
    assert index(other(colors()), pictures, file, fresh=True).added == 5


def test_a_network_without_a_name_must_be_given(pictures: Path, tmp_path: Path) -> None:
    file = index(colors(), pictures, tmp_path / "a.fovea").file
    raises(BadNetwork, "net=that_network", open_index, file)


def test_a_file_never_says_what_to_import(pictures: Path, tmp_path: Path) -> None:
    file = index(colors(), pictures, tmp_path / "a.fovea").file
    with store.writing(file) as opened:
        opened.write(opened.read().about.model_copy(update={"net": "this:network"}), {})
    raises(BadNetwork, r"of your own \(this:network\)", open_index, file)


def test_a_weights_file_loads_again(pictures: Path, tmp_path: Path) -> None:
    net = fovea.load("smallnet", pretrained=False)
    net.save(tmp_path / "mine.safetensors")
    file = index(tmp_path / "mine.safetensors", pictures, tmp_path / "a.fovea").file
    opened = open_index(file)
    assert opened.known.name == "mine"
    assert opened.known.identity.features == "pooled"  # it is a classifier
    next(iter(net.module.state_dict().values())).add_(1)
    net.save(tmp_path / "mine.safetensors")
    raises(BadNetwork, "another network", open_index, file)


def test_values_that_are_not_numbers_are_told(pictures: Path, tmp_path: Path) -> None:
    class Broken(Colors):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            return torch.where((out[:, 2:] == 1) & (out[:, :1] == 0), torch.nan, out)

    found = index(Network(Broken().eval(), colors().transform), pictures, tmp_path / "a.fovea")
    assert (found.pictures, [name for name, _ in found.skipped]) == (4, ["cold/blue.png"])


def test_a_folder_for_the_index(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert index(colors(), pictures, tmp_path / "out").file == tmp_path / "out/index.fovea"
    assert len(open_index(tmp_path / "out", colors())) == 5


def test_stopped_at_any_moment_it_goes_on(pictures: Path, tmp_path: Path) -> None:
    """What a kill would leave between any two statements is copied, and each copy gone on from."""
    net, file = colors(), tmp_path / "a.fovea"
    left: list[Path] = []

    def copied(statement: str) -> None:
        place = tmp_path / f"copy-{len(left)}"
        place.mkdir()
        for part in (file, file.with_name("a.fovea-journal")):
            if part.exists():
                shutil.copy(part, place)
        left.append(place / "a.fovea")

    class Watched(sqlite3.Connection):
        def __init__(self, *given: Any, **how: Any) -> None:
            super().__init__(*given, **how)
            self.set_trace_callback(copied)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Watched))
        index(net, pictures, file, batch=1)
    whole = open_index(file, net)
    counts = []
    for copy in left:
        found = index(net, pictures, copy)
        counts.append(found.already)
        again = open_index(copy, net)
        assert (found.pictures, again.names, again.unfinished) == (5, whole.names, None)
        torch.testing.assert_close(again.vectors, whole.vectors)
    assert counts == sorted(counts)
    assert set(counts) == {0, 1, 2, 3, 4, 5}


@pytest.mark.parametrize("what", ["vector", "name", "reason", "stamp", "about", "page", "end"])
def test_damage_is_told_and_fresh_mends_it(pictures: Path, tmp_path: Path, what: str) -> None:
    net, file = colors(), tmp_path / "a.fovea"
    (pictures / "warm/bad.png").write_bytes(b"no picture")
    content = bytearray(index(net, pictures, file, batch=1).file.read_bytes())
    rows = store.read(file).rows
    vector = rows["warm/half.png"].vector
    needle = {
        "vector": vector.tobytes(), "name": b"warm/mostly.png", "reason": b"is not a picture",
        "stamp": str(rows["cold/blue.png"].stamp[1]).encode(), "about": b"dimensions", "page": b"warm/red.png",
        "end": b"",
    }[what]  # fmt: skip
    if what == "end":
        del content[len(content) // 2 :]
    else:
        at = content.index(needle) + len(needle) // 2
        content[at if what != "page" else at // 4096 * 4096] ^= 0x15  # a page's first byte tells what it is
    file.write_bytes(content)
    raises(FoveaError, r"is damaged.*--fresh", open_index, file, net)
    raises(FoveaError, "is damaged", index, net, pictures, file)
    assert index(net, pictures, file, fresh=True).added == 5


def test_an_index_of_the_version_before_is_made_anew(pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "a.fovea"
    file.write_bytes(b'fovea index 1\n0badcafe 16 0 12345678\n{"is":"network"}\n')
    for attempt in (lambda: open_index(file, colors()), lambda: index(colors(), pictures, file)):
        raises(FoveaError, r"of another version \(an older version\): make it anew.*--fresh", attempt)
    assert index(colors(), pictures, file, fresh=True).added == 5


@pytest.mark.parametrize("kind", ["text", "sqlite"])
def test_what_is_no_index_is_not_written_over(pictures: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "letter.txt"
    if kind == "text":
        file.write_text("Dear reader, this is not an index.")
    else:
        with closing(sqlite3.connect(file)) as other:
            other.execute("CREATE TABLE pictures (name)")
    before = file.read_bytes()
    for fresh in (False, True):
        raises(FoveaError, "is no index", index, colors(), pictures, file, fresh=fresh)
    raises(FoveaError, "is no index", open_index, file, colors())
    assert file.read_bytes() == before


def test_two_at_once(pictures: Path, tmp_path: Path) -> None:
    with store.writing(tmp_path / "a.fovea"), pytest.raises(FoveaError, match="another process is writing"):
        index(colors(), pictures, tmp_path / "a.fovea")


def test_killed_it_keeps_every_finished_batch(pictures: Path, tmp_path: Path) -> None:
    net, file = slow(), tmp_path / "a.fovea"
    other = multiprocessing.get_context("spawn").Process(target=work_slowly, args=(pictures, file))
    other.start()
    while not (file.is_file() and len(store.read(file).rows) >= 2):
        assert other.exitcode is None
        time.sleep(0.02)
    os.kill(other.pid or 0, signal.SIGKILL)
    other.join()
    half = open_index(file, net)
    assert 2 <= len(half) < 5
    assert half.unfinished == 5
    steps: list[tuple[int, int]] = []
    found = index(net, pictures, file, batch=1, progress=lambda *now: steps.append(now))
    assert (found.already, found.pictures) == (len(half), 5)
    assert steps[0] == (len(half), 5)
    assert steps[-1] == (5, 5)
    assert open_index(file, net).unfinished is None


def test_wrong_options(pictures: Path, tmp_path: Path) -> None:
    refused("batch is 1 to 65,536", index, colors(), pictures, tmp_path / "a.fovea", batch=0)
    refused("at least one folder", index, colors(), [], tmp_path / "a.fovea")
    index(colors(), pictures, tmp_path / "a.fovea")
    refused(r"no index.*did you mean 'a.fovea'.*fovea index DIR", open_index, tmp_path / "b.fovea")


@pytest.mark.parametrize("net", ["anchornet_sound-made", "textcnn-mr"])
def test_a_network_for_another_medium_is_refused(net: str, pictures: Path, tmp_path: Path) -> None:
    refused("not pictures", index, net, pictures, tmp_path / "a.fovea")
