"""Embeddings through the loop that trains every network."""

from pathlib import Path

import pytest
import torch

import fovea
from fovea.training import loop
from fovea.training.log import read
from fovea.training.recipe import Recipe
from made_recipes import SMALLNET, recipe


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"loss": {"name": "triplet"}}, "per_class = 2 or more"),
        ({"loss": {"name": "npair"}, "per_class": 4}, "per_class is 2; got 4"),
        ({"loss": {"name": "triplet"}, "per_class": 4, "augment": {"cutmix": 1.0}}, "leave mixup and cutmix out"),
        ({"loss": {"name": "npair", "margin": 0.2}, "per_class": 2}, "margin belongs to the loss"),
    ],
)
def test_recipes_that_cannot_be_meant(changes: dict[str, object], told: str) -> None:
    with pytest.raises(fovea.BadChoice, match=told):
        recipe(network={"name": "embedding/smallnet"}, data={"train": "megapixel"}, **changes)


DATA = "megapixel:canvas=48,digit=24,clutter=0,noise=0,source=digits,count={count},split={split}"


def small_run(**changes: object) -> Recipe:
    content = {
        "epochs": 3,
        "batch": 16,
        "per_class": 2,
        "log_every": 1,
        "network": {"name": "embedding/smallnet", "options": {**SMALLNET["options"], "dimensions": 8}},
        "data": {"train": DATA.format(count=64, split="train"), "test": DATA.format(count=30, split="test")},
        "loss": {"name": "npair"},
        "optimizer": {"lr": 0.02},
    }
    return recipe(**content | changes)


@pytest.mark.parametrize("loss", [{"name": "npair"}, {"name": "triplet", "margin": 0.3}])
def test_a_run_scores_by_retrieval(loss: dict[str, object], tmp_path: Path) -> None:
    done = loop.train(small_run(loss=loss), tmp_path, "tiny", device="cpu")
    assert set(done.score) == {"recall_at_1", "nmi"}
    assert 0 <= done.score["recall_at_1"] <= 1
    assert fovea.load(done.weights).labels is None
    rows = read(tmp_path)
    assert all(0 <= row["accuracy"] <= 1 for row in rows if "loss" in row)
    assert rows[-1]["recall_at_1"] == done.score["recall_at_1"]
    assert (tmp_path / "curves.png").stat().st_size > 1000


def test_a_killed_run_of_balanced_batches_goes_on_the_same(tmp_path: Path) -> None:
    whole = loop.train(small_run(), tmp_path / "whole", "tiny", device="cpu")

    class Stop(loop.Quiet):
        def step(self, done: int, total: int, facts: dict[str, object]) -> None:
            if done == 6:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        loop.train(small_run(save_every=0.0), tmp_path / "cut", "tiny", device="cpu", show=Stop())
    again = loop.train(small_run(save_every=0.0), tmp_path / "cut", "tiny", device="cpu", resume=True)
    assert again.hash == whole.hash


def test_the_principal_start_is_of_the_training_pictures(tmp_path: Path) -> None:
    """At a rate of next to nothing the layer stays what it began as: directions of unit length, each its own."""
    still = small_run(principal=True, epochs=1, optimizer={"lr": 1e-9})
    layer = loop.train(still, tmp_path, "tiny", device="cpu").network.module.project
    assert torch.allclose(layer.weight @ layer.weight.T, torch.eye(8), atol=1e-4)
    assert float(layer.bias.abs().max()) < 1e-6


def test_a_classifier_is_no_embedding(tmp_path: Path) -> None:
    other = small_run(network={"name": "smallnet"})
    with pytest.raises(fovea.BadChoice, match="ranking losses train embeddings: name embedding/smallnet"):
        loop.train(other, tmp_path, "tiny", device="cpu")


def test_classes_that_were_not_trained_may_be_tested(tmp_path: Path) -> None:
    data = {"train": DATA.format(count=64, split="train") + ",labels=0-4", "test": DATA.format(count=60, split="test")}
    other = small_run(data={**data, "test": data["test"] + ",labels=5-9"}, batch=8)
    assert "recall_at_1" in loop.train(other, tmp_path, "tiny", device="cpu").score
