"""Formats and precisions: each is run again, and compared with fovea's own maps."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from conftest import Pooled, seeded
from fovea.basics import FoveaError
from fovea.graphs import session, takes_of, writing
from fovea.networks import Network
from made_graphs import PREPARE, noise, run

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def net() -> Network:
    return fovea.wrap(seeded(Pooled), PREPARE, labels=5)


def own(net: Network, pixels: torch.Tensor, classes: np.ndarray) -> np.ndarray:
    return fovea.explain(net, takes_of(net).batch(pixels), target=torch.from_numpy(classes)).numpy()[:, 0]


@pytest.mark.parametrize("suffix", [".pt2", pytest.param(".aoti.pt2", marks=pytest.mark.slow)])
def test_programs_of_torch(suffix: str, net: Network, tmp_path: Path) -> None:
    path, pixels, target = tmp_path / f"own{suffix}", noise(3, 80, 64), torch.tensor([-1, 4, 0])
    assert fovea.export(net, path).difference < 1e-4
    if suffix == ".pt2":
        files = {"fovea.json": ""}
        program = torch.export.load(path, extra_files=files).module()
        about = json.loads(files["fovea.json"])
    else:
        program = torch._inductor.aoti_load_package(str(path))
        about = json.loads(program.get_metadata()["fovea"])
    assert about["method"] == "l2caf"
    _, heatmap, explained = program(pixels, target)
    assert explained.tolist()[1:] == [4, 0]
    assert np.abs(heatmap.numpy() - own(net, pixels, explained.numpy())).max() < 1e-4


def test_half_precision(net: Network, tmp_path: Path) -> None:
    fovea.export(net, tmp_path / "half.onnx", precision="fp16")
    pixels = noise(2, 64, 64)
    found = run(tmp_path / "half.onnx", pixels, [1, -1])
    assert found["logits"].dtype == found["heatmap"].dtype == np.float32
    off = np.abs(found["heatmap"] - own(net, pixels, found["explained"])).max()
    assert 0 < off < 0.01
    assert np.allclose(np.square(found["heatmap"]).sum((1, 2)), 1, atol=1e-4)  # the map's own norm is exact


def test_bytes(tmp_path: Path) -> None:
    deep = fovea.wrap(seeded(Deep), PREPARE, labels=5)
    with pytest.raises(fovea.BadChoice, match="calibrate='photos/'"):
        fovea.export(deep, tmp_path / "small.onnx", precision="int8")
    (tmp_path / "photos").mkdir()
    for i in range(8):
        Image.fromarray(noise(1, 64, 64, i)[0].numpy()).save(tmp_path / f"photos/{i}.png")
    fovea.export(deep, tmp_path / "small.onnx", precision="int8", calibrate=tmp_path / "photos")
    pixels = noise(4, 64, 64, 100)
    found = run(tmp_path / "small.onnx", pixels, [-1] * 4)
    assert 0 < np.abs(found["heatmap"] - own(deep, pixels, found["explained"])).max() < 0.1
    kinds = {node.op_type for node in _nodes(tmp_path / "small.onnx")}
    assert "QuantizeLinear" in kinds


class Deep(Pooled):
    def __init__(self) -> None:
        super().__init__(5, 8)
        more = [layer for _ in range(2) for layer in (torch.nn.ReLU(), torch.nn.Conv2d(8, 8, 3, 1, 1))]
        self.trunk.extend(more)


def _nodes(path: Path) -> list:  # type: ignore[type-arg]
    import onnx

    return list(onnx.load(path).graph.node)


def test_a_file_is_whole_or_not_there(net: Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own.onnx"
    path.write_bytes(b"before")
    monkeypatch.setattr(writing, "LARGEST", 100)
    with pytest.raises(fovea.BadNetwork, match=r"less than 2: write a \.pt2"):
        fovea.export(net, path)
    assert path.read_bytes() == b"before"
    assert [found.name for found in tmp_path.iterdir()] == ["own.onnx"]


def test_packages_that_are_missing() -> None:
    with pytest.raises(FoveaError, match=r"pip install 'fovea\[export\]'"), writing.needed():
        raise ImportError(name="onnxruntime")


def test_axes_have_names(net: Network, tmp_path: Path) -> None:
    fovea.export(net, tmp_path / "own.onnx")
    given = session(tmp_path / "own.onnx")
    assert [(found.name, found.shape) for found in given.get_inputs()] == [
        ("pixels", ["N", "H", "W", 3]),
        ("target", ["N"]),
    ]
    assert given.get_outputs()[1].shape == ["N", "h", "w"]


def test_what_writes_a_graph_is_looked_for_before_anything_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(FoveaError, match=r"pip install 'fovea\[export\]'"):
        writing.format_of(Path("graph.onnx"))
    assert writing.format_of(Path("graph.pt2")) == ".pt2"
