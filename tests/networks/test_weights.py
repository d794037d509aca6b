"""Weights files that are damaged, or made to do harm, and those that are written."""

import os
import zipfile
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import fovea
from checks import raises
from forging import opened
from fovea.networks import hash_of, read_weights

pytestmark = pytest.mark.security


def test_written_weights_have_ordinary_permissions_and_no_part_is_left(honest: Path, tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        fovea.load(honest).save(tmp_path / "a.safetensors")
    finally:
        os.umask(before)
    assert [path.name for path in tmp_path.iterdir()] == ["a.safetensors"]
    assert (tmp_path / "a.safetensors").stat().st_mode & 0o777 == 0o644


def test_the_hash_in_a_file_is_of_its_tensors(honest: Path) -> None:
    about, tensors = opened(honest)
    assert about["fovea.sha256"] == hash_of(tensors)


@pytest.mark.parametrize("place", [-1, -1000, -20_000])
def test_a_changed_bit_is_noticed(place: int, honest: Path, tmp_path: Path) -> None:
    content = bytearray(honest.read_bytes())
    content[place] ^= 1
    (tmp_path / "a.safetensors").write_bytes(content)
    for given in (
        {"name": tmp_path / "a.safetensors"},
        {"name": "timm/test_resnet", "weights": tmp_path / "a.safetensors"},
    ):
        raises(fovea.BadNetwork, "is damaged: its tensors are not those that were saved", fovea.load, **given)


def test_names_of_any_bytes(honest: Path, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.safetensors")
    fovea.load(honest).save(path)
    assert fovea.load(path).labels == ("0", "1", "2")


def test_a_state_dict_may_be_wrapped_but_not_in_itself(honest: Path, tmp_path: Path) -> None:
    path, (_, tensors) = tmp_path / "a.pth", opened(honest)
    torch.save({"model": {"state_dict": tensors}}, path)
    assert read_weights(path).keys() == tensors.keys()
    around: dict[str, object] = {"epoch": 1}
    around["state_dict"] = around
    torch.save(around, path)
    raises(fovea.BadNetwork, "holds no state dict", read_weights, path)


@pytest.mark.parametrize(
    "state",
    [{1: torch.zeros(1)}, {None: torch.zeros(1)}, {"a": 3}, {"a": {"b": 1}}, [torch.zeros(1)], torch.zeros(1), None],
)
def test_what_is_no_state_dict(state: object, tmp_path: Path) -> None:
    torch.save(state, tmp_path / "a.pth")
    raises(fovea.BadNetwork, "holds no state dict", read_weights, tmp_path / "a.pth")


@pytest.mark.parametrize("kind", ["sparse", "meta", "complex", "quantized"])
@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, for quantized tensors
def test_tensors_that_no_network_has(kind: str, tmp_path: Path) -> None:
    zeros = torch.zeros(2, 2)
    made = {
        "sparse": zeros.to_sparse,
        "meta": lambda: zeros.to("meta"),
        "complex": lambda: zeros.to(torch.complex64),
        "quantized": lambda: torch.quantize_per_tensor(zeros, 1.0, 0, torch.qint8),
    }
    torch.save({"a": made[kind]()}, tmp_path / "a.pth")
    raises(fovea.BadNetwork, "a.pth", read_weights, tmp_path / "a.pth")


def test_a_pickle_that_unpacks_to_more_than_its_size(tmp_path: Path) -> None:
    torch.save({"a": torch.zeros(10**6)}, tmp_path / "a.pth")
    with (
        zipfile.ZipFile(tmp_path / "a.pth") as honest,
        zipfile.ZipFile(tmp_path / "b.pth", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for name in honest.namelist():
            bomb.writestr(name, honest.read(name))
    assert (tmp_path / "b.pth").stat().st_size < 10_000
    assert torch.load(tmp_path / "b.pth", weights_only=True)["a"].numel() == 10**6  # torch unpacks it
    raises(fovea.BadNetwork, "would unpack to more than its size", read_weights, tmp_path / "b.pth")


def test_tensors_of_another_kind_are_not_converted(honest: Path, tmp_path: Path) -> None:
    about, tensors = opened(honest)
    del about["fovea.sha256"]
    whole = {key: value.to(torch.int32) if value.is_floating_point() else value for key, value in tensors.items()}
    save_file(whole, str(tmp_path / "a.safetensors"), about)
    raises(fovea.BadNetwork, "is torch.int32, not torch.float32", fovea.load, tmp_path / "a.safetensors")


def test_options_that_no_file_holds(tmp_path: Path) -> None:
    net = fovea.load("timm/test_resnet", pretrained=False, options={"act_layer": torch.nn.ReLU})
    raises(fovea.BadNetwork, "numbers and texts", net.save, tmp_path / "a.safetensors")
