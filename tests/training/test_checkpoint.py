import resource
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import fovea
from fovea.networks import hash_of
from fovea.training import checkpoint


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path, {"step": 3, "weights": {"a": torch.ones(2)}})
    known = checkpoint.load(tmp_path)
    assert known is not None
    assert known["step"] == 3
    assert torch.equal(known["weights"]["a"], torch.ones(2))
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_half_a_file_beside_the_good_one_is_not_looked_at(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, {"step": 3})
    (tmp_path / "checkpoint.part").write_bytes(b"PK half")  # killed while writing
    assert checkpoint.load(tmp_path) == {"step": 3}
    checkpoint.save(tmp_path, {"step": 4})
    assert checkpoint.load(tmp_path) == {"step": 4}


def test_a_full_disk_leaves_the_good_one(tmp_path: Path) -> None:
    """A limit on the size of files stands in for the disk: writes fail half-way in the same way."""
    checkpoint.save(tmp_path, {"step": 3})
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(fovea.FoveaError, match=r"could not be written .*last good one, .*checkpoint.pt, is whole"):
            checkpoint.save(tmp_path, {"step": 4, "weights": torch.zeros(1_000_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert checkpoint.load(tmp_path) == {"step": 3}
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_damaged_checkpoint_is_said(tmp_path: Path) -> None:
    (tmp_path / "checkpoint.pt").write_bytes(b"not a checkpoint")
    with pytest.raises(fovea.FoveaError, match="cannot be read"):
        checkpoint.load(tmp_path)


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
