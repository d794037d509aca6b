"""A few steps on sounds through the loop that trains every network."""

from pathlib import Path
from typing import Any

import torch

import fovea
from checks import refused
from fovea.data import open_sounds
from fovea.models.anchornet_sound import SoundOptions, Spectrogram, build, spans
from fovea.training import loop
from fovea.training.feed import Wanted
from fovea.training.log import read
from fovea.training.recipe import Recipe
from fovea.training.sounds import SoundFeed
from made_recipes import recipe


def tiny(**changes: Any) -> Recipe:
    content: dict[str, Any] = {
        "epochs": 10,
        "batch": 20,
        "log_every": 1,
        "test_every": 10,
        "network": {"name": "anchornet_sound", "options": {"bands": 16, "width": 16}},
        "data": {
            "train": "sounds:count=200,length=1000,snr=15",
            "test": "sounds:count=30,length=1000,snr=15,split=test",
        },
        "optimizer": {"name": "adam", "lr": 0.01},
    }
    return recipe(**content | changes)


def test_a_short_run_learns_and_its_weights_say_what_they_are(tmp_path: Path) -> None:
    done = loop.train(tiny(), tmp_path, "tiny", device="cpu")
    assert set(done.score) == {"top1", "hit"}
    assert done.score["top1"] > 0.4  # of six classes
    assert done.score["hit"] > 0.6
    rows = [row["loss"] for row in read(tmp_path) if "loss" in row]
    assert rows[-1] < 0.7 * rows[0]
    network = fovea.load(done.weights)
    test = open_sounds("sounds:count=30,length=1000,snr=15,split=test")
    assert (network.labels, network.transform) == (test.labels, Spectrogram(bands=16))
    found = spans(network, [sound.read() for sound in test.samples])
    right = sum(one.label == sound.label for one, sound in zip(found, test.samples, strict=True))
    assert right / 30 == done.score["top1"]
    pairs = zip(found, test.samples, strict=True)
    hit = sum(sound.span[0] <= one.spans[0].center < sound.span[1] for one, sound in pairs)
    assert hit / 30 == done.score["hit"]


def test_held_or_made_anew_batches_are_the_same() -> None:
    network, data = build(6, SoundOptions(bands=16, width=4)), open_sounds("sounds:count=5,length=1000")
    wanted = [Wanted(torch.tensor([3, 0]))]
    both = []
    for hold in (True, False):
        made = SoundFeed(network, data, hold, torch.device("cpu"), lambda done, total: None)
        assert (made.kept.held is not None) is hold
        both.append(next(made.batches(wanted)))
    assert torch.equal(both[0].inputs, both[1].inputs)
    assert both[0].target.tolist() == [data.samples[3].label, data.samples[0].label]


def test_a_ranking_loss_is_refused(tmp_path: Path) -> None:
    refused("ranking losses train embeddings", loop.train, tiny(loss={"name": "triplet"}, per_class=2), tmp_path)
