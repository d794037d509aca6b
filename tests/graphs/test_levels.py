"""A TNet's levels as graphs, and the docs' walk through them, against fovea's own walk."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fovea
from made_graphs import blocks

pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def walk() -> Any:
    code = blocks("walk")
    lines = [line for line in code.splitlines() if line.strip() and not line.startswith(("import", "from"))]
    assert len(lines) <= 42
    names: dict[str, Any] = {}
    exec(code, names)
    return names["walk"]


@pytest.mark.parametrize(
    ("name", "options", "size"),
    [
        ("tnet-bagnet77", {"width": 0.0625, "levels": 2, "glimpses": 3}, (224, 224)),
        ("tnet/resnet10t", {"base": 32, "levels": 3, "glimpses": 4, "average": "learned"}, (128, 150)),
    ],
)
def test_the_walk_of_the_docs(
    name: str, options: dict[str, Any], size: tuple[int, int], walk: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    net = fovea.load(name, classes=5, options=options, pretrained=False)
    written = fovea.export(net, tmp_path / "t.onnx")
    assert [path.name for path in written.files] == [f"t-level{i + 1}.onnx" for i in range(options["levels"])]
    picture = torch.randn(1, 3, *size, generator=torch.Generator().manual_seed(3))
    logits, boxes = walk(list(map(str, written.files)), picture[0].permute(1, 2, 0).numpy())
    with torch.no_grad():
        own = net.module.eval()(picture)
    (answer,) = fovea.zoom(net, picture)
    assert boxes == [tuple(box) for box in own.boxes[0].tolist()]
    assert boxes[1:] == [glimpse.box for glimpse in answer.glimpses]
    assert len(boxes) == options["glimpses"] + 1
    assert np.abs(logits - own.logits[0].numpy()).max() < 1e-4
    assert net.labels is not None
    assert net.labels[int(logits.argmax())] == answer.label
