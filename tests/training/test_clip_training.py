"""A few steps on clips through the loop that trains every network."""

from pathlib import Path
from typing import Any

import pytest
import torch

import fovea
from fovea.data import open_clips
from fovea.models.videonet import Features, video_of
from fovea.networks import Network
from fovea.training import loop
from fovea.training.clips import ClipFeed
from fovea.training.feed import Wanted
from fovea.training.log import read
from fovea.training.recipe import Recipe
from fovea.training.repeatable import mixed
from made_recipes import recipe

TINY = {"channels": [8, 8, 16, 16], "stem_width": 8, "layer": "layer1", "size": 32, "hidden": 16, "dimensions": 8}
SMALL = "moving:source=digits,canvas=32,digit=14,step=7"


def tiny(**changes: Any) -> Recipe:
    content: dict[str, Any] = {
        "epochs": 25,
        "batch": 32,
        "per_class": 8,
        "half": True,
        "log_every": 5,
        "test_every": 25,
        "network": {"name": "video/timm/resnet10t", "pretrained": False, "options": TINY},
        "data": {
            "train": f"{SMALL},count=128,motions=0+5+10+15",
            "test": f"{SMALL},count=32,motions=0+5+10+15,split=test",
        },
        "loss": {"name": "triplet", "margin": 0.2},
        "optimizer": {"name": "adam", "lr": 0.005},
    }
    return recipe(**content | changes)


def network(**options: object) -> Network:
    torch.manual_seed(0)
    return fovea.load("video/timm/resnet10t", pretrained=False, options=TINY | options)


def feed(data: str, hold: bool = True) -> ClipFeed:
    return ClipFeed(network(), open_clips(data), hold, torch.device("cpu"), lambda done, total: None)


def test_a_short_run_learns_and_its_weights_say_what_they_are(tmp_path: Path) -> None:
    """Four straight motions, on features of random weights."""
    done = loop.train(tiny(), tmp_path, "tiny", device="cpu")
    assert set(done.score) == {"recall_at_1", "nmi"}
    assert done.score["recall_at_1"] > 0.7  # a quarter by chance
    rows = [row["accuracy"] for row in read(tmp_path) if "accuracy" in row]
    assert rows[-1] > rows[0]
    again = fovea.load(done.weights)
    assert again.labels is None
    (row,) = fovea.measure("clips", again, open_clips(tiny().data.test or ""), method=["gradcam-abs"]).rows
    # the features that were held are fp16, those of the measure are not
    assert row["recall_at_1"] == pytest.approx(done.score["recall_at_1"], abs=0.07)


def test_the_frozen_part_is_not_trained(tmp_path: Path) -> None:
    done = loop.train(tiny(epochs=1), tmp_path, "tiny", device="cpu")
    torch.manual_seed(mixed(0))
    first = video_of(fovea.load("video/timm/resnet10t", pretrained=False, options=TINY)).state_dict()
    after = video_of(done.network).state_dict()
    for key, value in first.items():
        same = torch.equal(value.half().float() if value.is_floating_point() else value, after[key])
        assert same is key.startswith("features."), key


def test_held_or_found_anew_batches_are_the_same() -> None:
    both = []
    for hold in (True, False):
        made = feed(f"{SMALL},count=5", hold)
        assert (made.kept.held is not None) is hold
        both.append(next(made.batches([Wanted(torch.tensor([3, 0]))])))
    assert isinstance(both[0].inputs, Features)
    assert both[0].inputs.shape == (2, 3, 8, 8, 8)  # N,T,channels,h,w
    assert torch.equal(torch.as_tensor(both[0].inputs), torch.as_tensor(both[1].inputs))
    assert both[0].target.tolist() == [3, 0]


def test_batches_are_what_the_network_sees_of_the_frames() -> None:
    own, data = network(), open_clips(f"{SMALL},count=3")
    made = ClipFeed(own, data, True, torch.device("cpu"), lambda done, total: None)
    frames = torch.stack([torch.stack([own.prepare(one.read())[0] for one in shot.frames]) for shot in data.samples])
    with torch.no_grad():
        assert torch.allclose(own.module(made.inputs(Wanted(torch.arange(3)))).embedding, own(frames), atol=1e-3)


def test_a_frame_of_several_clips_is_looked_at_once() -> None:
    data = open_clips(f"{SMALL},count=4")
    twice = type(data)(data.name, (*data.samples, *data.samples), data.labels)
    told: list[tuple[int, int]] = []
    made = ClipFeed(network(), twice, True, torch.device("cpu"), lambda done, total: told.append((done, total)))
    assert told[-1] == (12, 12)
    assert torch.equal(made.places[:4], made.places[4:])


def test_test_batches_are_shared_by_processes() -> None:
    held = feed(f"{SMALL},count=7")
    ours = [torch.cat([batch.target for batch in held.in_order(2, rank, 2)]).tolist() for rank in (0, 1)]
    assert ours == [[0, 2, 4, 6], [1, 3, 5]]
