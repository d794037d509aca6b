"""Every measure of pictures that needs more than one network or option, by its command: figures, table and picture."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from commands import ran
from fovea.cli.measure import declaration
from fovea.measures.registry import find
from made_recipes import SMALLNET, written

ANCHORED = "--localizer {finder} --data {data} --limit 2"
MOVING = "moving:source=digits,canvas=32,digit=14,step=7,count=8,motions=0+5,split=test"
Check = Callable[[dict[str, Any]], bool]
COMMANDS: dict[str, tuple[str, Check]] = {
    "patches": (
        f"{ANCHORED} --net {{judge}} --full {{judge}} --share 0.1",
        lambda content: "T 0.5, P 0.1" in content["settings"]["lip"] and content["settings"]["part"] == "limit=2",
    ),
    "patch-sensitivity": (
        f"{ANCHORED} --net {{judge}} --shares 0.05 --overlaps 0.1,0.5",
        lambda content: len(content["rows"]) == 4 * 2,
    ),
    "patch-attack": (
        f"{ANCHORED} --net {{judge}} --full {{judge}} --attacks fgsm:2,noise:10",
        lambda content: {row["strength"] for row in content["rows"]} == {0, 2, 10},
    ),
    "patch-curves": (
        f"{ANCHORED} --full {{judge}} --net {{judge}} --numbers 1,2",
        lambda content: [row["patches"] for row in content["rows"] if row.get("kind") == "reading"] == [0, 1, 2] * 3,
    ),
    "patch-sources": (
        "--data {data} --source whole --source random:seed=1",
        lambda content: [row["source"] for row in content["rows"]] == ["whole", "random:seed=1"],
    ),
    "zoom": (
        "--data {data} --net {tnet-seed0} --net {tnet-seed1} --glimpses 0,2 --no-time",
        lambda content: (
            [row["net"] for row in content["rows"][::2]] == ["tnet-seed0", "tnet-seed1", "tnet"]
            and "ms_per_picture" not in content["rows"][0]
        ),
    ),
    "folds": (
        "--data {data} --of 2 --net {tnet-fold0} --net {tnet-fold1} --glimpses 1 --control random,center",
        lambda content: [row["net"] for row in content["rows"]] == ["tnet", "tnet, random", "tnet, center"],
    ),
    "twostream": (
        "--data {data} --net {two-seed0} --net {two-seed1}",
        lambda content: {row["net"] for row in content["rows"]} == {"two"},
    ),
    "finer": (
        "--data {data} --net {two-seed0} --method gradcam,self-attention",
        lambda content: [row["method"] for row in content["rows"][:2]] == ["gradcam", "self-attention"],
    ),
    "trust": (
        "--data {data} --net timm/test_resnet --untrained --method cam,gradcam --steps 2 --curve-pictures 2",
        lambda content: (
            content["recommendation"][-1].startswith("Random maps reach")
            and (content["refused"], content["seed"]) == ({}, 0)
            and [row["method"] for row in content["rows"]] == ["cam", "gradcam", "random"]
            and len({len(row) for row in content["rows"]}) == 1
        ),
    ),
    "clips": (
        f"--net {{video}} --data {MOVING} --method l2caf-oblivious,gradcam-abs --device cpu",
        lambda content: (
            "split=test" in content["settings"]["part"]
            and [row["method"] for row in content["rows"]] == ["l2caf-oblivious", "gradcam-abs"]
        ),
    ),
    "bench families": (
        "--net timm/test_resnet --rounds 1",
        lambda content: [row["iterations"] is None for row in content["rows"]] == [False, False, True, True],
    ),
    "bench explain": (
        "--net timm/test_resnet --batches 1 --dtype bf16 --method cam --rounds 1 --device cpu",
        lambda content: (
            {(row["net"], row["precision"], row["batch"]) for row in content["rows"]}
            == {("timm/test_resnet", "bf16", 1)}
            and content["seed"] == 0
        ),
    ),
    "bench folder": (
        "--data {data} --net {judge} --counts 2,3 --batch 2 --rounds 1",
        lambda content: (
            [row["pictures"] for row in content["rows"]] == [2] * 7 + [3] * 3
            and content["settings"]["pictures"].startswith("2 photographs, over and over, 130 x 120")
        ),
    ),
    "bench serve": (
        "--data {data} --net efficientnet_lite0 --count 4 --batch 2 --rounds 1",
        lambda content: (
            content["rows"][0]["requests"] == 4
            and content["rows"][0]["failed"] == 0
            and content["rows"][0]["x_bare"] > 0
            and content["rows"][0]["p50_ms"] <= content["rows"][0]["p95_ms"]
        ),
    ),
    "bench zoom": (
        "--net tnet/test_efficientnet --against timm/test_resnet --size 96 --glimpses 2 --batches 1,2 --rounds 1",
        lambda content: [row["batch"] for row in content["rows"]] == [1, 2],
    ),
    "bench bytes": (
        "--net {judge} --pack {pack} --count 2 --method cam",
        lambda content: (
            {row["what"]: row["bytes"] for row in content["rows"]}["its file"] == 1000
            and all(row["bytes"] > 0 and row["pictures"] == 2 for row in content["rows"])
        ),
    ),
    "bench train": (
        "--recipe {recipe} --batch 4 --steps 2 --rounds 1 --device cpu",
        lambda content: (
            [(row["recipe"], row["batch"], row["precision"]) for row in content["rows"]] == [("tiny", 4, "32-true")]
            and 0 < content["rows"][0]["images_per_second"] < 100 * content["rows"][0]["bare_images_per_second"]
        ),
    ),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two pictures with boxes, and a network of each kind."""
    folder = tmp_path_factory.mktemp("files")
    for label in ("0", "1"):
        (folder / "data" / label).mkdir(parents=True)
        pixels = np.random.default_rng(int(label)).integers(0, 256, (20, 20, 3), dtype=np.uint8)
        Image.fromarray(pixels).resize((130, 120)).save(folder / "data" / label / "a.png")
    (folder / "data" / "boxes.csv").write_text("file,boxes\n0/a.png,5 5 100 90\n1/a.png,5 5 100 90\n")
    (folder / "pack").mkdir()
    small = io.BytesIO()
    Image.new("RGB", (40, 40)).save(small, "png")
    with tarfile.open(folder / "pack" / "0.tar", "w") as tar:
        for name in ("a.png", "b.png"):  # of a thousand bytes each
            info = tarfile.TarInfo(name)
            info.size = 1000
            tar.addfile(info, io.BytesIO(small.getvalue().ljust(1000, b"\0")))
    (folder / "pack" / "manifest.csv").write_text("file,shard,label\na.png,0.tar,0\nb.png,0.tar,1\n")
    two = {"side": 40, "size": 32, "patch": 32, "hidden": 6, "steps": 3, "source": "whole", "self_attention": True}
    video = {"channels": [8, 8, 16, 16], "stem_width": 8, "layer": "layer1", "size": 32, "hidden": 4}
    kinds: dict[str, tuple[str, dict[str, Any]]] = {
        "finder": ("anchornet", {"side": 119}),
        "judge": ("timm/test_resnet", {}),
        "video": ("video/timm/resnet10t", video),
        **{
            f"tnet-{one}": ("tnet/test_efficientnet", {"levels": 2, "base": 32, "side": 128})
            for one in ("seed0", "seed1", "fold0", "fold1")
        },
        **{f"two-seed{i}": ("twostream/timm/resnet10t", two) for i in (0, 1)},
    }
    for seed, (name, (kind, options)) in enumerate(kinds.items()):
        torch.manual_seed(seed)
        classes = None if name == "video" else 2
        network = fovea.load(kind, pretrained=False, classes=classes, options=options)
        network.save(folder / f"{name}.safetensors")
    recipe = written(folder, {"network": SMALLNET, "data": {"train": "imagenette:split=train"}, "ema": 0.9})
    return {
        "data": folder / "data",
        "pack": folder / "pack",
        "recipe": recipe,
        **{name: folder / f"{name}.safetensors" for name in kinds},
    }


@pytest.mark.parametrize("name", COMMANDS)
def test_commands(name: str, files: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # patches of two streams are kept below it
    (words, check), declared = COMMANDS[name], find(name)
    line = name if name.startswith("bench") else f"measure {name}"
    out = "--out new/f.png" if declared.figure else ""
    done = ran(f"{line} {words.format(**files)} {out} --json new/f.json")
    content = json.loads(Path("new/f.json").read_text())
    assert content["what"] == name
    assert check(content), content
    row = content["rows"][0]
    assert str(row.get("method") or row.get("source") or row["net"]) in done.output
    assert not out or Image.open("new/f.png").width > 200


def test_a_network_that_may_be_left_out_has_no_usual_one() -> None:
    """No reader of patches was asked for, so none reads them."""
    declared = declaration(find("patch-curves"))
    assert [declared.usual_of(role) for role in ("net", "rival")] == [None, None]
    assert declaration(find("patches")).usual_of("net") == ("efficientnet_lite0",)
    assert "net" in declaration(find("patches")).required
