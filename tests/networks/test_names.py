"""What is known about networks before torch is imported is what the hubs themselves say."""

from pathlib import Path

import pytest
import timm
import torch
import torchvision

import fovea
from fovea.basics import BadChoice
from fovea.data import imagenet_labels
from fovea.networks.names import OFFLINE, demand_known, described, hub_names, labels_of, models, ours


def test_the_hubs_names_are_read_off_their_text() -> None:
    assert hub_names("timm") == tuple(sorted(timm.list_models()))
    parts = torchvision.models, torchvision.models.segmentation, torchvision.models.detection
    names = {name for part in parts for name in torchvision.models.list_models(module=part)}
    assert hub_names("torchvision") == tuple(sorted(names))
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
        ("tnet-imagene", "did you mean 'tnet-imagenet'"),
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


def listed(pattern: str) -> list[str]:
    return [name for names in models(pattern).values() for name in names]


def test_names_match_by_what_their_parts_begin_with() -> None:
    assert {"tnet-digits", "tnet-imagenet", "tnet/NAME"} < set(listed("tnet"))
    assert not any("efficientnet" in name or "ghostnet" in name for name in listed("tnet"))
    assert "efficientnet_lite0-cub100" in listed("cub100")
    assert "timm/resnet50" in listed("50")  # digits after letters begin a part
    assert "timm/vit_small_patch16_224" in listed("vit small")
    assert all("vit" in name and "small" in name for name in listed("VIT small"))


def test_names_match_inside_of_words_where_nothing_else_does() -> None:
    assert "efficientnet_lite0-cub100" in listed("cientnet_lite0-c")
    assert not listed("no such thing")


def test_names_match_globs_and_where_they_come_from() -> None:
    assert listed("resnet1[89]") == ["timm/resnet18", "torchvision/resnet18"]
    assert listed("timm") == [f"timm/{name}" for name in hub_names("timm")]
    assert listed("offline") == list(OFFLINE)


@pytest.mark.parametrize("name", ours())
def test_networks_say_what_they_are_for_know_and_score(name: str) -> None:
    about, facts = described(name)
    card = ours()[name]
    assert about == card["about"]
    assert card["tested_on"] in facts
    assert ("its settings were chosen on" in facts) == (card["chosen_on"] == card["tested_on"])
    labels = labels_of(name)
    assert (f"{len(labels)} classes ({labels[0].replace('_', ' ')}" if labels else "an embedding") in facts
    metric, score = next(iter(card["score"].items()))
    assert f"{metric} {score:.3f}" in facts


def test_segmentation_and_detection_of_torchvision_load_by_name(tmp_path: Path) -> None:
    network = fovea.load("torchvision/lraspp_mobilenet_v3_large", pretrained=False)
    assert network.labels is not None
    assert "aeroplane" in network.labels
    small = fovea.load("torchvision/ssdlite320_mobilenet_v3_large", pretrained=False, classes=4)
    small.save(tmp_path / "four.safetensors")
    batch = torch.randn(1, 3, 64, 64)
    torch.testing.assert_close(fovea.load(tmp_path / "four.safetensors")(batch), small(batch))
