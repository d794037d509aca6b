"""What is known about networks before torch is imported is what the hubs themselves say."""

from pathlib import Path

import pytest
import timm
import torchvision

import fovea
from fovea.basics import BadChoice
from fovea.data import imagenet_labels
from fovea.networks.names import OFFLINE, demand_known, hub_names, labels_of, ours


def test_the_hubs_names_are_read_off_their_text() -> None:
    assert hub_names("timm") == tuple(sorted(timm.list_models()))
    assert hub_names("torchvision") == tuple(sorted(torchvision.models.list_models(module=torchvision.models)))
    assert hub_names("no_such_hub") == ()


def test_imagenets_classes_are_torchvisions() -> None:
    weights = torchvision.models.ResNet18_Weights.IMAGENET1K_V1  # type: ignore[attr-defined]
    assert imagenet_labels() == tuple(weights.meta["categories"])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("resnet5000", "no network 'resnet5000'; did you mean 'timm/resnet50'"),
        ("timm/resnet5000", "timm has no network 'resnet5000'; did you mean 'resnet50'"),
        ("torchvision/resnet5", "torchvision has no network 'resnet5'; did you mean 'resnet50'"),
        ("tnet-imagenete", "did you mean 'tnet-imagenette'"),
        ("embedding/efficientnet_lite9", "no network 'efficientnet_lite9'; did you mean 'efficientnet_lite2'"),
        ("nothere.safetensors", "no weights file 'nothere.safetensors'"),
    ],
)
def test_a_name_that_there_is_not_is_refused_as_it_is_by_load(name: str, words: str) -> None:
    with pytest.raises(BadChoice) as early:
        demand_known(name)
    with pytest.raises(BadChoice) as late:
        fovea.load(name)
    assert words in str(early.value)
    assert str(late.value) == str(early.value)


@pytest.mark.parametrize(
    "name", [*OFFLINE, *ours(), "timm/resnet50", "timm/resnet50.a1_in1k", "embedding/timm/resnet50", "my.module:net"]
)
def test_a_name_that_may_be_is_not_refused(name: str) -> None:
    demand_known(name)


def test_labels_are_known_before_a_network_is_loaded(tmp_path: Path) -> None:
    assert labels_of("efficientnet_lite0") == imagenet_labels()
    assert labels_of("anchornet-imagenette") == fovea.load("anchornet-imagenette").labels
    assert labels_of("timm/resnet50") is None
    network = fovea.load("timm/test_resnet", pretrained=False)
    network.labels = tuple(f"class {i}" for i in range(1000))
    network.save(tmp_path / "mine.safetensors")
    assert labels_of(str(tmp_path / "mine.safetensors")) == network.labels
