"""What several processes read and hold: each its own part, and the machine all of it once."""

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from checks import raises
from fovea.basics import FoveaError
from fovea.data import open_data
from fovea.training import sharing
from fovea.training.feed import Kept
from fovea.training.order import Order, Shares
from fovea.training.recipe import check
from fovea.training.sharing import filled
from made_recipes import HEAD, SMALLNET
from several_processes import losses, together

pytest.importorskip("sklearn")
COUNT, SHARDS, BAD = 26, 3, "07.png"  # pictures, tar files, and a picture that cannot be read


def pack(folder: Path) -> Path:
    """Pictures of two classes in three tar files, one of them broken."""
    folder.mkdir()
    lines, random = ["file,shard,label,split"], np.random.default_rng(0)
    for shard in range(SHARDS):
        with tarfile.open(folder / f"{shard:02}.tar", "w") as file:
            for i in range(shard, COUNT, SHARDS):
                name, data = f"{i:02}.png", io.BytesIO()
                Image.fromarray(random.integers(0, 256, (32, 32, 3), np.uint8)).save(data, "png")
                content = b"no picture" if name == BAD else data.getvalue()
                info = tarfile.TarInfo(name)
                info.size = len(content)
                file.addfile(info, io.BytesIO(content))
                lines.append(f"{name},{shard:02}.tar,{i % 2},{'test' if i >= 20 else 'train'}")
    (folder / "manifest.csv").write_text("\n".join(lines))
    return folder


def recipe(folder: Path, hold: bool) -> dict[str, Any]:
    data = {"train": f"{folder}:split=train", "test": f"{folder}:split=test", "hold": hold, "workers": 0}
    return {"epochs": 1, "batch": 4, "log_every": 1, "precision": "fp64", "network": SMALLNET, "data": data}


def test_no_process_reads_what_is_not_its_own(tmp_path: Path) -> None:
    """Two processes on packs of three shards. Held pictures are decoded once in all; streamed ones by whose turn it is,
    as the order says. Either way the losses are those of one process."""
    folder = pack(tmp_path / "pack")
    names = [f"{i:02}.png" for i in range(20)]
    runs = [{"recipe": recipe(folder, hold), "out": str(tmp_path / str(hold))} for hold in (True, False)]
    held, streamed = together(2, tmp_path, *runs)
    first, second = (set(rank["opened"]) for rank in held)
    assert not first & second
    assert sorted(name for rank in held for name in rank["opened"]) == sorted(
        [*names, *(f"{i}.png" for i in range(20, 26))]
    )
    assert [rank["reads"] for rank in held] == [[], []], "nothing is read again"
    train = open_data(f"{folder}:split=train")
    assert streamed[0]["opened"] == [name for name in streamed[0]["opened"] if name >= "20"], (
        "the test set alone is held"
    )
    for rank in (0, 1):
        order = _order(check(HEAD | recipe(folder, False)), train.samples, rank)
        mine = [train.samples[i].name for wanted in order.wanted(0) for i in wanted.index.tolist()]
        after = train.samples[[sample.name for sample in train.samples].index(BAD) + 1].name
        stood_in = [after] if BAD in mine else []  # the next that can be read
        assert streamed[rank]["reads"] == sorted([*mine, *stood_in])
    assert len(streamed[0]["reads"]) + len(streamed[1]["reads"]) == 21
    for hold in (True, False):
        one = tmp_path / f"one-{hold}"
        _alone(recipe(folder, hold), one)
        assert len(losses(one)) == (4 if hold else 5)
        assert losses(tmp_path / str(hold)) == [pytest.approx(loss, abs=1e-6) for loss in losses(one)]


def _alone(content: dict[str, Any], out: Path) -> None:
    from fovea.training.loop import train

    train(check(HEAD | content), out, device="cpu")


def _order(recipe: Any, samples: Any, rank: int) -> Order:
    class Listed:
        def __init__(self) -> None:
            self.samples = samples

    return Order(recipe, Listed(), Shares(rank, 2, 1), "made")  # type: ignore[arg-type]


def test_rows_that_are_missing_are_closed_up() -> None:
    def fill(rows: Tensor, mine: range) -> Any:
        good = [i for i in mine if i % 3]
        for i in good:
            rows[i] = i
        return [(i, f"row {i}") for i in good], [(f"{i}", "missing") for i in mine if i % 3 == 0]

    rows, known, missing = filled((8, 2), torch.uint8, torch.device("cpu"), fill)
    assert rows[:, 0].tolist() == rows[:, 1].tolist() == [1, 2, 4, 5, 7]
    assert known == [f"row {i}" for i in (1, 2, 4, 5, 7)]
    assert [name for name, _ in missing] == ["0", "3", "6"]


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_each_of_three_processes_makes_a_third(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rank: int) -> None:
    """In whole groups of two, and all of it lies in the file that they share, which soon has no name."""
    shared = tmp_path / "shared"
    shared.write_bytes(bytes(range(7)))
    said: list[Any] = []

    def everyones(mine: Any) -> list[Any]:
        said.append(mine)
        if len(said) == 1:
            return [("0", str(shared)), None, None, ("1", "another machine's")]
        return [mine, ("1", [(0, "not ours")], [])] if isinstance(mine, tuple) else [mine]

    monkeypatch.setattr(sharing, "beside", lambda: 3)
    monkeypatch.setattr(sharing, "everyones", everyones)
    monkeypatch.setattr(sharing, "_file", lambda size: str(shared))
    monkeypatch.setenv("LOCAL_RANK", str(rank))
    monkeypatch.setenv("GROUP_RANK", "0")
    mine: list[int] = []

    def fill(rows: Tensor, numbers: range) -> Any:
        mine.extend(numbers)
        return [(i, i) for i in numbers], []

    filled((7,), torch.uint8, torch.device("cpu"), fill, together=2)
    assert mine == [[0, 1], [2, 3], [4, 5, 6]][rank]
    assert shared.exists() == (rank != 0)


def test_no_room_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "beside", lambda: 2)
    monkeypatch.setattr(sharing, "MEMORY", Path("/nowhere"))
    monkeypatch.setattr(sharing.tempfile, "gettempdir", lambda: "/nowhere")
    raises(
        FoveaError,
        "find no 2,000,000 MB in .*data.hold=false",
        filled,
        (2 * 10**12,),
        torch.uint8,
        torch.device("cpu"),
        None,
    )


def test_what_is_kept_is_made_in_its_groups() -> None:
    groups: list[list[int]] = []

    def make(numbers: Any) -> Tensor:
        groups.append(list(numbers))
        return torch.tensor([[float(i)] for i in numbers])

    kept = Kept(make, 5, True, lambda done, total: None, together=2)
    assert groups == [[0], [0, 1], [2, 3], [4]]
    assert kept[torch.tensor([4, 1])].tolist() == [[4.0], [1.0]]
