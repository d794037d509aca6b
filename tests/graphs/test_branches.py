"""AnchorNet's patches' scores come out of a graph as they come out of the network."""

from pathlib import Path

import numpy as np
import pytest
import torch

import fovea
from fovea.graphs import session, takes_of

pytest.importorskip("onnxruntime")


def test_patches_scores(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = fovea.load("anchornet", classes=4, options={"side": 128})
    written = fovea.export(net, tmp_path / "anchor.onnx", method="gradcam")
    assert written.about["branches"] == [{"side": side, "stride": 8, "start": 0} for side in (63, 95, 111)]
    takes, given = takes_of(net), session(tmp_path / "anchor.onnx", 1)
    pixels = takes.example(3, 7)
    found = given.run(None, {"pixels": pixels.numpy(), "target": np.array([-1, 2, 0])})
    outputs = dict(zip([output.name for output in given.get_outputs()], found, strict=True))
    with torch.no_grad():
        own = net.module.eval()(takes.batch(pixels))
    assert np.allclose(outputs["logits"], own.logits.numpy(), atol=1e-4)
    assert outputs["branch"].tolist() == own.decision.branch.tolist()
    rows, classes = torch.arange(3), torch.from_numpy(outputs["explained"])
    for side, number, branch in zip((63, 95, 111), range(3), own.branches, strict=True):
        assert np.allclose(outputs["branch_logits"][:, number], branch.logits.numpy(), atol=1e-4)
        assert np.allclose(outputs[f"evidence_{side}"], branch.evidence[rows, classes].numpy(), atol=1e-4)
        assert np.allclose(outputs[f"scores_{side}"], branch.activation[rows, classes].numpy(), atol=1e-4)
        assert np.allclose(outputs[f"attention_{side}"], branch.attention.numpy(), atol=1e-5)
        # F's mean over the cells is the branch's logit
        means = outputs[f"scores_{side}"].mean((1, 2))
        assert np.allclose(means, branch.logits[rows, classes].numpy(), atol=1e-4)
    with pytest.raises(fovea.FoveaError, match="for every step here: export gradcam"):
        fovea.export(net, tmp_path / "other.onnx")
