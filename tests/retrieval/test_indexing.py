"""Five pictures by their mean colours: an index holds what the folder holds, whatever happens in between."""

import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from made_colours import BLUE, GREEN, RED, Colours, colours, draw, folder
from PIL import Image

import fovea
from fovea import BadChoice, BadNetwork, BadPicture, FoveaError
from fovea.networks.network import Network
from fovea.retrieval import Index, index, open_index, records


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    return folder(tmp_path / "set")


def made(pictures: Path, net: Network | None = None, **options: object) -> Index:
    net = net or colours()
    return open_index(index(pictures, net, pictures.parent / "a.fovea", **options).file, net)  # type: ignore[arg-type]


def test_every_picture_by_its_path_below_the_folder(pictures: Path) -> None:
    opened = made(pictures, batch=2)
    assert opened.names == ("cold/blue.png", "cold/green.png", "warm/half.png", "warm/mostly.png", "warm/red.png")
    assert opened.paths[0] == pictures / "cold/blue.png"
    wanted = np.array([[0, 0, 1], [0, 1, 0], [0.5**0.5, 0.5**0.5, 0], [0.8**0.5, 0.2**0.5, 0], [1, 0, 0]])
    np.testing.assert_allclose(opened.vectors, wanted, atol=1e-6)
    assert opened.unfinished is None


def test_run_again_nothing_is_looked_at_and_the_file_stays(pictures: Path, tmp_path: Path) -> None:
    net = colours()
    file = index(pictures, net, tmp_path / "a.fovea").file
    before, seen = file.read_bytes(), net.module.seen
    again = index(pictures, net, tmp_path / "a.fovea")
    assert (again.already, again.added, again.changed, again.dropped) == (5, 0, 0, 0)
    assert file.read_bytes() == before
    assert net.module.seen == seen + 1  # a blank picture, which tells how wide embeddings are


def test_new_changed_and_removed_pictures(pictures: Path, tmp_path: Path) -> None:
    net = colours()
    index(pictures, net, tmp_path / "a.fovea")
    (pictures / "warm/half.png").unlink()
    draw(pictures / "warm/new.png", RED, BLUE)
    draw(pictures / "cold/blue.png", GREEN, BLUE)
    os.utime(pictures / "cold/blue.png", ns=(1, 1))
    found = index(pictures, net, tmp_path / "a.fovea")
    assert (found.pictures, found.added, found.changed, found.dropped, found.already) == (5, 1, 1, 1, 3)
    opened = open_index(tmp_path / "a.fovea", net)
    assert opened.names == ("cold/blue.png", "cold/green.png", "warm/mostly.png", "warm/new.png", "warm/red.png")
    np.testing.assert_allclose(opened.vectors[0], [0, 0.5**0.5, 0.5**0.5], atol=1e-6)


def test_a_file_of_mostly_dropped_pictures_is_written_anew(pictures: Path, tmp_path: Path) -> None:
    net, file = colours(), tmp_path / "a.fovea"
    whole = index(pictures, net, file).file.stat().st_size
    shutil.rmtree(pictures / "cold")
    (pictures / "warm/half.png").unlink()
    index(pictures, net, file)
    assert file.stat().st_size < whole
    assert open_index(file, net).names == ("warm/mostly.png", "warm/red.png")
    np.testing.assert_allclose(open_index(file, net).vectors[1], [1, 0, 0], atol=1e-6)
    before = file.read_bytes()
    assert index(pictures, net, file).already == 2
    assert file.read_bytes() == before


def test_the_folder_may_move(pictures: Path, tmp_path: Path) -> None:
    net, file = colours(), tmp_path / "a.fovea"
    index(pictures, net, file)
    pictures.rename(tmp_path / "moved")
    seen = net.module.seen
    assert open_index(file, net, folder=tmp_path / "moved").search(tmp_path / "moved/warm/red.png").itself is not None
    assert index(tmp_path / "moved", net, file).already == 5
    assert net.module.seen - seen == 3  # two blank pictures and the one searched for
    assert open_index(file, net).paths[0] == tmp_path / "moved/cold/blue.png"
    with pytest.raises(BadPicture, match="no folder"):
        open_index(file, net, folder=tmp_path / "nowhere")


def test_the_folder_and_the_index_may_move_together(pictures: Path, tmp_path: Path) -> None:
    net = colours()
    index(pictures, net, tmp_path / "a.fovea")
    (tmp_path / "elsewhere").mkdir()
    for name in ("set", "a.fovea"):
        (tmp_path / name).rename(tmp_path / "elsewhere" / name)
    assert open_index(tmp_path / "elsewhere/a.fovea", net).paths[0] == tmp_path / "elsewhere/set/cold/blue.png"


def test_another_folder_beside_it_keeps_what_is_known(pictures: Path, tmp_path: Path) -> None:
    net, file = colours(), tmp_path / "a.fovea"
    index(pictures, net, file)
    draw(tmp_path / "more/sky.png", BLUE)
    found = index([pictures, tmp_path / "more"], net, file)
    assert (found.already, found.added, found.dropped) == (5, 1, 0)
    assert open_index(file, net).names[:2] == ("more/sky.png", "set/cold/blue.png")
    back = index(str(pictures / "*/*.png"), net, file)
    assert (back.already, back.added, back.dropped) == (5, 0, 1)
    assert open_index(file, net).names[0] == "cold/blue.png"


def test_given_twice_a_picture_counts_once(pictures: Path, tmp_path: Path) -> None:
    assert index([pictures, pictures / "warm"], colours(), tmp_path / "a.fovea").pictures == 5


def test_what_cannot_be_read_is_told_and_tried_again_when_it_changes(pictures: Path, tmp_path: Path) -> None:
    net, file = colours(), tmp_path / "a.fovea"
    (pictures / "warm/bad.png").write_bytes(b"no picture")
    (pictures / "cold/empty.jpg").touch()
    (pictures / "cold/link.png").symlink_to("nowhere.png")
    found = index(pictures, net, file, batch=3)
    assert found.pictures == 5
    assert [name for name, _ in found.skipped] == ["cold/empty.jpg", "cold/link.png", "warm/bad.png"]
    assert "0 bytes" in found.skipped[0][1]
    assert open_index(file, net).skipped == found.skipped
    again = index(pictures, net, file)
    assert (again.already, again.added, again.skipped) == (5, 0, found.skipped)
    draw(pictures / "warm/bad.png", RED)
    mended = index(pictures, net, file)
    assert (mended.pictures, mended.added, mended.changed, len(mended.skipped)) == (6, 1, 0, 2)


def test_a_picture_over_the_limit_is_tried_again_with_a_higher_one(pictures: Path, tmp_path: Path) -> None:
    Image.new("RGB", (50, 50), RED).save(pictures / "warm/red.png")
    assert len(index(pictures, colours(), tmp_path / "a.fovea", max_pixels=1000).skipped) == 1
    assert not index(pictures, colours(), tmp_path / "a.fovea").skipped


def test_no_picture_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    with pytest.raises(BadPicture, match="no pictures in the folder"):
        index(tmp_path / "set", colours(), tmp_path / "a.fovea")
    with pytest.raises(BadPicture, match="no file or folder"):
        index(tmp_path / "sett", colours(), tmp_path / "a.fovea")
    assert not (tmp_path / "a.fovea").exists()
    (tmp_path / "set/bad.png").write_bytes(b"no picture")
    with pytest.raises(BadPicture, match=r"could be read.*bad.png is not a picture"):
        index(tmp_path / "set", colours(), tmp_path / "a.fovea")
    with pytest.raises(FoveaError, match="holds no picture"):
        open_index(tmp_path / "a.fovea", colours())


def other(net: Network) -> Network:
    net.module.cells.weight.data *= 2
    return net


def test_another_network_is_refused(pictures: Path, tmp_path: Path) -> None:
    file = index(pictures, colours(), tmp_path / "a.fovea").file
    before = file.read_bytes()
    with pytest.raises(BadNetwork, match=r"another network.*weights.*--fresh"):
        index(pictures, other(colours()), file)
    with pytest.raises(BadNetwork, match="another network"):
        open_index(file, other(colours()))
    cropped = Network(colours().module, fovea.load("smallnet", pretrained=False).transform)
    with pytest.raises(BadNetwork, match=r"transform.*--fresh"):
        index(pictures, cropped, file)
    assert file.read_bytes() == before
    assert index(pictures, other(colours()), file, fresh=True).added == 5


def test_a_network_without_a_name_must_be_given(pictures: Path, tmp_path: Path) -> None:
    file = index(pictures, colours(), tmp_path / "a.fovea").file
    with pytest.raises(BadNetwork, match="net=that_network"):
        open_index(file)


def test_a_weights_file_loads_again(pictures: Path, tmp_path: Path) -> None:
    net = fovea.load("smallnet", pretrained=False)
    net.save(tmp_path / "mine.safetensors")
    file = index(pictures, tmp_path / "mine.safetensors", tmp_path / "a.fovea").file
    opened = open_index(file)
    assert opened.known.name == "mine"
    assert opened.known.identity["features"] == "pooled"  # it is a classifier
    next(iter(net.module.state_dict().values())).add_(1)
    net.save(tmp_path / "mine.safetensors")
    with pytest.raises(BadNetwork, match="another network"):
        open_index(file)


def test_values_that_are_not_numbers_are_told(pictures: Path, tmp_path: Path) -> None:
    class Broken(Colours):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            out = super().forward(x)
            return torch.where((out[:, 2:] == 1) & (out[:, :1] == 0), torch.nan, out)

    found = index(pictures, Network(Broken().eval(), colours().transform), tmp_path / "a.fovea")
    assert (found.pictures, [name for name, _ in found.skipped]) == (4, ["cold/blue.png"])


def test_a_folder_for_the_index(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    assert index(pictures, colours(), tmp_path / "out").file == tmp_path / "out/index.fovea"
    assert len(open_index(tmp_path / "out", colours())) == 5


@pytest.mark.parametrize("at", range(0, 1000, 97))
def test_cut_off_anywhere_it_goes_on(pictures: Path, tmp_path: Path, at: int) -> None:
    net, file = colours(), tmp_path / "a.fovea"
    content = index(pictures, net, file, batch=1).file.read_bytes()
    whole = open_index(file, net)
    file.write_bytes(content[: at * len(content) // 1000])
    found = index(pictures, net, file, batch=1)
    assert found.pictures == 5
    again = open_index(file, net)
    assert again.names == whole.names
    torch.testing.assert_close(again.vectors, whole.vectors)
    if at > 600:
        assert found.already > 0


@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9])
def test_damage_is_told_and_fresh_mends_it(pictures: Path, tmp_path: Path, share: float) -> None:
    net, file = colours(), tmp_path / "a.fovea"
    content = bytearray(index(pictures, net, file, batch=1).file.read_bytes())
    content[int(share * len(content))] ^= 0x15
    file.write_bytes(content)
    with pytest.raises(FoveaError, match=r"is damaged.*--fresh"):
        open_index(file, net)
    with pytest.raises(FoveaError, match="is damaged"):
        index(pictures, net, file)
    assert index(pictures, net, file, fresh=True).added == 5


def test_what_is_no_index_is_not_written_over(pictures: Path, tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text("Dear reader, this is not an index.")
    for fresh in (False, True):
        with pytest.raises(FoveaError, match="is no index"):
            index(pictures, colours(), file, fresh=fresh)
    assert file.read_text().startswith("Dear reader")


def test_two_at_once(pictures: Path, tmp_path: Path) -> None:
    with records.locked(tmp_path / "a.fovea"), pytest.raises(FoveaError, match="another process is writing"):
        index(pictures, colours(), tmp_path / "a.fovea")


class Slow(Colours):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        return super().forward(x)


def work(pictures: Path, file: Path) -> None:
    index(pictures, Network(Slow().eval(), colours().transform), file, batch=1)


def test_killed_it_keeps_every_finished_batch(pictures: Path, tmp_path: Path) -> None:
    net, file = Network(Slow().eval(), colours().transform), tmp_path / "a.fovea"
    other = multiprocessing.get_context("spawn").Process(target=work, args=(pictures, file))
    other.start()
    while not (file.is_file() and file.read_bytes().count(b'"is":"pictures"') >= 2):
        time.sleep(0.02)
    os.kill(other.pid or 0, signal.SIGKILL)
    other.join()
    half = open_index(file, net)
    assert 2 <= len(half) < 5
    assert half.unfinished == 5
    steps: list[tuple[int, int]] = []
    found = index(pictures, net, file, batch=1, progress=lambda *now: steps.append(now))
    assert (found.already, found.pictures) == (len(half), 5)
    assert steps[0] == (len(half), 5)
    assert steps[-1] == (5, 5)
    assert open_index(file, net).unfinished is None


def test_wrong_options(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(BadChoice, match="at least one picture"):
        index(pictures, colours(), tmp_path / "a.fovea", batch=0)
    with pytest.raises(BadChoice, match="at least one folder"):
        index([], colours(), tmp_path / "a.fovea")
    index(pictures, colours(), tmp_path / "a.fovea")
    with pytest.raises(BadChoice, match=r"no index.*did you mean 'a.fovea'.*fovea index DIR"):
        open_index(tmp_path / "b.fovea")
