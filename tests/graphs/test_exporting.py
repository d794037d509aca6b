"""A graph gives what fovea gives: maps and logits of any class, for pictures of any number and size that it takes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import skimage.data
import torch
from PIL import Image
from torch import nn

import fovea
from conftest import Branching, Pooled, Stacked, Through, seeded
from fovea.graphs import session, takes_of
from fovea.pictures import Prepare
from made_graphs import PREPARE, Normed, blocks, noise, run

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def lite0(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lite0") / "lite0.onnx"
    written = fovea.export("efficientnet_lite0", path)
    assert written.files == (path,)
    assert written.about["solver"] == "exact"
    assert written.difference < 1e-4
    return path


@pytest.mark.parametrize(
    ("count", "height", "width", "target"), [(1, 224, 224, [-1]), (3, 160, 288, [-1, 0, 999]), (2, 256, 192, [5, 5])]
)
def test_real_weights_any_size_any_class(lite0: Path, count: int, height: int, width: int, target: list[int]) -> None:
    photographs = [skimage.data.chelsea(), skimage.data.astronaut(), skimage.data.coffee()][:count]
    small = [np.asarray(Image.fromarray(photograph).resize((width, height))) for photograph in photographs]
    pixels, net = torch.from_numpy(np.stack(small)), fovea.load("efficientnet_lite0")
    found = run(lite0, pixels, target)
    batch = takes_of(net).batch(pixels)
    with torch.no_grad():
        logits = net(batch)
    assert np.abs(found["logits"] - logits.numpy()).max() < 1e-3
    best = logits.argmax(1).tolist()
    assert found["explained"].tolist() == [b if t < 0 else t for b, t in zip(best, target, strict=True)]
    maps = fovea.explain(net, batch, target=torch.from_numpy(found["explained"])).numpy()[:, 0]
    assert found["heatmap"].shape == maps.shape == (count, height // 32, width // 32)
    assert np.abs(found["heatmap"] - maps).max() < 1e-4
    assert np.allclose(np.square(found["heatmap"]).sum((1, 2)), 1, atol=1e-4)  # |f| = 1


def test_the_example_of_the_docs(
    lite0: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(lite0.parent)
    Image.fromarray(skimage.data.chelsea()).save("cat.jpg")
    code = blocks("example")
    assert len([line for line in code.splitlines() if line.strip()]) <= 16
    names: dict[str, Any] = {}
    exec(code, names)
    (own,) = fovea.explain("efficientnet_lite0", "cat.jpg")
    assert np.abs(names["heatmap"][0] - own.values[0].numpy()).max() < 1e-4
    assert capsys.readouterr().out.startswith(own.label)
    assert Image.open("map.png").size == Image.open("cat.jpg").size


def test_metadata_is_all_that_one_needs(lite0: Path) -> None:
    about = json.loads(session(lite0).get_modelmeta().custom_metadata_map["fovea"])
    net = fovea.load("efficientnet_lite0").fitted()
    assert tuple(about["labels"]) == net.labels
    assert about["net"] == "efficientnet_lite0"
    assert about["method"] == "l2caf"
    assert about["temperature"] is None
    assert not about["several"]
    assert about["cells"] == {"grid": [7, 7], "stride": [32.0, 32.0], "offset": [16.0, 16.0]}
    given = about["input"]
    assert given["dynamic"]
    assert Prepare(**{key: given[key] for key in vars(net.transform)} | {"size": tuple(given["size"])}) == Prepare(
        **vars(net.transform) | {"mean": list(net.transform.mean), "std": list(net.transform.std)}
    )
    assert str(Path.home()) not in lite0.read_bytes().decode("latin-1")  # nor where it was made


METHODS = ("l2caf", "l2caf-signed", "l2caf-sum", "cam", "gradcam", "gradcam++", "layercam", "hirescam", "xgradcam")


@pytest.mark.parametrize("method", METHODS)
def test_methods_of_a_module_of_ones_own(method: str, tmp_path: Path) -> None:
    net = fovea.wrap(seeded(Pooled), PREPARE, labels=list("abcde"))
    net.temperature = 1.5
    written = fovea.export(net, tmp_path / "own.onnx", method=method)
    assert written.difference < 1e-4
    assert written.about["labels"] == list("abcde")
    assert written.about["temperature"] == 1.5
    pixels = noise(4, 80, 48)
    found = run(tmp_path / "own.onnx", pixels, [-1, 0, 4, 2])
    maps = fovea.explain(net, takes_of(net).batch(pixels), method=method, target=torch.from_numpy(found["explained"]))
    assert np.abs(found["heatmap"] - maps.numpy()[:, 0]).max() < 1e-4 * maps.values.abs().max()


def test_a_network_is_left_as_found(tmp_path: Path) -> None:
    module = seeded(Pooled).train()
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    fovea.export(fovea.wrap(module, PREPARE, labels=5), tmp_path / "own.onnx")
    assert module.training
    assert all(value.requires_grad and value.grad is None for value in module.parameters())
    assert all(torch.equal(value, weights[name]) for name, value in module.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["own.onnx"]


def test_tensors_where_the_transform_is_not_ours(tmp_path: Path) -> None:
    net = fovea.wrap(seeded(Pooled), labels=5)
    written = fovea.export(net, tmp_path / "own.onnx", size=48)
    assert written.about["input"] == {"name": "tensors", "channels": 3, "size": [48, 48], "dynamic": True}
    batch = torch.randn(2, 3, 48, 80, generator=torch.Generator().manual_seed(0))
    found = run(tmp_path / "own.onnx", batch, [1, -1], "tensors")
    own = fovea.explain(net, batch, target=torch.from_numpy(found["explained"])).numpy()[:, 0]
    assert np.abs(found["heatmap"] - own).max() < 1e-4


@pytest.mark.slow
def test_a_head_that_must_be_searched(tmp_path: Path) -> None:
    net = fovea.wrap(seeded(Normed), PREPARE, labels=5)
    written = fovea.export(net, tmp_path / "own.onnx")
    assert written.about["solver"].startswith("search")
    pixels = noise(3, 64, 64, 3)
    found = run(tmp_path / "own.onnx", pixels, [-1, 0, 1])
    batch = takes_of(net).batch(pixels)
    own = fovea.explain(net, batch, target=torch.from_numpy(found["explained"]))
    assert own.solver == "iterative"
    assert np.abs(found["heatmap"] - own.numpy()[:, 0]).max() < 0.02
    assert np.allclose(np.square(found["heatmap"]).sum((1, 2)), 1, atol=1e-4)


def test_bagnet(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = fovea.load("bagnet77", classes=4, options={"width": 0.0625, "side": 96})
    assert fovea.export(net, tmp_path / "bag.onnx").about["solver"] == "exact"
    pixels = noise(2, 96, 128)
    found = run(tmp_path / "bag.onnx", pixels, [3, -1])
    own = fovea.explain(net, takes_of(net).batch(pixels), target=torch.from_numpy(found["explained"])).numpy()[:, 0]
    assert np.abs(found["heatmap"] - own).max() < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "method", "most"),
    [
        ("timm/resnet18", "l2caf", 1e-4),
        ("torchvision/resnet18", "cam", 1e-4),
        ("timm/convnext_atto", "l2caf", 0.02),
        ("timm/convnext_atto", "gradcam", 1e-4),
        ("timm/vit_tiny_patch16_224", "l2caf", 0.05),
        ("timm/vit_tiny_patch16_224", "layercam", 1e-4),
        ("timm/swin_tiny_patch4_window7_224", "l2caf", 1e-4),
    ],
)
def test_networks_of_others(name: str, method: str, most: float, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = fovea.load(name, pretrained=False, classes=10)
    fovea.export(net, tmp_path / "net.onnx", method=method)
    pixels = noise(2, 224, 224)
    found = run(tmp_path / "net.onnx", pixels, [3, -1])
    batch = takes_of(net.fitted()).batch(pixels)
    own = fovea.explain(net, batch, method=method, target=torch.from_numpy(found["explained"])).numpy()[:, 0]
    assert np.abs(found["heatmap"] - own).max() < most * np.abs(own).max()


REFUSED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "format": (seeded(Pooled), {"out": "own.pkl"}, "ends in .onnx"),
    "precision": (seeded(Pooled), {"precision": "fp8"}, "did you mean"),
    "precision of pt2": (seeded(Pooled), {"out": "own.pt2", "precision": "fp16"}, "fp16 is for .onnx"),
    "many passes": (seeded(Pooled), {"method": "rise"}, "export l2caf"),
    "no class": (seeded(Pooled), {"method": "eigencam"}, "export l2caf"),
    "no closed form": (seeded(Stacked), {"method": "cam"}, "cam needs a head"),
    "values": (seeded(Branching), {}, "data-dependent"),
    "embedding": (Through(lambda x, a: a(x).mean((2, 3)), nn.Conv2d(3, 4, 3)), {}, "no classes"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refusals(what: str, tmp_path: Path) -> None:
    module, options, words = REFUSED[what]
    size = 24 if isinstance(module, Stacked) else 64
    net = fovea.wrap(module, Prepare((size, size), crop=None), labels=None if what == "embedding" else 5)
    out = tmp_path / options.pop("out", "own.onnx")
    with pytest.raises(fovea.FoveaError, match=words):
        fovea.export(net, out, **options)
    assert not list(tmp_path.iterdir())


def test_a_name_that_says_no_format() -> None:
    with pytest.raises(fovea.BadChoice, match=r"ends in \.onnx"):
        fovea.export("efficientnet_lite0", "a.txt")
