"""Training on sentences of MR's layout: the vocabulary, whole runs of both networks, spans."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import fovea
from fovea.data import Reading
from fovea.models.anchornet_text import localized
from fovea.networks import reading_of
from fovea.training import loop
from fovea.training.media import medium_of
from fovea.training.recipe import Recipe
from fovea.training.text import SPREAD, TextMedium
from made_recipes import recipe

GOOD, BAD, PLAIN = ("fine", "witty", "moving"), ("dull", "tedious", "silly"), ("film", "plot", "cast", "it", "was")


def sentence(i: int, words: tuple[str, ...]) -> str:
    plain = [PLAIN[(i * 3 + j) % 5] for j in range(i % 9)]
    return " ".join([*plain[: i % 4], words[i % 3], *plain[i % 4 :], "."])


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    """40 sentences with one word each that tells, and vectors of all words but the full stop and one odd word."""
    folder = tmp_path / "reviews"
    folder.mkdir()
    for name, words in (("pos", GOOD), ("neg", BAD)):
        lines = [sentence(i, words) for i in range(20)]
        (folder / f"rt-polarity.{name}").write_text("\n".join(lines) + "\n")
    numbers = torch.randn(11, 6, generator=torch.Generator().manual_seed(0)).tolist()
    rows = [f"{word} {' '.join(map(str, row))}" for word, row in zip((*GOOD, *BAD, *PLAIN), numbers, strict=True)]
    (folder / "vectors.txt").write_text("11 6\n" + "\n".join(rows) + "\n")
    return folder


def tiny(folder: Path, name: str = "anchornet_text", **changes: Any) -> Recipe:
    content: dict[str, Any] = {
        "epochs": 2,
        "batch": 8,
        "precision": "fp32",
        "half": True,
        "network": {"name": name, "options": {"length": 12}},
        "data": {"train": f"{folder}:split=train,seed=1", "test": f"{folder}:split=test,seed=1"},
        "optimizer": {"name": "adam", "lr": 0.01},
    }
    return recipe(**content | changes)


def run(recipe: Recipe, out: Path, **options: Any) -> loop.Trained:
    return loop.train(recipe, out, "tiny", device="cpu", **options)


def test_rows_of_the_embedding(reviews: Path) -> None:
    with open(reviews / "rt-polarity.pos", "a") as file:
        file.write("zany\n")  # once, and without a vector
    medium = medium_of(tiny(reviews))
    assert isinstance(medium, TextMedium)
    net = medium.network()
    assert isinstance(net.transform, Reading)
    assert set(net.transform.words) == {*GOOD, *BAD, *PLAIN, "."}  # often there, though without a vector
    weight = net.module.embedding.weight  # type: ignore[union-attr]
    assert weight.shape == (14, 6)
    assert (weight[0] == 0).all()
    assert weight[2:].std().item() == pytest.approx(SPREAD, rel=1e-4)  # type: ignore[index]


@pytest.mark.parametrize("name", ["anchornet_text", "textcnn"])
def test_a_run_is_saved_with_its_vocabulary_and_repeats(name: str, reviews: Path, tmp_path: Path) -> None:
    done = run(tiny(reviews, name), tmp_path / "one")
    branches = {"b3", "b5", "b7"} if name == "anchornet_text" else set()
    assert set(done.score) == {"top1"} | branches
    assert json.loads(done.card.read_text())["score"] == done.score
    (reviews / "vectors.txt").unlink()  # to use it needs neither data nor vectors
    net = fovea.load(done.weights)
    assert net.labels == ("negative", "positive")
    texts = ["it was a fine film .", "DULL"]
    assert torch.equal(net(texts), done.network(texts))


def test_a_run_goes_on_and_learns(reviews: Path, tmp_path: Path) -> None:
    data = {"train": f"{reviews}:split=train", "test": f"{reviews}:split=train"}  # what it was shown, it knows
    recipe = tiny(reviews, epochs=15, data=data, optimizer={"name": "adam", "lr": 0.003})
    done = run(recipe, tmp_path / "out")
    assert done.score["top1"] > 0.9
    assert run(recipe, tmp_path / "out", resume=True).hash == done.hash
    reads = [reading_of(done.network)(text) for text in (sentence(7, GOOD), sentence(8, BAD), "tedious")]
    for read, one, told in zip(reads, localized(done.network, reads), ("witty", "silly", "tedious"), strict=True):
        assert told in read.words(one.start, one.stop)
    spans = tiny(reviews, "textcnn", data=data | {"localizer": str(done.weights)}, epochs=6)
    medium = medium_of(spans)
    feed = medium.feed(medium.network(), torch.device("cpu"), lambda done, total: None)
    assert feed.ids.shape[1] == 7  # type: ignore[attr-defined]
    assert run(spans, tmp_path / "spans").score["top1"] > 0.9


def test_fine_tuning_keeps_the_vocabulary_of_the_weights(reviews: Path, tmp_path: Path) -> None:
    first = run(tiny(reviews, "textcnn"), tmp_path / "first")
    part = {"name": "textcnn", "weights": str(first.weights), "options": {"dropout": [0.1, 0.0, 0.1]}}
    net = medium_of(tiny(reviews, network=part)).network()
    assert net.transform == first.network.transform
    assert torch.equal(net("a fine film"), first.network("a fine film"))
    with pytest.raises(fovea.BadChoice, match="those of a textcnn, and"):
        medium_of(tiny(reviews, network=part | {"name": "anchornet_text"})).network()


def test_a_localizer_is_an_anchornet(reviews: Path, tmp_path: Path) -> None:
    first = run(tiny(reviews, "textcnn"), tmp_path / "first")
    data = {"train": f"{reviews}:split=train", "localizer": str(first.weights)}
    with pytest.raises(fovea.BadChoice, match="names the weights of an anchornet_text"):
        medium_of(tiny(reviews, "textcnn", data=data))
