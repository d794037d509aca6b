"""Which medium a recipe trains on, and what is refused there."""

from pathlib import Path
from typing import Any

import pytest

import fovea
from fovea.training.media import medium_of
from made_recipes import SMALLNET, recipe

CLIPS = {
    "per_class": 2,
    "network": {"name": "video/timm/resnet10t", "pretrained": False},
    "data": {"train": "moving:source=digits,count=4"},
    "loss": {"name": "triplet"},
}
SOUNDS = {"network": {"name": "anchornet_sound"}, "data": {"train": "sounds:count=20,length=1000"}}
TEXTS = {"network": {"name": "textcnn"}, "data": {"train": "FOLDER"}}
FLIP = {"augment": {"flip": True}}


@pytest.mark.parametrize(
    ("medium", "changes", "words"),
    [
        (CLIPS, FLIP, r"\[augment\] is for pictures"),
        (CLIPS, {"network": {"name": "video/timm/resnet10t", "size": 64}}, "network.options = { size = SIDE }"),
        (CLIPS, {"loss": {"name": "cross_entropy"}}, "set loss.name to npair or triplet"),
        (CLIPS, {"network": SMALLNET}, "smallnet is no network for clips: give a video/NAME"),
        (SOUNDS, FLIP, r"\[augment\] is for pictures"),
        (SOUNDS, {"network": {"name": "anchornet_sound", "size": 64}}, "are for pictures"),
        (SOUNDS, {"network": SMALLNET}, "smallnet is not one for sounds"),
        (SOUNDS, {"data": {"train": "sounds:count=20,rate=16000"}}, "the data has 16,000 Hz: set network.options"),
        (TEXTS, FLIP, "is for pictures"),
        (TEXTS, {"network": {"name": "textcnn", "size": 32}}, "are for pictures"),
        (TEXTS, {"network": {"name": "smallnet"}}, "network.name is anchornet_text or textcnn; got smallnet"),
    ],
)
def test_what_a_medium_does_not_take_is_refused(
    medium: dict[str, Any], changes: dict[str, Any], words: str, tmp_path: Path
) -> None:
    for name in ("pos", "neg"):
        (tmp_path / f"rt-polarity.{name}").write_text("a film\n")
    content = medium | changes
    content["data"] = {"train": content["data"]["train"].replace("FOLDER", str(tmp_path))}
    with pytest.raises(fovea.BadChoice, match=words):
        medium_of(recipe(**content)).network()
