import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.heatmaps.explain import METHODS, Step, explain_batches
from fovea.heatmaps.writing import Writer
from fovea.pictures.transforms import Prepare


@pytest.fixture
def net(pooled: nn.Module) -> fovea.Network:
    return fovea.wrap(pooled, Prepare((24, 24)), labels=["cat", "dog", "crane", "lynx", "ox/cart"])


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(4):
        noise = np.random.default_rng(i).integers(0, 256, (30, 40, 3), dtype=np.uint8)
        Image.fromarray(noise).save(folder / f"{i}.png")
    (folder / "2.png").write_text("hello")
    return folder


def written(folder: Path) -> dict[str, list[dict[str, object]]]:
    found: dict[str, list[dict[str, object]]] = json.loads((folder / "manifest.json").read_text())
    return found


def steps(net: fovea.Network, pictures: Path, good: int) -> Iterator[Step]:
    for i, step in enumerate(explain_batches(net, pictures, [METHODS["l2caf"]], "top1", batch=1)):
        if i == good:
            raise RuntimeError("out of memory")
        yield step


@pytest.mark.parametrize("good", [1, 2, 3])
def test_what_was_done_is_on_disk_when_a_later_batch_fails(
    good: int, net: fovea.Network, pictures: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with suppress(RuntimeError), Writer(out, {"net": "mine"}) as writer:
        for step in steps(net, pictures, good):
            writer.add(step)
    told = written(out)
    assert [Path(str(one["picture"])).name for one in told["pictures"]] == ["0.png", "1.png"][:good]
    assert len(told["skipped"]) == (good == 3)
    for one in told["pictures"]:
        for row in one["maps"]:  # type: ignore[attr-defined]
            assert (out / row["files"]["values"]).is_file()
            assert (out / row["files"]["overlay"]).is_file()


def test_the_first_batch_is_on_disk_before_the_second(net: fovea.Network, pictures: Path, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "out", {"net": "mine"})
    writer.add(next(iter(explain_batches(net, pictures, [METHODS["l2caf"]], batch=1))))
    assert len(written(tmp_path / "out")["pictures"]) == 1  # nobody closed the writer: the process may be killed


def test_a_failure_before_anything_leaves_the_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("the run before")
    with pytest.raises(fovea.BadChoice), Writer(tmp_path, {}):
        raise fovea.BadChoice("no such label")
    assert (tmp_path / "manifest.json").read_text() == "the run before"


def test_counts(net: fovea.Network, pictures: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "out", {}) as writer:
        for step in explain_batches(net, pictures, [METHODS["l2caf"], METHODS["cam"]], "ox/cart", batch=3):
            writer.add(step)
    assert (writer.explained, len(writer.skipped), writer.blank.total()) == (3, 1, 0)
    told = written(tmp_path / "out")
    assert [row["files"]["values"] for row in told["pictures"][0]["maps"]] == [  # type: ignore[attr-defined]
        "0.l2caf.ox_cart.npy",
        "0.cam.ox_cart.npy",
    ]


def test_blank_maps_are_counted_by_their_reason(net: fovea.Network, pictures: Path, tmp_path: Path) -> None:
    with torch.no_grad():
        net.module.fc.weight[0].zero_()  # the class does not depend on any cell
    with Writer(tmp_path / "out", {}) as writer:
        for step in explain_batches(net, pictures, [METHODS["cam"]], [0, 1]):
            writer.add(step)
    ((reason, count),) = writer.blank.items()
    assert "the target does not change when the cells change" in reason
    assert count == writer.explained == 3
