"""Embedding networks: pooling and one layer, a start from principal directions, files that come back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import fovea
from checks import raises, refused
from fovea.models.embedding import Embedding, embedding_of
from fovea.networks import loading as zoo
from fovea.networks.names import ours


def small(**options: object) -> fovea.Network:
    torch.manual_seed(0)
    own = {"widths": [8, 8], "side": 32, "dimensions": 5, **options}
    return fovea.load("embedding/smallnet", pretrained=False, options=own)


def test_the_output_is_pooled_features_through_one_layer() -> None:
    network, x = small(), torch.randn(2, 3, 32, 32)
    module = embedding_of(network)
    by_hand = module.features(x).mean((2, 3)) @ module.project.weight.T + module.project.bias
    assert torch.allclose(network(x), by_hand, atol=1e-6)
    assert network.labels is None
    seen = fovea.explain(network, x, method="l2caf-oblivious")
    assert (seen.solver, seen.targets) == ("exact", (("output",), ("output",)))


def test_a_start_from_principal_directions_keeps_distances() -> None:
    """Points of a plane in space: two numbers hold all their distances."""
    module = embedding_of(small(dimensions=2))
    plane, points = torch.randn(2, 8), torch.randn(20, 2)
    pooled = points @ plane + 3
    module.start_from(pooled)
    embedded = module.project(pooled)
    assert torch.allclose(torch.cdist(embedded, embedded), torch.cdist(pooled, pooled), atol=1e-3)
    first, second = embedded.var(0).tolist()
    assert first > second  # the widest first


def test_more_dimensions_than_features_are_refused() -> None:
    with pytest.raises(fovea.BadChoice, match="8 channels: give dimensions of at most so many; got 12"):
        embedding_of(small(dimensions=12)).start_from(torch.randn(20, 8))


def test_norms_keep_their_statistics_in_training() -> None:
    module = embedding_of(small()).train()
    modes = {type(one).__name__: one.training for one in module.features.modules()}
    assert (modes["BatchNorm2d"], modes["Conv2d"]) == (False, True)
    assert all(one.training for one in embedding_of(small(keep_norms=False)).train().modules())


def test_frozen_features_are_in_eval_mode() -> None:
    module = embedding_of(small(keep_norms=False))
    module.features.requires_grad_(False)
    assert not any(one.training for one in module.train().features.modules())


def test_what_makes_no_sense_is_refused() -> None:
    refused("at least 1 dimension", small, dimensions=0)
    refused("dimensions and no classes", fovea.load, "embedding/smallnet", pretrained=False, classes=3)
    refused("takes pictures", small(), torch.zeros(2, 3, 3, 32, 32))
    refused("no embedding network", embedding_of, fovea.wrap(torch.nn.Identity()))
    assert isinstance(small().module, Embedding)


@pytest.fixture
def ours_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that stands for that of the weights that come with fovea; their cards are read once."""
    monkeypatch.setattr("fovea.networks.names.OURS", tmp_path)
    yield tmp_path
    ours.cache_clear()


def test_a_file_does_without_frozen_features(ours_in: Path) -> None:
    """It holds the linear layer; the features are those of the network of that name, or it is refused."""
    torch.manual_seed(0)
    known = fovea.load("smallnet", classes=3, options={"widths": [8, 8], "side": 32})
    known.save(ours_in / "known.safetensors")
    known.save(ours_in / "known-half.safetensors", half=True)
    (ours_in / "known.json").write_text("{}")
    ours.cache_clear()
    network, x = fovea.load("embedding/known", options={"dimensions": 5, "frozen": True}), torch.randn(1, 3, 32, 32)
    assert not any(one.requires_grad for one in embedding_of(network).features.parameters())
    network.save(ours_in / "net.safetensors")
    assert set(zoo.read_weights(ours_in / "net.safetensors")) == {"project.weight", "project.bias"}
    again = fovea.load(ours_in / "net.safetensors")
    assert torch.equal(network(x), again(x))
    (ours_in / "known.safetensors").write_bytes((ours_in / "known-half.safetensors").read_bytes())
    raises(fovea.BadNetwork, "have changed since", fovea.load, ours_in / "net.safetensors")
    with pytest.raises(fovea.BadChoice, match="is a file: leave frozen out"):
        fovea.load(f"embedding/{ours_in}/known.safetensors", options={"frozen": True})


def test_features_that_changed_since_are_written(tmp_path: Path) -> None:
    network = small()
    module = embedding_of(network)
    module.borrowed, module.lent = "features.", "another"
    network.save(tmp_path / "net.safetensors")
    assert any(key.startswith("features.") for key in zoo.read_weights(tmp_path / "net.safetensors"))
