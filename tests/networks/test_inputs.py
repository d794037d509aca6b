"""Folders: read ahead, looked at by several threads, drawn meanwhile; with the results of one picture by one."""

import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from fovea.heatmaps import explain_batches
from fovea.heatmaps.methods import find
from fovea.networks import Group, groups, in_order, inputs
from fovea.pictures import Picture, gathering
from fovea.results import Writer, read

SIZES = [(64, 64), (128, 64), (64, 128), (90, 64)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 pictures of four shapes, and one that cannot be read."""
    folder = tmp_path_factory.mktemp("pictures")
    draw = np.random.default_rng(0)
    for number in range(24):
        w, h = SIZES[number % len(SIZES)]
        Image.fromarray(draw.integers(0, 256, (h, w, 3), dtype=np.uint8)).save(folder / f"{number:02}.png")
    (folder / "07b.png").write_bytes(b"no picture")
    return folder


@pytest.fixture(scope="module")
def net() -> fovea.Network:
    torch.manual_seed(0)
    return fovea.load("timm/test_resnet", pretrained=False).fitted()


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three of torch's, and as many to read."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    monkeypatch.setattr(inputs, "processors", lambda: 3)
    yield
    torch.set_num_threads(before)


def ours() -> list[str]:
    """Threads that do not end."""
    for thread in threading.enumerate():
        if thread.name.startswith("fovea"):
            thread.join(5)
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("fovea")]


@pytest.mark.usefixtures("threads")
def test_a_picture_alone_has_all_of_torchs_threads(net: fovea.Network, folder: Path) -> None:
    def threads(pictures: Any) -> set[int]:
        found = groups(net, pictures, 4)
        return {count for _, count in inputs.run_ahead(net, found, lambda group: torch.get_num_threads())}

    assert threads(folder / "00.png") == {3}
    assert threads([folder / "00.png", folder / "01.png"]) == {1}


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("at_once", [1, 10**9], ids=["small parts", "whole batches"])
def test_a_folder_is_explained_alike_by_any_number_of_threads(
    at_once: int, net: fovea.Network, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "AT_ONCE", at_once)
    used = set[str]()
    forward = nn.Conv2d.forward

    def noting(self: nn.Conv2d, x: Tensor) -> Tensor:
        used.add(threading.current_thread().name)
        assert torch.get_num_threads() == 1
        return forward(self, x)

    monkeypatch.setattr(nn.Conv2d, "forward", noting)
    with pytest.warns(UserWarning, match="1 picture"):
        maps = fovea.explain(net, folder, method="cam", batch=4)
    assert torch.get_num_threads() == 3
    assert len(used - {"MainThread"}) > 1
    assert not ours()
    with Writer(tmp_path, "explain", {}) as writer:
        for step in explain_batches(net, folder, [find("cam")], batch=5):
            writer.add(step.results, step.skipped)
    monkeypatch.undo()
    assert [shown.name for shown in maps.shown] == [row["name"] for row in read(tmp_path).results]
    assert (
        [Path(name).name for name, _ in maps.skipped] == [Path(name).name for name, _ in writer.skipped] == ["07b.png"]
    )
    files = sorted(path for path in folder.iterdir() if path.name != "07b.png")
    assert [heatmap.name for heatmap in maps] == [str(path) for path in files]
    for path, heatmap, row in list(zip(files, maps, writer.rows, strict=True))[::5]:
        alone = fovea.explain(net, path, method="cam")
        assert torch.allclose(heatmap.values, alone[0].values, atol=1e-5)
        assert row["maps"][0]["boxes"] == alone[0].boxes.tolist()
        with Image.open(tmp_path / row["files"]["view"]["photograph"]) as photograph:
            assert photograph.size == Image.open(path).size


def collect(steps: Any, most: int) -> list[int]:
    """The places of so many, and then somebody presses Ctrl-C."""
    done = [place for _, (places, *_) in zip(range(most), steps, strict=False) for place in places]
    steps.throw(KeyboardInterrupt)
    return done


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("how", ["closed", "stopped", "broken"])
def test_threads_end_with_whoever_asked(how: str, net: fovea.Network, folder: Path) -> None:
    def answer(group: Group, tensors: Tensor) -> list[int]:
        if how == "broken" and 9 in group.places:
            raise RuntimeError("no memory")
        return group.places

    steps: Any = in_order(net, groups(net, folder, 1), answer)
    done = list[int]()
    error = {"stopped": KeyboardInterrupt, "broken": RuntimeError}.get(how)
    if error is None:
        done += next(steps)[0]
        steps.close()
    else:
        with pytest.raises(error):
            done += collect(steps, 8 if how == "stopped" else 99)
    assert done == list(range(len(done)))
    assert not ours()
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("threads")
def test_a_network_that_keeps_something_is_run_by_who_asks(folder: Path) -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.threads = nn.Conv2d(3, 2, 8, 8), list[tuple[str, int]]()

        def forward(self, x: Tensor) -> Tensor:
            self.threads.append((threading.current_thread().name, torch.get_num_threads()))
            return self.layer(x).mean((2, 3))

    module = Counting()
    net = fovea.wrap(module, transform=fovea.pictures.Prepare((64, 64)), labels=["a", "b"])
    assert len(net.predict(sorted(folder.glob("1*.png")), batch=2)) == 10
    assert {(threading.current_thread().name, 3)} == set(module.threads)


class Alive:
    """Decoded pictures that somebody holds, and the most that anybody ever held."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pictures, self.most, self.read = weakref.WeakValueDictionary[int, Any](), 0, 0
        decode, lock = Picture.read, threading.Lock()

        def reading(picture: Picture, *most: int) -> Image.Image:
            image = decode(picture, *most)
            with lock:
                self.pictures[self.read] = image
                self.read += 1
                self.most = max(self.most, len(self.pictures))
            return image

        monkeypatch.setattr(Picture, "read", reading)


@pytest.mark.usefixtures("threads")
def test_pictures_are_decoded_once_and_not_kept(
    net: fovea.Network, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(120):
        (tmp_path / f"{number:03}.png").symlink_to(folder / f"{number % 4 * 4:02}.png")
    alive = Alive(monkeypatch)
    monkeypatch.setattr(gathering, "RECENT", 40 * 64 * 64)
    with Writer(tmp_path / "out", "explain", {}) as writer:
        for step in explain_batches(net, tmp_path, [find("cam")], batch=2):
            writer.add(step.results, step.skipped)
    assert (len(writer.rows), alive.read) == (120, 120)  # and not again to be drawn
    assert alive.most < 90
    del step, writer
    results = fovea.explain(net, sorted(tmp_path.glob("*.png")), method="cam")
    assert len(results) == 120
    assert len(alive.pictures) <= 40
