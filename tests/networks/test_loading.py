import os
import pickle
import time
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

import fovea
from checks import refused
from fovea.networks import loading as zoo
from fovea.networks import models, new_head
from fovea.networks.names import OURS

SMALL = "timm/resnet18"


@pytest.fixture(scope="module")
def three_classes() -> nn.Module:
    torch.manual_seed(0)
    return timm.create_model("resnet18", num_classes=3).eval()


@pytest.fixture
def input() -> torch.Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


def said(name: object, **options: object) -> str:
    with pytest.raises(fovea.FoveaError) as error:
        fovea.load(name, **options)
    return f"{type(error.value).__name__}: {error.value}"


def test_a_file_in_a_folder_called_like_a_builder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = fovea.load("timm/resnet10t", pretrained=False, classes=3)
    for folder in ("local", "tnet"):
        net.save(tmp_path / folder / "net.safetensors")
        assert len(fovea.load(f"{folder}/net.safetensors").labels or ()) == 3


def test_offline_weights_labels_and_transform(lite0: fovea.Network) -> None:
    assert lite0.name == "efficientnet_lite0"
    assert not lite0.module.training
    assert [lite0.labels[i] for i in (0, 281, 285, 999)] == ["tench", "tabby", "Egyptian cat", "toilet tissue"]
    assert lite0.transform.size == (224, 224)
    assert lite0.transform.crop == pytest.approx(0.875)


def test_offline_weights_are_right(lite0: fovea.Network, photographs: Path) -> None:
    from fovea.pictures import read

    tensor, _ = lite0.prepare(read(photographs / "chelsea.png"))
    with torch.no_grad():
        best = int(lite0(tensor[None]).argmax())
    assert "cat" in lite0.label(best) or lite0.label(best) == "tabby"


@pytest.mark.parametrize("name", [SMALL, "torchvision/resnet18"])
def test_random_weights_need_no_hub(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked for")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    net = fovea.load(name, pretrained=False)
    assert (net.name, net.module.training, net.label(281)) == (name, False, "tabby")
    assert net.transform.size == (224, 224)


@pytest.mark.parametrize("name", [SMALL, "torchvision/resnet18"])
def test_a_hub_out_of_reach_is_said_at_once(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no way out")

    monkeypatch.setattr("socket.getaddrinfo", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("torch.hub.get_dir", lambda: str(tmp_path))
    start = time.monotonic()
    message = said(name)
    assert time.monotonic() - start < 5
    assert message.startswith(f"BadNetwork: the weights of {name} could not be fetched")
    assert "efficientnet_lite0" in message
    assert "weights=FILE" in message
    assert "pretrained=False" in message


def test_unknown_names_offer_the_nearest() -> None:
    assert "did you mean 'efficientnet_lite0'" in said("efficientnet_light0")
    assert "did you mean 'timm/resnet18'" in said("resnet18")
    assert "timm has no network 'resnet81'; did you mean 'resnet18'" in said("timm/resnet81")
    assert "torchvision has no network 'resnet51'; did you mean 'resnet50'" in said("torchvision/resnet51")
    assert "Invalid pretrained tag" in said("timm/resnet18.nonsense")
    assert said("").startswith("BadChoice: no network ''")


def test_a_network_saved_and_loaded_is_the_same(tmp_path: Path, input: torch.Tensor) -> None:
    net = fovea.load("timm/test_resnet", pretrained=False)
    net.labels = tuple(f"class {i}" for i in range(1000))
    net.save(tmp_path / "mine.safetensors")
    back = fovea.load(tmp_path / "mine.safetensors")
    assert torch.equal(back(input), net(input))
    assert (back.labels, back.name, back.transform) == (net.labels, "mine", net.transform)
    assert back.origin == net.origin
    assert not back.module.training


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_weights_for_three_classes(suffix: str, three_classes: nn.Module, tmp_path: Path, input: torch.Tensor) -> None:
    path = tmp_path / f"three{suffix}"
    if suffix == ".pth":
        torch.save({"epoch": 7, "state_dict": three_classes.state_dict()}, path)
    else:
        save_file(three_classes.state_dict(), str(path))
    net = fovea.load(SMALL, weights=path)
    assert net.labels == ("0", "1", "2")
    with torch.no_grad():
        assert torch.equal(net(input), three_classes(input))


@pytest.mark.parametrize(
    ("name", "file", "called"),
    [
        ("mybirds", "weights", "mybirds"),
        ("my birds/..", "other", "my_birds"),
        ("", "other", "other"),
        ("", "weights", "run"),  # as the folder of a run
        ("efficientnet_lite0-cub100", "other", "other"),  # no file passes for one that comes with fovea
    ],
)
def test_a_saved_network_keeps_its_name(name: str, file: str, called: str, tmp_path: Path) -> None:
    network = fovea.load("smallnet", options={"side": 32, "widths": [4, 4]})
    network.name = name
    network.save(tmp_path / "run" / f"{file}.safetensors")
    assert fovea.load(tmp_path / "run" / f"{file}.safetensors").name == called


def test_three_named_classes_saved_and_loaded(three_classes: nn.Module, tmp_path: Path, input: torch.Tensor) -> None:
    fovea.Network(three_classes, labels=("cat", "dog", "crane"), name=SMALL).save(tmp_path / "a.safetensors")
    back = fovea.load(tmp_path / "a.safetensors")
    assert back.labels == ("cat", "dog", "crane")
    with torch.no_grad():
        assert torch.equal(back(input), three_classes(input))


def test_three_classes_for_an_offline_network(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = timm.create_model("tf_efficientnet_lite0", num_classes=3)
    save_file(module.state_dict(), str(tmp_path / "a.safetensors"))
    assert fovea.load("efficientnet_lite0", weights=tmp_path / "a.safetensors").labels == ("0", "1", "2")


class Code:
    """Unpickled, it would make a file."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.trace,)


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("by_torch", [True, False])
def test_code_in_a_weights_file_is_refused_and_does_not_run(by_torch: bool, protocol: int, tmp_path: Path) -> None:
    trace, path = tmp_path / "it ran", tmp_path / "weights.pth"
    if by_torch:
        torch.save({"fc.weight": Code(trace)}, path, pickle_protocol=protocol)
    else:
        path.write_bytes(pickle.dumps(Code(trace), protocol=protocol))
    for message in (said(SMALL, weights=path), said(path)):
        assert message.startswith("BadNetwork")
        assert "could run code, so it is refused; save the state_dict as safetensors" in message
    assert not trace.exists()
    with path.open("rb") as file:
        if not by_torch:
            pickle.load(file)
            assert trace.exists()  # it would have


def test_damaged_weights(three_classes: nn.Module, tmp_path: Path) -> None:
    save_file(three_classes.state_dict(), str(tmp_path / "whole.safetensors"))
    torch.save(three_classes.state_dict(), tmp_path / "whole.pth")
    for suffix, words in ((".safetensors", "not a whole safetensors file"), (".pth", "cannot be read as weights")):
        path = tmp_path / f"cut{suffix}"
        for length in (0, 5, 100_000):
            path.write_bytes((tmp_path / f"whole{suffix}").read_bytes()[:length])
            for message in (said(SMALL, weights=path), said(path)):
                assert message.startswith("BadNetwork")
                assert length == 5 or words in message
    (tmp_path / "text.pth").write_text("hello " * 50)
    assert said(SMALL, weights=tmp_path / "text.pth").startswith("BadNetwork")
    torch.save([1, 2], tmp_path / "list.pth")
    assert "holds no state dict" in said(SMALL, weights=tmp_path / "list.pth")


def test_weights_that_do_not_fit(three_classes: nn.Module, tmp_path: Path) -> None:
    save_file(three_classes.state_dict(), str(tmp_path / "a.safetensors"))
    assert "a.safetensors does not fit EfficientNet" in said("efficientnet_lite0", weights=tmp_path / "a.safetensors")
    assert "does not say which network it is for; fovea.load('timm/<name>'" in said(tmp_path / "a.safetensors")
    assert "is a weights file itself" in said(tmp_path / "a.safetensors", weights=tmp_path / "a.safetensors")
    assert "no weights file" in said(SMALL, weights=tmp_path / "b.pth")
    assert "did you mean 'a.safetensors'" in said(tmp_path / "aa.safetensors")


def test_listing() -> None:
    everything = models()
    assert everything["offline, with ImageNet weights"] == [f"efficientnet_lite{i}" for i in range(3)]
    assert SMALL in everything["timm"]
    assert "torchvision/resnet18" in everything["torchvision"]
    assert models("torchvision/resnet1*")["torchvision"] == [
        "torchvision/resnet101",
        "torchvision/resnet152",
        "torchvision/resnet18",
    ]
    assert all("ResNet18".lower() in name for names in models("ResNet18").values() for name in names)
    assert models("ResNet18") == models("resnet18")
    assert not any(models("no such thing").values())
    assert models("ours")["ours, trained"] == list(zoo.ours())
    assert not models("ours")["offline, with ImageNet weights"]


def test_a_new_last_layer_keeps_the_trunk(lite0: fovea.Network) -> None:
    new = fovea.load("efficientnet_lite0", classes=7, options={"drop_rate": 0.3})
    assert new.labels == tuple(map(str, range(7)))
    assert torch.equal(new.module.conv_stem.weight, lite0.module.conv_stem.weight)
    assert new(torch.zeros(1, 3, 64, 64)).shape == (1, 7)
    assert new.module.drop_rate == 0.3


@pytest.mark.parametrize(("name", "outputs"), [("vgg11", 1), ("squeezenet1_0", 1), ("googlenet", 3)])
def test_a_new_last_layer_of_torchvisions(name: str, outputs: int) -> None:
    """Every layer with an output a class is replaced, auxiliary heads included."""
    net = fovea.load(f"torchvision/{name}", pretrained=False)
    new_head(net, 4)
    heads = [m for m in net.module.modules() if 4 in (getattr(m, "out_features", 0), getattr(m, "out_channels", 0))]
    assert len(heads) == outputs
    assert net.labels == ("0", "1", "2", "3")


def test_half_the_space(tmp_path: Path, input: torch.Tensor) -> None:
    net = fovea.load("timm/test_resnet", pretrained=False)
    net.module.bn1.running_var.fill_(1e-6)  # too small for fp16 to keep its digits
    net.save(tmp_path / "whole.safetensors")
    net.save(tmp_path / "half.safetensors", half=True)
    sizes = [(tmp_path / f"{name}.safetensors").stat().st_size for name in ("half", "whole")]
    assert sizes[0] < 0.55 * sizes[1]
    state = zoo.read_weights(tmp_path / "half.safetensors")
    assert (state["bn1.running_var"].dtype, state["conv1.0.weight"].dtype) == (torch.float32, torch.float16)
    back = fovea.load(tmp_path / "half.safetensors")
    assert back.dtype == torch.float32
    assert torch.cosine_similarity(back(input), net(input)).min() > 0.9999


def test_weights_that_come_with_fovea() -> None:
    files = {path.stem: path for path in OURS.glob("*.safetensors")}
    assert set(files) == set(zoo.ours())
    assert sum(path.stat().st_size for path in files.values()) < 60e6
    for name, path in files.items():
        card = zoo.ours()[name]
        assert path.stat().st_size < 12e6
        assert (Path(__file__).parents[2] / card["recipe"]).is_file()
        assert {"score", "date", "commit", "trained_on", "processor"} <= set(card)
        net = fovea.load(name)
        assert net.name == name
        assert net.labels is None or len(net.labels) == card["classes"]  # an embedding has none
        assert (net.labels is None) == ("recall_at_1" in card["score"])
        assert name in models(name)["ours, trained"]
        empty = fovea.load(name, pretrained=False)
        assert (empty.labels, empty.transform) == (net.labels, net.transform)
        assert sum(p.numel() for p in empty.module.parameters()) == card["parameters"]


@pytest.mark.skipif("FOVEA_DATA" not in os.environ, reason="needs the pack cub100")
def test_our_birds_are_known() -> None:
    found = fovea.measure("classify", fovea.load("efficientnet_lite0-cub100"), "cub100:split=test,limit=100")
    assert found.rows[0]["top1"] > 0.7


def test_some_of_the_classes_keep_what_they_know(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = fovea.load("smallnet", pretrained=False, classes=5, options={"side": 32, "widths": [4, 6]})
    net.labels, net.temperature = ("ant", "bee", "cat", "dog", "eel"), 2.0
    batch = torch.randn(2, 3, 32, 32)
    before = net(batch)
    zoo.keep_classes(net, ("dog", "ant"))
    assert (net.labels, net.temperature) == (("dog", "ant"), None)  # which was of all of them
    assert torch.allclose(net(batch), before[:, [3, 0]], atol=1e-6)
    refused("did you mean 'dog'", zoo.keep_classes, net, ("dg",))
