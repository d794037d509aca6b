"""Two and four real processes, started by torchrun over gloo on one machine, or by two torchruns as on two, against
one."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.fabric import Fabric
from torch import nn

from checks import refused
from fovea.basics import FoveaError
from fovea.training.log import read
from fovea.training.loop import train
from fovea.training.recipe import check
from fovea.training.together import SyncedNorm, fabric_of, losing_others_is_said, synced
from made_recipes import HEAD, small, written
from several_processes import free_port, losses, together

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


def on_two_machines(processes: int, recipe: Path, outs: Sequence[Path], *more: str, **env: str) -> list[str]:
    """One torchrun per machine, each with so many processes and an --out of its own; what they say."""
    words = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(processes), *more]
    words += ["--rdzv-backend", "c10d", "--rdzv-id", "7", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    words += ["-m", "fovea", "train", str(recipe), "--device", "cpu", "--set", "precision=fp64", "--out"]
    own = os.environ | {"OMP_NUM_THREADS": "1"} | env
    started = [subprocess.Popen([*words, str(out)], stderr=subprocess.PIPE, text=True, env=own) for out in outs]
    said = [process.communicate(timeout=240)[1] for process in started]
    assert [process.returncode for process in started] == [0, 0], "\n".join(said)[-4000:]
    return said


def alone(recipe: dict[str, Any], out: Path) -> list[float]:
    """The losses of one process."""
    train(check(HEAD | recipe), out, device="cpu")
    return losses(out)


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


EXACT = small(21) | {"epochs": 2, "ema": 0.9, "augment": AUGMENT, "precision": "fp64"}
VIT = {"img_size": 32, "embed_dim": 24, "depth": 2, "num_heads": 2}
NO_NORM = {"name": "timm/vit_tiny_patch16_224", "options": VIT, "size": 32, "pretrained": False}  # over the batch


def test_four_processes_and_accumulation_give_the_losses_of_one(tmp_path: Path) -> None:
    """A batch in four parts is four processes with one part each, two with two, or one with four. Batch norm sees what
    is taken at once: synced, the parts of all processes, so that four are as one that does not accumulate."""
    whole, vit, apart = EXACT, EXACT | {"network": NO_NORM}, EXACT | {"sync_norm": False}
    four = [{"recipe": recipe, "out": str(tmp_path / f"4-{i}")} for i, recipe in enumerate((whole, vit, apart))]
    two = [
        {"recipe": recipe | {"accumulate": 2}, "out": str(tmp_path / f"2-{i}")} for i, recipe in enumerate((vit, apart))
    ]
    by_four, by_two = together(4, tmp_path, *four), together(2, tmp_path, *two)
    one = alone(whole, tmp_path / "1")
    assert len(one) == 8
    assert losses(tmp_path / "4-0") == [pytest.approx(loss, abs=1e-6) for loss in one]
    assert len({rank["hash"] for rank in by_four[0]}) == 1
    for i, recipe in enumerate((vit, apart)):
        one = alone(recipe | {"accumulate": 4}, tmp_path / f"1-{i}")
        assert losses(tmp_path / f"4-{i + 1}") == [pytest.approx(loss, abs=1e-6) for loss in one]
        assert losses(tmp_path / f"2-{i}") == [pytest.approx(loss, abs=1e-6) for loss in one]
    assert by_four[1][0]["score"] == by_two[0][0]["score"]


def test_two_machines_give_the_losses_of_one_process(tmp_path: Path) -> None:
    """Each has a disk of its own: the first process's alone holds the run."""
    recipe = written(tmp_path, EXACT)
    outs = [tmp_path / "a", tmp_path / "b"]
    on_two_machines(1, recipe, outs)
    held = [out for out in outs if (out / "weights.safetensors").is_file()]
    assert len(held) == 1, "one of them writes"
    assert losses(held[0]) == [pytest.approx(loss, abs=1e-6) for loss in alone(EXACT, tmp_path / "one")]
    assert not [path.name for out in outs if out not in held and out.is_dir() for path in out.iterdir()]


@pytest.mark.slow
def test_two_machines_with_two_processes_each_go_on_after_a_death(tmp_path: Path) -> None:
    """Of a shared --out, since which machine comes first may change with a restart."""
    recipe = written(tmp_path, EXACT | {"save_every": 0, "epochs": 3})
    paths = f"{dying(tmp_path)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    cut = tmp_path / "cut"
    said = on_two_machines(2, recipe, [cut, cut], "--max-restarts", "1", PYTHONPATH=paths)
    assert any("going on at step" in each for each in said)
    one = alone(EXACT | {"epochs": 3}, tmp_path / "one")
    assert len(one) == 12
    assert losses(cut) == [pytest.approx(loss, abs=1e-6) for loss in one]


def test_as_many_processes_on_every_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    refused("3 processes in all, and 2 of them on this machine: .*--nproc-per-node", fabric_of, "cpu", "fp32")


def test_weights_without_a_gradient_are_said() -> None:
    """One process steps over them; several would wait for them for ever."""
    said = pytest.raises(FoveaError, match=r"does not reach all of the weights.*lr = 0")
    with said, losing_others_is_said(Fabric(accelerator="cpu", devices=1), ""):
        raise RuntimeError("Parameter indices which did not receive grad for rank 0: 42 43")


def dying(folder: Path) -> Path:
    """A folder for PYTHONPATH with which the second process kills itself at step 7 of the first attempt."""
    (folder / "sitecustomize.py").write_text(
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
    return folder


@pytest.mark.slow
def test_a_process_that_dies_is_said_and_the_restart_goes_on(tmp_path: Path) -> None:
    """The second process kills itself at step 7 of the first attempt; torchrun starts both again, once."""
    recipe = pair(tmp_path, save_every=0)
    paths = f"{dying(tmp_path)}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
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
