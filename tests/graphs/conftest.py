from pathlib import Path

import pytest

import fovea
from fovea.graphs import export


@pytest.fixture(scope="session")
def lite0_graph(tmp_path_factory: pytest.TempPathFactory, lite0: fovea.Network) -> Path:
    """With real weights; it takes half a minute, so it is made once."""
    pytest.importorskip("onnxruntime")
    path = tmp_path_factory.mktemp("lite0") / "lite0.onnx"
    export(lite0, path, method="l2caf")
    return path
