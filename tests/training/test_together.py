"""Two real processes, started by torchrun over gloo, against one."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from fovea.training.log import read
from fovea.training.together import SyncedNorm, synced
from made_recipes import small, written

pytest.importorskip("sklearn")
AUGMENT = {"area": [0.6, 1.0], "flip": True, "brightness": 0.2}


def start(
    processes: int, recipe: Path, out: Path, *more: str, changes: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    words = [*torchrun, *more, "-m", "fovea", "train", str(recipe), "--out", str(out), "--device", "cpu"]
    words += [word for change in changes for word in ("--set", change)]
    own = os.environ | {"OMP_NUM_THREADS": "1"} | env
    return subprocess.run(words, capture_output=True, text=True, env=own, timeout=240, check=False)


def rows(out: Path, key: str) -> list[float]:
    return [row[key] for row in read(out) if key in row]


def pair(folder: Path, save_every: float = 30.0) -> Path:
    return written(folder, small(21) | {"epochs": 5, "ema": 0.9, "save_every": save_every, "augment": AUGMENT})


def test_two_processes_give_the_losses_of_one(tmp_path: Path) -> None:
    """The first 20 steps of recipes/digits.toml, in single precision."""
    recipe = Path(__file__).parents[2] / "recipes/digits.toml"
    changes = ["epochs=0.125", "log_every=1", "data.test=megapixel:canvas=96,digit=24,count=21,split=test"]
    # AVX-512 kernels sum half a batch in another order than a whole one, and 20 steps let that grow to 1.3e-5
    same_sums = {"ONEDNN_MAX_CPU_ISA": "AVX2", "ATEN_CPU_CAPABILITY": "avx2"}
    for processes in (1, 2):
        done = start(processes, recipe, tmp_path / str(processes), changes=changes, **same_sums)
        assert done.returncode == 0, done.stderr[-2000:]
    one, two = rows(tmp_path / "1", "loss"), rows(tmp_path / "2", "loss")
    assert len(one) == 20
    assert two == [pytest.approx(loss, abs=1e-5) for loss in one]
    assert rows(tmp_path / "1", "top1")[-1] == rows(tmp_path / "2", "top1")[-1]
    assert len(re.findall("score:", done.stdout)) == 1, "one process speaks for both"


def test_and_only_rounding_is_between_them(tmp_path: Path) -> None:
    """Large steps let rounding errors grow; in double precision nothing grows (losses come out in single)."""
    recipe = pair(tmp_path)
    for processes in (1, 2):
        assert start(processes, recipe, tmp_path / str(processes), changes=["precision=fp64"]).returncode == 0
    one, two = rows(tmp_path / "1", "loss"), rows(tmp_path / "2", "loss")
    assert len(one) == 20
    assert two == [pytest.approx(loss, abs=1e-6) for loss in one]


def test_a_process_that_dies_is_said_and_the_restart_goes_on(tmp_path: Path) -> None:
    """The second process kills itself at step 7 of the first attempt; torchrun starts both again, once."""
    recipe = pair(tmp_path, save_every=0)
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal\n"
        "if os.environ.get('RANK') == '1' and os.environ.get('TORCHELASTIC_RESTART_COUNT') == '0':\n"
        "    import fovea.training.loop as loop\n"
        "    calls, real = [], loop.set_rates\n"
        "    def dying(*given):\n"
        "        calls.append(1)\n"
        "        if len(calls) == 7: os.kill(os.getpid(), signal.SIGKILL)\n"
        "        real(*given)\n"
        "    loop.set_rates = dying\n"
    )
    paths = f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    done = start(2, recipe, tmp_path / "cut", "--max-restarts", "1", PYTHONPATH=paths)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "going on at step" in done.stderr
    whole = start(2, recipe, tmp_path / "whole")
    assert rows(tmp_path / "cut", "loss") == rows(tmp_path / "whole", "loss")
    assert _hash(done) == _hash(whole)


def _hash(done: Any) -> str:
    found = re.search(r"sha256 (\w+)", done.stdout)
    assert found is not None, done.stderr[-2000:]
    return found[1]


def test_norms_with_an_activation_keep_it() -> None:
    """timm's batch norms carry an activation, which the synced one must not lose."""
    from timm.layers import BatchNormAct2d

    torch.manual_seed(0)
    plain = nn.Sequential(nn.Conv2d(3, 4, 3), BatchNormAct2d(4), nn.BatchNorm2d(4, momentum=None))
    twin = nn.Sequential(nn.Conv2d(3, 4, 3), BatchNormAct2d(4), nn.BatchNorm2d(4, momentum=None))
    twin.load_state_dict(plain.state_dict())
    batch = torch.randn(4, 3, 8, 8)
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        synced(twin, on_cuda=False)
        assert sum(isinstance(layer, SyncedNorm) for layer in twin.modules()) == 2
        for _ in range(2):
            out, other = plain(batch), twin(batch)
            assert torch.allclose(out, other, atol=1e-5)
        out.square().sum().backward()
        other.square().sum().backward()
    finally:
        torch.distributed.destroy_process_group()
    for ours, theirs in zip(plain.parameters(), twin.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-3)  # type: ignore[arg-type]
    for key, value in plain.state_dict().items():
        assert torch.allclose(value.float(), twin.state_dict()[key].float(), atol=1e-5), key
    assert torch.allclose(plain.eval()(batch), twin.eval()(batch), atol=1e-5)
