import copy
import json
import math
import os
import resource
import shutil
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import fovea
from checks import raises
from fovea.basics import Damaged
from fovea.networks import hash_of
from fovea.training import checkpoint
from fovea.training.optimizers import OPTIMIZERS

MOST = 10**7


def state(step: int = 3, **changes: Any) -> dict[str, Any]:
    """What a run saves."""
    weights = {"module.weight": torch.ones(2, 2)}
    recipe = json.dumps({"data": {}})
    moments = {"state": {0: {"momentum_buffer": torch.ones(2, 2)}}, "param_groups": [{"params": [0]}]}
    whole = {"step": step, "seconds": 1.5, "recipe": recipe, "data": {"labels": ["a"], "pictures": 4}}
    return whole | {"stepper": weights, "optimizer": moments, "averaged": None, "precision": {}} | changes


def step_of(folder: Path) -> int | None:
    known = checkpoint.load(folder, MOST)
    return None if known is None else known.step


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path, MOST) is None
    checkpoint.save(tmp_path, state())
    known = checkpoint.load(tmp_path, MOST)
    assert known is not None
    assert (known.step, known.seconds, known.data.labels) == (3, 1.5, ["a"])
    assert torch.equal(known.stepper["module.weight"], torch.ones(2, 2))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]
    assert stat.S_IMODE((tmp_path / "checkpoint.pt").stat().st_mode) == 0o666 & ~umask()


def umask() -> int:
    os.umask(before := os.umask(0))
    return before


def test_half_a_file_beside_the_good_one_is_not_looked_at(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, state())
    (tmp_path / ".part-0123.pt").write_bytes(b"PK half")  # killed while writing
    assert step_of(tmp_path) == 3
    checkpoint.save(tmp_path, state(4))
    assert step_of(tmp_path) == 4


def test_a_full_disk_leaves_the_good_one(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: writes fail half-way in the same way."""
    checkpoint.save(tmp_path, state())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(fovea.FoveaError, match=r"could not be written .*last good one, .*checkpoint.pt, is whole"):
            checkpoint.save(tmp_path, state(4, stepper={"weights": torch.zeros(1_000_000)}))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert step_of(tmp_path) == 3
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_damaged_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    raises(Damaged, "cannot be read.*--fresh", checkpoint.load, tmp_path, MOST)


LOOP: dict[str, Any] = {}
LOOP["stepper"] = LOOP


@pytest.mark.parametrize(
    "changed",
    [
        torch.ones(2), [1, 2], {}, {"step": 3}, {1: 2}, LOOP, None,
        *(state() | change for change in (
            {"step": -1}, {"step": 10**30}, {"step": "x"}, {"step": torch.ones(3)}, {"seconds": math.nan},
            {"seconds": -1.0}, {"seconds": None}, {"recipe": "?"}, {"recipe": "[" * 100_000}, {"recipe": "5"},
            {"recipe": 5}, {"data": None}, {"data": {"labels": [1], "pictures": 4}},
            {"data": {"labels": [], "pictures": -4}}, {"stepper": None}, {"stepper": {"a": 1}}, {"stepper": [1]},
            {"stepper": {"a": torch.tensor([math.nan])}}, {"stepper": {"a": torch.empty(2, device="meta")}},
            {"optimizer": None}, {"optimizer": {"state": [], "param_groups": []}}, {"optimizer": {"state": {"x": {}}}},
            {"averaged": 5}, {"averaged": {"a": torch.tensor([math.inf])}}, {"precision": {"scale": "x"}},
            {"precision": {"scale": math.nan}}, {"more": 1},
        )),
        *({key: value for key, value in state().items() if key != left_out} for left_out in state()),
    ],
    ids=lambda changed: str(changed)[:50] if isinstance(changed, dict) and changed is not LOOP else None,
)  # fmt: skip
def test_whatever_it_holds_there_is_one_error(changed: Any, tmp_path: Path) -> None:
    torch.save(changed, tmp_path / "checkpoint.pt")
    raises(Damaged, r"checkpoint.pt .*--fresh", checkpoint.load, tmp_path, MOST)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 10**5), by=st.integers(1, 255), cut=st.booleans())
def test_flipped_and_cut_files_have_one_error(at: int, by: int, cut: bool, tmp_path: Path) -> None:
    content = bytearray(checkpoint.save(tmp_path, state()).read_bytes())
    content[at % len(content)] ^= by
    (tmp_path / "checkpoint.pt").write_bytes(content[: at % len(content)] if cut else content)
    with suppress(Damaged):
        known, good = checkpoint.load(tmp_path, MOST), state()
        assert known is not None
        assert (known.step, known.data.model_dump(), known.recipe) == (3, good["data"], {"data": {}})
        assert torch.equal(known.stepper["module.weight"], good["stepper"]["module.weight"])
        assert torch.equal(known.optimizer.state[0]["momentum_buffer"], torch.ones(2, 2))


def test_what_is_larger_than_the_run_is_not_unpacked(tmp_path: Path) -> None:
    path = checkpoint.save(tmp_path, state(stepper={"a": torch.zeros(100_000)}))
    raises(Damaged, "larger than this run's", checkpoint.load, tmp_path, 100_000)
    with ZipFile(path) as stored, ZipFile(tmp_path / "small.zip", "w", ZIP_DEFLATED) as packed:
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    (tmp_path / "small.zip").replace(path)
    assert path.stat().st_size < 10_000
    raises(Damaged, "larger than this run's", checkpoint.load, tmp_path, 100_000)


def test_a_pickle_with_code_is_not_run(tmp_path: Path) -> None:
    class Code:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'ran'}",)

    torch.save(state() | {"step": Code()}, tmp_path / "checkpoint.pt")
    raises(Damaged, "cannot be read", checkpoint.load, tmp_path, MOST)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adadelta", "rmsprop"])
def test_an_optimizer_goes_on_with_what_fits(name: str) -> None:
    kind, _ = OPTIMIZERS[name]
    options = {"momentum": 0.9} if name in ("sgd", "rmsprop") else {}

    def made() -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(0)
        module = nn.Linear(3, 2)
        return module, kind(module.parameters(), lr=0.1, weight_decay=0.1, **options)  # type: ignore[call-arg]

    def step(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        module(torch.ones(1, 3)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    module, optimizer = made()
    step(module, optimizer)
    known = checkpoint.Moments.read(copy.deepcopy(optimizer.state_dict()), "it", "")
    weights = copy.deepcopy(module.state_dict())
    other, again = made()
    checkpoint.put_back(again, known)
    other.load_state_dict(weights)
    step(module, optimizer)
    step(other, again)
    assert all(torch.equal(*pair) for pair in zip(module.parameters(), other.parameters(), strict=True))
    for key in known.state[0]:
        for wrong in ({"stranger": torch.ones(2, 3)}, {key: torch.ones(7)}, {key: "x"}, {key: None}):
            state = {0: {**known.state[0], **wrong}}
            with pytest.raises((ValueError, TypeError)):
                checkpoint.put_back(made()[1], known.model_copy(update={"state": state}))
    for state in ({0: {}}, {7: known.state[0]}):
        with pytest.raises(ValueError, match="does not fit"):
            checkpoint.put_back(made()[1], known.model_copy(update={"state": state}))


def test_no_room_and_no_right_to_write_are_said_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.room_for(tmp_path / "new", 1000)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=5_000_000))
    with pytest.raises(fovea.FoveaError, match="5 MB left and the run's checkpoints need 80 MB"):
        checkpoint.room_for(tmp_path, 80_000_000)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(fovea.FoveaError, match="cannot be written to"):
        checkpoint.room_for(tmp_path / "file", 1)


def test_the_estimate_covers_what_is_written(tmp_path: Path) -> None:
    module = nn.Linear(1000, 1000)
    state = [module.state_dict() for _ in range(4)]  # weights, two moments, averages
    checkpoint.save(tmp_path, {"all": state})
    assert (tmp_path / "checkpoint.pt").stat().st_size < checkpoint.size_of(module, True) / 2


def test_hash_is_of_names_and_bits() -> None:
    one = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor(3)}
    same = {"b": torch.tensor(3), "a": torch.tensor([1.0, 2.0])}
    assert hash_of(one) == hash_of(same)
    for other in ({"a": torch.tensor([1.0, 2.0])}, {**one, "a": torch.tensor([1.0, 2.0 + 2**-22])}):
        assert hash_of(one) != hash_of(other)
