import json
import socket
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from checks import left_as_found, refused
from commands import ran
from conftest import Through
from fovea.measures import cost
from fovea.measures.cost import readable
from fovea.networks import macs, parameters, placed, statistics
from fovea.pictures import Prepare

measure = partial(fovea.measure, "cost")


def costs(words: str, folder: Path) -> tuple[list[dict[str, Any]], str]:
    """The rows that the command writes, and what it prints."""
    told = ran(f"measure cost {words} --rounds 1 --json {folder / 'costs.json'}").stdout
    return json.loads((folder / "costs.json").read_text())["rows"], told


def by_equation_11(module: nn.Module, pixels: Tensor) -> int:
    """(C_in k^2) (H_out W_out C_out) of every convolution and linear layer that runs, from their shapes alone."""
    counted: list[int] = []

    def count(layer: Any, _: Any, out: Tensor) -> None:
        reads = layer.in_features if isinstance(layer, nn.Linear) else layer.in_channels // layer.groups
        window = 1 if isinstance(layer, nn.Linear) else layer.kernel_size[0] * layer.kernel_size[1]
        counted.append(reads * window * out.numel())

    handles = [one.register_forward_hook(count) for one in module.modules() if isinstance(one, (nn.Conv2d, nn.Linear))]
    with torch.no_grad():
        module(pixels)
    for handle in handles:
        handle.remove()
    return sum(counted)


def test_layers_by_hand() -> None:
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),  # (3 * 9) * (8 * 8 * 8)
        nn.BatchNorm2d(8),
        nn.Conv2d(8, 8, 3, 1, 1, groups=8),  # (1 * 9) * (8 * 8 * 8)
        nn.Conv2d(8, 4, 1, bias=False),  # 8 * (8 * 8 * 4)
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 10),  # 4 * 10
    ).eval()
    net = fovea.wrap(module)
    assert macs(net, torch.rand(1, 3, 16, 16)) == 27 * 512 + 9 * 512 + 8 * 256 + 40
    assert parameters(module) == (27 * 8 + 8) + 16 + (9 * 8 + 8) + 32 + 50
    assert statistics(module) == 16  # the count of batches is no statistic


def test_attention_by_hand() -> None:
    """Projections 5 * 8 * 24 and 5 * 8 * 8, products of queries and keys, weights and values: 5 * 5 * 8 each."""

    def attending(x: Tensor, attention: nn.Module) -> Tensor:
        rows = x.flatten(2).transpose(1, 2)  # 5 cells, 8 channels each
        return attention(rows, rows, rows, need_weights=False)[0].mean(1)

    net = fovea.wrap(Through(attending, nn.MultiheadAttention(8, 2, batch_first=True)))
    assert macs(net, torch.rand(1, 8, 1, 5)) == 960 + 320 + 200 + 200
    assert torch.backends.mha.get_fastpath_enabled()  # as it was


def test_recurrent_layers_by_hand() -> None:
    """7 steps, each from 10 inputs and 20 states to 4 * 20 gates."""
    net = fovea.wrap(Through(lambda x, lstm: lstm(x)[0][:, -1], nn.LSTM(10, 20, batch_first=True)))
    assert macs(net, torch.rand(1, 7, 10)) == 7 * (10 + 20) * 80


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("timm/test_resnet", 96),
        ("timm/test_convnext", 96),
        ("timm/test_efficientnet", 65),
        ("timm/mobilenetv3_small_100", 96),
        ("timm/resnext50_32x4d", 64),
        ("timm/tf_efficientnet_lite0", 97),
        ("torchvision/densenet121", 64),
        ("torchvision/vgg11", 64),
    ],
)
def test_torch_counts_as_equation_11(name: str, size: int) -> None:
    net = fovea.load(name, pretrained=False)
    pixels = torch.rand(1, 3, size, size)
    assert macs(net, pixels) == by_equation_11(net.module, pixels)


def test_attention_is_what_equation_11_does_not_know() -> None:
    """101 tokens of 64 channels in 6 blocks; its layers know nothing of the products between tokens."""
    net = fovea.load("timm/test_vit", pretrained=False)
    pixels = torch.rand(1, 3, 160, 160)
    assert macs(net, pixels) - by_equation_11(net.module, pixels) == 6 * 2 * 101 * 101 * 64


@pytest.mark.parametrize("name", ["timm/efficientnet_b0", "timm/tf_efficientnet_b0"])
def test_efficientnet_b0_as_in_tnet(name: str) -> None:
    """The paper: 4.13 M parameters, 0.39, 1.54 and 6.18 GFLOPs with 62 classes."""
    net = fovea.load(name, pretrained=False, classes=62)
    assert parameters(net.module) + statistics(net.module) == 4_128_986
    found = [macs(net, torch.zeros(1, 3, size, size)) / 1e9 for size in (224, 448, 896)]
    assert found == pytest.approx([0.3846, 1.5363, 6.1432], abs=5e-5)


def test_row() -> None:
    net = fovea.load("timm/test_resnet", pretrained=False)
    seen: list[tuple[int, int]] = []
    found = measure(net, size=64, batch=4, rounds=5, progress=lambda *now: seen.append(now))
    (row,) = found.rows
    assert (row["net"], row["size"], row["batch"]) == ("timm/test_resnet", 64, 4)
    assert (row["pixels"], row["bytes"]) == (64 * 64, 3 * 64 * 64 * 4)
    assert type(row["macs"]) is type(row["params"]) is int
    assert row["macs"] == macs(net, torch.rand(1, 3, 64, 64))  # of a picture, not of the batch
    assert row["buffers_params"] - row["params"] == statistics(net.module) > 0
    assert row["ms_per_picture"] > 0
    assert row["peak_mb"] > 4 * 16 * 32 * 32 * 4 / 2**20  # at least the stem's output
    assert found.settings["threads"] == torch.get_num_threads()
    assert seen[-1] == (8, 8)


def test_four_times_the_pixels_cost_four_times_as_much() -> None:
    net = fovea.load("timm/test_efficientnet", pretrained=False)
    small, large = (measure(net, size=size, rounds=1).rows[0] for size in (64, 128))
    head = net.module.classifier
    pooled = head.in_features * head.out_features
    assert large["macs"] - pooled == pytest.approx(4 * (small["macs"] - pooled), rel=0.01)  # squeezing is not spatial
    assert large["peak_mb"] > 2 * small["peak_mb"]  # some of it is scratch space for weights


def test_own_size_is_the_transforms() -> None:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    net = fovea.wrap(module, Prepare((20, 30), (0.5,), (0.5,)))
    row = measure(net, rounds=1).rows[0]
    assert (row["size"], row["pixels"], row["macs"]) == ("20 x 30", 600, 9 * 2 * 18 * 28)
    assert measure(fovea.wrap(module), size=12, rounds=1).rows[0]["macs"] == 9 * 2 * 10 * 10
    refused("size=224", measure, fovea.wrap(module))


def test_the_network_is_left_as_found() -> None:
    net = fovea.load("timm/test_resnet", pretrained=False)
    with left_as_found(net.module.train()):
        measure(net, size=64, rounds=1)


def test_a_size_that_does_not_fit() -> None:
    net = fovea.load("timm/vit_tiny_patch16_224", pretrained=False)
    with pytest.raises(fovea.BadNetwork, match=r"patch16_224 does not run on an input of 3 x 64 x 64: .*height"):
        measure(net, size=64)


def test_time_is_the_median_after_warming_up(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = iter([0.6] * cost.WARM_UP + [0.05, 0.6, 0.05])
    monkeypatch.setattr(cost, "seconds", lambda call, device: next(spent))
    net = fovea.load("timm/test_resnet", pretrained=False)
    assert measure(net, size=64, rounds=3).rows[0]["ms_per_picture"] == 50
    assert next(spent, None) is None


def test_a_pictures_own_pixels(tmp_path: Path) -> None:
    Image.new("RGB", (30, 20)).save(tmp_path / "small.png")
    net = fovea.load("timm/test_resnet", pretrained=False)
    row = measure(net, size=64, rounds=1, picture=tmp_path / "small.png").rows[0]
    assert (row["picture_pixels"], row["picture_bytes"]) == (600, (tmp_path / "small.png").stat().st_size)
    assert "600 pixels" in readable(row)[-1]["figure"]


def test_resnet50_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("asked for a connection")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    (row,), told = costs("--net timm/resnet50", tmp_path)
    assert "25.56 M" in told
    assert "4.09 GMACs" in told
    assert {"net", "params", "macs", "ms_per_picture", "peak_mb"} <= set(row)
    assert (row["params"], row["macs"]) == (25_557_032, 4_089_184_256)


def test_command_with_other_classes(tmp_path: Path) -> None:
    (row,), told = costs("--net timm/test_resnet --classes 7 --size 64 --batch 2", tmp_path)
    assert row["params"] == parameters(fovea.load("timm/test_resnet", pretrained=False, classes=7).module)
    assert "timm/test_resnet at 64, batch 2, on cpu" in told


def test_a_device_that_is_not_there() -> None:
    net = fovea.load("timm/test_resnet", pretrained=False)
    refused("auto, cpu, cuda, mps, xpu, or a numbered one, as cuda:1; got 'gpu'", placed, net, "gpu")
    if not torch.cuda.is_available():
        refused("no GPU", placed, net, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu() -> None:
    net = fovea.load("timm/test_resnet", pretrained=False)
    on_cpu = measure(net, size=64, batch=2, rounds=2).rows[0]
    on_gpu = measure(placed(net, "cuda"), size=64, batch=2, rounds=2)
    assert on_gpu.settings["device"] == "cuda"
    assert on_gpu.rows[0]["macs"] == on_cpu["macs"]
    assert on_gpu.rows[0]["peak_mb"] > 0


def test_the_readings_of_a_papers_table(tmp_path: Path) -> None:
    rows, told = costs("--net anchornet --classes 1000", tmp_path)
    assert [row["se"] for row in rows] == ["global", "local", "none"]
    paper = rows[0]
    assert (paper["receptive_fields"], paper["grids"]) == ("63/95/111", "21 x 21/17 x 17/15 x 15")
    assert 1.55e6 <= paper["params"] <= 1.56e6
    assert 0.485e9 <= paper["macs"] <= 0.493e9
    assert "cells see the whole picture" in told
    assert costs("--net anchornet --option se=none", tmp_path)[1].count("receptive fields") == 1


def test_bagnet_and_tnet_as_in_the_paper() -> None:
    """Table 1: 20.55 M and 18.42 G; 21.86 M and 1.82, 3.63, 5.43, 7.24, 10.84 G at 0, 1, 2, 3, 5 locations."""
    bag = fovea.load("bagnet77", pretrained=False, classes=1000)
    tnet = fovea.load("tnet-bagnet77", pretrained=False, classes=1000)
    pixels = torch.zeros(1, 3, 224, 224)
    assert (parameters(bag.module), parameters(tnet.module)) == (20_546_664, 21_859_949)
    assert macs(bag, pixels) / 1e9 == pytest.approx(18.4231, rel=1e-4)
    found = [macs(tnet, pixels, count) / 1e9 for count in (0, 1, 2, 3, 5)]
    assert found == pytest.approx([1.8241, 3.6279, 5.4318, 7.2356, 10.8433], rel=5e-3)
    assert macs(tnet, pixels) == macs(tnet, pixels, 3)  # what it usually reads


def test_tnet_b0_as_in_the_paper() -> None:
    """Table 2: 4.56 M and 0.39, 0.77, 1.16, 1.55 G at 448, 1.94, 2.71 G at 896 px."""
    net = fovea.load("tnet-b0", pretrained=False, classes=62)
    assert parameters(net.module) + statistics(net.module) == 4_559_591
    found = [macs(net, torch.zeros(1, 3, 896, 896), count) / 1e9 for count in (0, 1, 2, 3, 4, 6)]
    assert found == pytest.approx([0.385, 0.770, 1.155, 1.540, 1.925, 2.695], rel=5e-3)
    assert found == pytest.approx([0.39, 0.77, 1.16, 1.55, 1.94, 2.71], rel=1.5e-2)
    two = fovea.load("tnet-b0", pretrained=False, classes=62, options={"levels": 2, "glimpses": 3})
    found_in_two = [macs(two, torch.zeros(1, 3, 448, 448), count) / 1e9 for count in (0, 1, 2, 3)]
    assert found_in_two == pytest.approx(found[:4], rel=1e-3)  # how many levels they lie in does not matter


def test_saccader_as_in_its_paper() -> None:
    net = fovea.load("saccader", classes=1001)
    assert macs(net, torch.zeros(1, 3, 224, 224), 2) / 1e9 == pytest.approx(19.5, rel=5e-3)


def test_dram_as_in_its_paper() -> None:
    net = fovea.load("dram", classes=1001)
    per_glimpse = (macs(net, torch.zeros(1, 3, 224, 224), 3) - macs(net, torch.zeros(1, 3, 224, 224), 2)) / 1e9
    assert per_glimpse == pytest.approx((13.03 - 1.86) / 18, rel=0.05)  # TNet's Table 1


def test_statistics_of_every_level_count() -> None:
    options = {"levels": 3, "base": 32}
    shared, own = (
        fovea.load("tnet/test_efficientnet", pretrained=False, options={**options, "norms": norms}).module
        for norms in ("shared", "level")
    )
    assert statistics(own) == 3 * statistics(shared) > 0


def test_locations(tmp_path: Path) -> None:
    rows, told = costs("--net tnet/test_efficientnet --option base=32 --glimpses 0,2", tmp_path)
    assert [row["locations"] for row in rows] == [0, 2]
    assert rows[0]["macs"] < rows[1]["macs"]
    assert told.count("locations read") == 2
    net = fovea.load("tnet/test_efficientnet", pretrained=False, options={"base": 32, "glimpses": 3})
    assert measure(net, rounds=1).rows[0]["locations"] == 3  # its own
    refused("reads 0 to 90 glimpses; got 91", measure, net, rounds=1, glimpses=[91])
    whole = fovea.load("timm/test_resnet", pretrained=False)
    assert "locations" not in measure(whole, size=64, rounds=1).rows[0]
    refused("reads whole pictures: leave the number of locations out", measure, whole, size=64, rounds=1, glimpses=[2])


def test_papers_are_told_beside_ours() -> None:
    row = {"net": "dram", "params": 45_552_938, "buffers_params": 45_643_818, "macs": 1_909_993_280, "locations": 2,
           "ms_per_picture": 9.0, "peak_mb": 8.8, "pixels": 50176, "bytes": 602112}  # fmt: skip
    told = {line["what"]: line["figure"] for line in readable(row)}
    assert told["TNet, Table 1, says"] == "45.61 M parameters, 1.86 GMACs, with 1,000 classes"
    assert told["Saccader, supplement, says"] == "45.61 M parameters, with 1,001 classes"
    assert (
        "GMACs"
        not in {line["what"]: line["figure"] for line in readable({**row, "locations": 3})}["TNet, Table 1, says"]
    )


def test_an_option_called_as_a_figure(tmp_path: Path) -> None:
    """DRAM is built for a number of locations, and may read fewer."""
    rows, _ = costs("--net dram --option locations=3 --option width=0.125 --glimpses 1,3", tmp_path)
    assert [(row["locations"], row["width"]) for row in rows] == [(1, 0.125), (3, 0.125)]
