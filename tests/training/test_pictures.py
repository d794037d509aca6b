from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea.data import DataSet, open_data
from fovea.pictures import Prepare, inwards
from fovea.training.augment import draw
from fovea.training.feed import Wanted, ahead
from fovea.training.pictures import Held, HeldOut, Streamed, feed
from fovea.training.recipe import AugmentPart, DataPart

CPU = torch.device("cpu")
PREPARE = Prepare((16, 16), (0.5,) * 3, (0.5,) * 3, None, "bilinear")


@pytest.fixture
def folder(tmp_path: Path) -> DataSet:
    """Six pictures, each of one gray that tells it from the others, two classes; one file is broken."""
    for i in range(6):
        path = tmp_path / f"class{i % 2}" / f"{i}.png"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(np.full((20, 30, 3), 40 * i, dtype=np.uint8)).save(path)
    (tmp_path / "class0" / "2.png").write_bytes(b"broken")
    return open_data(tmp_path)


def nothing(done: int, total: int) -> None:
    pass


def grays(inputs: torch.Tensor) -> list[int]:
    return [round((float(one.mean()) * 0.5 + 0.5) * 255 / 40) for one in inputs]


def test_batches_that_are_made_ahead_are_the_same(folder: DataSet) -> None:
    held = Held(PREPARE, folder, 16, AugmentPart(flip=True), CPU, nothing)
    wanted = [Wanted(torch.tensor([i, 0]), draw(2, 0, i)) for i in range(5)]
    pairs = zip(held.batches(wanted), ahead(held.batches(wanted)), strict=True)
    assert all(torch.equal(one.inputs, other.inputs) for one, other in pairs)
    beyond = ahead(held.batches([wanted[0], Wanted(torch.tensor([99]), draw(1, 0, 0))]))
    next(beyond)
    with pytest.raises(IndexError):
        next(beyond)


def test_held_leaves_out_what_cannot_be_read(folder: DataSet) -> None:
    held = Held(PREPARE, folder, 16, AugmentPart(), CPU, nothing)
    assert len(held.samples) == 5
    assert [Path(name).name for name, _ in held.skipped] == ["2.png"]
    (batch,) = held.batches([Wanted(torch.tensor([4, 0]), draw(2, 0, 0))])
    assert grays(batch.inputs) == [int(Path(held.samples[i].name).stem) for i in (4, 0)]
    assert batch.target.tolist() == [held.samples[4].label, held.samples[0].label]


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_stands_in_for_what_cannot_be_read(folder: DataSet, workers: int) -> None:
    streamed = Streamed(PREPARE, folder, workers, AugmentPart(), CPU)
    order = [int(Path(sample.name).stem) for sample in folder.samples]
    place = order.index(2)
    (batch,) = streamed.batches([Wanted(torch.tensor([place, 0]), draw(2, 0, 0))])
    assert grays(batch.inputs) == [order[place + 1], order[0]]
    assert [Path(name).name for name, _ in streamed.skipped] == ["2.png"]


def test_held_and_streamed_cut_the_same_windows(tmp_path: Path) -> None:
    ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[None, :, None] * 4, (64, 64, 3))
    (tmp_path / "a").mkdir()
    Image.fromarray(np.ascontiguousarray(ramp)).save(tmp_path / "a" / "ramp.png")
    data = open_data(tmp_path)
    augment = AugmentPart(area=[0.3, 0.6], aspect=[0.8, 1.25], flip=True, brightness=0.2)
    wanted = [Wanted(torch.zeros(8, dtype=torch.long), draw(8, 3, 1))]
    (one,) = Held(PREPARE, data, 64, augment, CPU, nothing).batches(wanted)
    (two,) = Streamed(PREPARE, data, 0, augment, CPU).batches(wanted)
    assert float((one.inputs - two.inputs).abs().mean()) < 0.03  # they resize a little differently


def test_what_is_held(folder: DataSet, monkeypatch: pytest.MonkeyPatch) -> None:
    net = fovea.load("smallnet", pretrained=False, classes=2, options={"side": 16})
    chosen = {
        hold: type(feed(net, folder, DataPart(train="x", hold=hold), AugmentPart(), CPU, nothing))
        for hold in (True, False, "auto")
    }
    assert chosen == {True: Held, False: Streamed, "auto": Held}
    monkeypatch.setattr("fovea.training.feed.MOST_HELD", 1000)
    assert isinstance(feed(net, folder, DataPart(train="x"), AugmentPart(), CPU, nothing), Streamed)


@pytest.mark.parametrize("most", [2**30, 100])
def test_a_test_set_is_shared_by_processes(folder: DataSet, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fovea.training.feed.MOST_HELD", most)
    net = fovea.load("smallnet", pretrained=False, classes=2, options={"side": 16})
    tested = HeldOut(net, folder, CPU, nothing)
    seen = [batch.target.tolist() for rank in (0, 1) for batch in tested.in_order(2, rank, 2)]
    assert sum(map(len, seen)) == 5


def test_nothing_to_read(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"no")
    with pytest.raises(fovea.BadPicture, match=r"no picture of .* could be read"):
        Held(PREPARE, open_data(tmp_path), 16, AugmentPart(), CPU, nothing)


def test_boxes_come_with_a_test_set(tmp_path: Path) -> None:
    data = open_data("megapixel:canvas=64,count=3,clutter=0,noise=0")
    network = fovea.load("smallnet", options={"side": 32})
    held = HeldOut(network, data, CPU, nothing)
    for batch in held.in_order(2):
        for picture, (sample, size) in zip(batch.inputs, batch.shown, strict=True):
            (box,) = inwards(sample.boxes, held.prepare.placement(*size))
            x0, y0, x1, y1 = (box + torch.tensor([-1, -1, 1, 1])).round().int().tolist()  # shrinking blurs a pixel
            picture[:, max(y0, 0) : y1, max(x0, 0) : x1] = -1
            assert float(picture.max()) < -0.7  # without what is in its box the canvas is empty
