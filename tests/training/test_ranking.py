"""Triplet and N-pair losses by hand, and batches balanced by class."""

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

import fovea
from fovea.training import loop
from fovea.training.balanced import Balanced
from fovea.training.log import read
from fovea.training.losses import hits, loss_of
from fovea.training.ranking import NPair, Triplet, nearest_alike
from fovea.training.recipe import LossPart, Recipe, check


def on_circle(*degrees: float, length: float = 1.0) -> torch.Tensor:
    angles = torch.tensor(degrees, dtype=torch.float64) * math.pi / 180
    return length * torch.stack([angles.cos(), angles.sin()], 1)


def chord(degrees: float) -> float:
    return 2 * math.sin(math.radians(degrees) / 2)


def test_semi_hard_triplets_alone_count() -> None:
    """Anchor 0°, positive 10°: the negative at 15° is semi-hard, that at 60° is easy. The other anchor, 10°, has the
    negative at 5°, closer than its positive: hard, and left out."""
    embeddings, labels = on_circle(0, 10, 15, 60), torch.tensor([0, 0, 1, 2])
    expected = chord(10) - chord(15) + 0.2
    assert float(Triplet(0.2)(embeddings, labels)) == pytest.approx(expected, rel=1e-6)


def test_only_directions_count_in_triplets() -> None:
    labels = torch.tensor([0, 0, 1, 2])
    one, other = (Triplet(0.2)(on_circle(0, 10, 15, 60, length=length), labels) for length in (1.0, 7.0))
    assert float(one) == pytest.approx(float(other), rel=1e-6)


def test_n_pairs_by_hand() -> None:
    """Two pairs: -log exp(a·p) / (exp(a·p) + exp(a·n)) with the other pair's positive as n, plus l2 times lengths."""
    a0, p0, a1, p1 = torch.tensor([[1.0, 0.0], [0.5, 0.5], [0.0, 2.0], [-1.0, 1.0]], dtype=torch.float64)
    embeddings, labels = torch.stack([a0, p0, a1, p1]), torch.tensor([0, 0, 1, 1])
    found = float(NPair(0.01)(embeddings, labels))
    dots = torch.stack([torch.stack([a0 @ p0, a0 @ p1]), torch.stack([a1 @ p0, a1 @ p1])])
    expected = F.cross_entropy(dots, torch.tensor([0, 1])) + 0.01 * embeddings.square().sum(1).mean()
    assert found == pytest.approx(float(expected), rel=1e-6)


def test_a_batch_is_right_where_the_nearest_is_of_the_same_class() -> None:
    embeddings, labels = on_circle(0, 10, 12, 90).float(), torch.tensor([0, 0, 1, 1])
    assert float(nearest_alike(embeddings, labels)) == pytest.approx(2 / 4)  # those at 0° and 90°
    assert float(hits(LossPart(name="triplet"), embeddings, labels)) == pytest.approx(2 / 4)
    assert float(hits(LossPart(), torch.eye(4), torch.tensor([0, 1, 2, 0]))) == pytest.approx(3 / 4)


LABELS = [0] * 5 + [1] * 7 + [2] * 3 + [3] * 4 + [4]  # the last class has too few


def order(batches: int, seed: int = 0) -> list[list[int]]:
    found = Balanced(LABELS, 6, 2).order(batches, torch.Generator().manual_seed(seed))
    return found.view(batches, 6).tolist()


def test_every_batch_holds_so_many_of_each_of_its_classes() -> None:
    for batch in order(40):
        assert len(set(batch)) == 6
        assert sorted(Counter(LABELS[i] for i in batch).values()) == [2, 2, 2]
        assert [LABELS[i] for i in batch][::2] == [LABELS[i] for i in batch][1::2]  # each class together


def test_classes_come_equally_often_and_pictures_of_a_class_too() -> None:
    drawn = [i for batch in order(40) for i in batch]
    by_class = Counter(LABELS[i] for i in drawn)
    assert set(by_class) == {0, 1, 2, 3}
    assert max(by_class.values()) - min(by_class.values()) <= 2
    for label in range(4):
        counts = [drawn.count(i) for i, own in enumerate(LABELS) if own == label]
        assert max(counts) - min(counts) <= 1


def test_the_order_follows_from_the_seed() -> None:
    assert order(5, seed=3) == order(5, seed=3)
    assert order(5, seed=3) != order(5, seed=4)


@pytest.mark.parametrize(
    ("batch", "per_class", "shares", "told"),
    [(7, 2, 1, "multiple of 2"), (2, 2, 1, "at least 4"), (12, 2, 1, "needs 6 classes"), (8, 2, 4, "multiple of 8")],
)
def test_batches_that_cannot_be_balanced(batch: int, per_class: int, shares: int, told: str) -> None:
    with pytest.raises(fovea.BadChoice, match=told):
        Balanced(LABELS, batch, per_class, shares)


RECIPE = {
    "about": "a test",
    "command": "fovea train x.toml",
    "epochs": 1,
    "network": {"name": "embedding/smallnet"},
    "data": {"train": "megapixel"},
}


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
        check({**RECIPE, **changes})


def test_margins_are_the_papers_unless_given() -> None:
    assert loss_of(LossPart(name="triplet")).loss.margin == 0.2  # type: ignore[union-attr]
    assert loss_of(LossPart(name="triplet", margin=0.4)).miner.margin == 0.4  # type: ignore[union-attr]


DATA = "megapixel:canvas=48,digit=24,clutter=0,noise=0,source=digits,count={count},split={split}"


def small_run(**changes: object) -> Recipe:
    content = {
        **RECIPE,
        "epochs": 3,
        "batch": 16,
        "per_class": 2,
        "log_every": 1,
        "network": {"name": "embedding/smallnet", "options": {"side": 32, "widths": [8, 8], "dimensions": 8}},
        "data": {"train": DATA.format(count=64, split="train"), "test": DATA.format(count=30, split="test")},
        "loss": {"name": "npair"},
        "optimiser": {"lr": 0.02},
    }
    return check(content | changes)


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
    still = small_run(principal=True, epochs=1, optimiser={"lr": 1e-9})
    layer = loop.train(still, tmp_path, "tiny", device="cpu").network.module.project
    assert torch.allclose(layer.weight @ layer.weight.T, torch.eye(8), atol=1e-4)
    assert float(layer.bias.abs().max()) < 1e-6


def test_a_classifier_is_no_embedding(tmp_path: Path) -> None:
    recipe = small_run(network={"name": "smallnet"})
    with pytest.raises(fovea.BadChoice, match="ranking losses are of embeddings: embedding/smallnet"):
        loop.train(recipe, tmp_path, "tiny", device="cpu")


def test_classes_that_were_not_trained_may_be_tested(tmp_path: Path) -> None:
    data = {"train": DATA.format(count=64, split="train") + ",labels=0-4", "test": DATA.format(count=60, split="test")}
    recipe = small_run(data={**data, "test": data["test"] + ",labels=5-9"}, batch=8)
    assert "recall_at_1" in loop.train(recipe, tmp_path, "tiny", device="cpu").score
