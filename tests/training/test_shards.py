"""FSDP on two real processes, which each hold half of the weights, against DDP."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import fovea
from checks import refused
from fovea.training.loop import train
from fovea.training.recipe import check
from made_recipes import HEAD, small
from several_processes import losses, together

pytest.importorskip("sklearn")
ADAM = {"name": "adamw", "lr": 0.01, "weight_decay": 0.1, "clip": 1.0, "groups": [{"match": "stages.0.*", "lr": 0.001}]}
HARD = small(21) | {"epochs": 3, "ema": 0.9, "accumulate": 2, "optimizer": ADAM, "precision": "fp64", "save_every": 0}


def test_half_of_the_weights_per_process_and_the_same_run(tmp_path: Path) -> None:
    """Twelve steps of AdamW with clipping, averaged weights, batch norm over both processes and accumulation. A
    checkpoint is whole: one kind of run goes on where the other stopped."""
    ddp, fsdp = {"recipe": HARD}, {"recipe": HARD | {"strategy": "fsdp"}}
    a, b, c, d, e = (str(tmp_path / name) for name in "abcde")
    facts = together(
        2,
        tmp_path,
        ddp | {"out": a},
        fsdp | {"out": b},
        fsdp | {"out": c, "stop": 5},
        fsdp | {"out": c, "resume": True},
        fsdp | {"out": d, "stop": 5},
        ddp | {"out": d, "resume": True},
        fsdp | {"out": e, "stop": 5},
    )
    train(check(HEAD | HARD), e, resume=True, device="cpu")
    assert losses(e)[:5] == losses(b)[:5], "and by another number of processes"
    assert len(losses(e)) == 12
    whole, half = ([rank["held"] for rank in facts[i]] for i in (0, 1))
    assert whole == [facts[0][0]["weights"]] * 2
    assert sum(half) == facts[1][0]["weights"], "every weight is somewhere, and nowhere twice"
    assert max(half) < 0.6 * sum(half)
    assert len(losses(a)) == 12
    assert losses(a) == losses(b) == losses(c) == losses(d)
    assert {rank["hash"] for run in (1, 3) for rank in facts[run]} == {facts[1][0]["hash"]}, "a stop changes nothing"
    assert len({json.dumps(rank["score"]) for run in (0, 1, 3, 5) for rank in facts[run]}) == 1
    plain, *others = (load_file(Path(out) / "weights.safetensors") for out in (a, b, d))
    for other in others:  # the norm that is clipped sums shard by shard
        assert other.keys() == plain.keys()
        assert all(torch.allclose(other[key], plain[key], rtol=1e-9, atol=1e-12) for key in plain)
    loaded = fovea.load(Path(b) / "weights.safetensors").module.state_dict()
    assert torch.equal(loaded["classifier.bias"], others[0]["classifier.bias"].float())


def test_alone_it_is_an_ordinary_run(tmp_path: Path) -> None:
    runs = [
        train(check(HEAD | HARD | more), tmp_path / str(i), device="cpu")
        for i, more in enumerate(({}, {"strategy": "fsdp"}))
    ]
    assert runs[0].hash == runs[1].hash


@pytest.mark.parametrize("more", [{"project": True}, {"compile": True}, {"sync_norm": False}])
def test_what_does_not_go_with_it_is_refused(more: dict[str, Any]) -> None:
    refused(f"'fsdp' is not for {next(iter(more))}", check, HEAD | HARD | {"strategy": "fsdp"} | more)
    check(HEAD | HARD | more)


TEN_T = {"channels": [8, 8, 16, 16], "stem_width": 8}
NETS: dict[str, dict[str, Any]] = {
    "vit": {
        "network": {
            "name": "timm/vit_tiny_patch16_224",
            "options": {"img_size": 32, "embed_dim": 24, "depth": 3, "num_heads": 2},
            "size": 32,
        }
    },
    "norms with activations": {"network": {"name": "timm/resnet10t", "options": TEN_T, "size": 32}},
    "glimpses": {
        "network": {
            "name": "tnet/resnet10t",
            "options": TEN_T | {"in_chans": 1, "base": 32, "side": 64, "levels": 2, "glimpses": 2},
        },
        "loss": {"name": "reinforce"},
    },
}


@pytest.mark.slow
def test_other_networks(tmp_path: Path) -> None:
    common = small(12) | {"epochs": 1, "precision": "fp64"}
    recipes = [common | more | {"network": more["network"] | {"pretrained": False}} for more in NETS.values()]
    runs = [
        {"recipe": recipe | {"strategy": strategy}, "out": str(tmp_path / f"{name}-{strategy}")}
        for recipe, name in zip(recipes, NETS, strict=True)
        for strategy in ("ddp", "fsdp")
    ]
    facts = together(2, tmp_path, *runs)
    for i, name in enumerate(NETS):
        ddp, fsdp = facts[2 * i : 2 * i + 2]
        assert max(rank["held"] for rank in fsdp) < 0.7 * fsdp[0]["weights"], name
        plain, ours = (losses(tmp_path / f"{name}-{strategy}") for strategy in ("ddp", "fsdp"))
        assert len(plain) == 4
        assert ours == [pytest.approx(loss, abs=1e-6) for loss in plain], name
        assert ddp[0]["score"] == fsdp[0]["score"] == fsdp[1]["score"], name
