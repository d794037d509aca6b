from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.heatmaps import ExplainStep, explain_batches
from fovea.heatmaps.explain import find
from fovea.pictures import Prepare
from fovea.results import Writer, read


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


def steps(net: fovea.Network, pictures: Path, good: int) -> Iterator[ExplainStep]:
    for i, step in enumerate(explain_batches(net, pictures, [find("l2caf")], "top1", batch=1)):
        if i == good:
            raise RuntimeError("out of memory")
        yield step


@pytest.mark.parametrize("good", [1, 2, 3])
def test_what_was_done_is_on_disk_when_a_later_batch_fails(
    good: int, net: fovea.Network, pictures: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    with suppress(RuntimeError), Writer(out, "explain", {"net": "mine"}, files=True) as writer:
        for step in steps(net, pictures, good):
            writer.add(step.results, step.skipped)
    saved = read(out)
    assert [Path(row["name"]).name for row in saved.results] == ["0.png", "1.png"][:good]
    assert len(saved.skipped) == (good == 3)
    for row in saved.results:
        for files in row["files"]["maps"]:
            assert (out / files["values"]).is_file()
            assert (out / files["overlay"]).is_file()


def test_the_first_batch_is_on_disk_before_the_second(net: fovea.Network, pictures: Path, tmp_path: Path) -> None:
    writer = Writer(tmp_path / "out", "explain", {"net": "mine"})
    writer.add(next(iter(explain_batches(net, pictures, [find("l2caf")], batch=1))).results)
    assert len(read(tmp_path / "out").results) == 1  # nobody closed the writer: the process may be killed


def test_a_failure_before_anything_leaves_the_folder_alone(tmp_path: Path) -> None:
    with Writer(tmp_path, "explain", {"net": "before"}):
        pass
    with pytest.raises(fovea.BadChoice), Writer(tmp_path, "explain", {"net": "now"}):
        raise fovea.BadChoice("no such label")
    assert read(tmp_path).settings == {"net": "before"}


def test_several_methods_are_one_row(net: fovea.Network, pictures: Path, tmp_path: Path) -> None:
    with Writer(tmp_path / "out", "explain", {}, files=True) as writer:
        for step in explain_batches(net, pictures, [find("l2caf"), find("cam")], "ox/cart", batch=3):
            writer.add(step.results, step.skipped)
    saved = read(tmp_path / "out")
    assert (len(saved.results), len(saved.skipped)) == (3, 1)
    files = saved.results[0]["files"]["maps"]
    assert [names["values"] for names in files] == ["0.l2caf.ox_cart.npy", "0.cam.ox_cart.npy"]
    assert [row["method"] for row in saved.results[0]["maps"]] == ["l2caf", "cam"]
    assert 'src="index_files/0.jpg">' in (tmp_path / "out" / "index.html").read_text()


def test_blank_maps_tell_their_reason(net: fovea.Network, pictures: Path) -> None:
    with torch.no_grad():
        net.module.fc.weight[0].zero_()  # the class does not depend on any cell
    (step,) = explain_batches(net, pictures, [find("cam")], [0, 1])
    for result in step.results:
        assert "the target does not change when the cells change" in str(result.note)
        assert [bool(row["diagnosis"]) for row in result.to_dict()["maps"]] == [True, False]
