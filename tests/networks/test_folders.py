"""A folder of transformers is loaded without trust: no code, no pickle, no connection, no file elsewhere."""

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import fovea
from commands import ran

transformers = pytest.importorskip("transformers")
CONFIG = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    names = {0: "tabby", 1: "lynx", 2: "fox"}
    config = transformers.ViTConfig(**CONFIG, image_size=64, patch_size=16, id2label=names)
    transformers.ViTForImageClassification(config).save_pretrained(tmp_path / "cats")
    transformers.ViTImageProcessor(size={"height": 64, "width": 64}).save_pretrained(tmp_path / "cats")
    return tmp_path / "cats"


def changed(folder: Path, file: str, **entries: Any) -> None:
    path = folder / file
    path.write_text(json.dumps(json.loads(path.read_text()) | entries if path.exists() else entries))


def test_a_folder_is_a_network(folder: Path) -> None:
    network = fovea.load(folder)
    assert (network.name, network.labels) == ("cats", ("tabby", "lynx", "fox"))
    model = transformers.ViTForImageClassification.from_pretrained(folder)
    batch = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(network(batch), model(batch).logits)
    assert fovea.load(folder, classes=7)(batch).shape == (1, 7)
    other = fovea.load(folder, pretrained=False)
    assert not torch.allclose(other(batch), network(batch))
    with pytest.raises(fovea.BadNetwork, match="save its state_dict yourself"):
        network.save(folder / "x.safetensors")
    with pytest.raises(fovea.BadChoice, match="weights and options are its own"):
        fovea.load(folder, options={"hidden_size": 3})


def test_by_the_command_line(folder: Path, tmp_path: Path) -> None:
    Image.effect_noise((90, 60), 60).convert("RGB").save(tmp_path / "photo.png")
    ran(f"explain {tmp_path}/photo.png --net {folder} --target lynx --method gradcam --out {tmp_path}/out")
    assert json.loads((tmp_path / "out/results.json").read_text())["results"][0]["maps"][0]["target"] == "lynx"


@pytest.mark.security
@pytest.mark.parametrize(
    ("file", "entries", "why"),
    [
        ("config.json", {"auto_map": {"AutoConfig": "evil.Config"}}, "code of its own"),
        ("preprocessor_config.json", {"auto_map": {"AutoImageProcessor": "evil.P"}}, "code of its own"),
        ("config.json", {"_attn_implementation": "somebody/kernels"}, "code to fetch"),
        ("config.json", {"backbone_config": {"backbone": "somebody/net"}}, "would be fetched"),
        ("config.json", {"use_pretrained_backbone": True}, "would be fetched"),
        ("config.json", {"quantization_config": {"quant_method": "gptq"}}, "quantized"),
        ("tokenizer_config.json", {"vocab_file": "/etc/passwd"}, "a file elsewhere"),
        ("model.safetensors.index.json", {"weight_map": {"a": "../../b.safetensors"}}, "a file elsewhere"),
        ("adapter_config.json", {"base_model_name_or_path": "somebody/net"}, "adapter of another model"),
        ("config.json", {"architectures": ["pipeline"]}, "does not say which model"),
        ("config.json", {"architectures": []}, "does not say which model"),
        ("config.json", {"hidden_size": 10**6}, "would have more than"),
        ("config.json", {"hidden_size": 48}, "cannot be loaded"),
        ("config.json", {"hidden_size": "many"}, "cannot be loaded"),
    ],
)
def test_what_a_folder_may_not_say(folder: Path, file: str, entries: dict[str, Any], why: str) -> None:
    changed(folder, file, **entries)
    with pytest.raises(fovea.BadNetwork, match=why) as refused:
        fovea.load(folder)
    assert "\n" not in str(refused.value)


@pytest.mark.security
def test_a_pickle_in_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
            return Path.touch, (str(tmp_path / "ran"),)

    (folder / "model.safetensors").unlink()
    torch.save({"x": Attack()}, folder / "pytorch_model.bin")
    with pytest.raises(fovea.BadNetwork, match="could run code"):
        fovea.load(folder)
    assert not (tmp_path / "ran").exists()


@pytest.mark.security
def test_a_folder_asks_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    (folder / "preprocessor_config.json").unlink()  # what is missing is not fetched either
    assert fovea.load(folder).transform is not None


def test_a_name_of_the_hub_says_when_it_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any, **__: Any) -> Any:
        raise OSError("no way")

    monkeypatch.setattr(socket, "getaddrinfo", away)
    with pytest.raises(fovea.BadNetwork, match="weights of transformers/nobody/nothing could not be fetched"):
        fovea.load("transformers/nobody/nothing")


def test_weights_that_are_missing_are_said(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    state = load_file(folder / "model.safetensors")
    save_file({key: value for key, value in state.items() if key != "classifier.bias"}, folder / "model.safetensors")
    with pytest.warns(UserWarning, match=r"1 of its tensors are not in its file, and random: classifier.bias"):
        fovea.load(folder)


@pytest.mark.security
def test_no_weights_file_names_a_hub_of_models(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors", {"fovea.network": "transformers/somebody/net"})
    with pytest.raises(fovea.BadNetwork, match="not registered here"):
        fovea.load(tmp_path / "x.safetensors")
