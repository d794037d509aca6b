"""Fine-tuning on patches: what is shown, and how it is scored."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea.patches import for_test, look, patches
from fovea.training import log, loop
from fovea.training.augment import draw, draw_more
from fovea.training.feed import Wanted
from fovea.training.media import medium_of
from fovea.training.patches import PatchFeed, PatchMedium
from fovea.training.recipe import Recipe, read
from fovea.training.step import Step
from made_recipes import recipe

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes that a color tells apart, and a localizer with random weights that knows their names."""
    home = tmp_path_factory.mktemp("colored")
    random = np.random.default_rng(0)
    for number, name in enumerate(("blue", "red")):
        (home / "train" / name).mkdir(parents=True)
        for i in range(6):
            pixels = random.integers(0, 120, (118, 130, 3), dtype=np.uint8)
            pixels[..., 2 - 2 * number] += 120
            Image.fromarray(pixels).save(home / "train" / name / f"{i}.png")
    torch.manual_seed(0)
    net = fovea.load("anchornet", pretrained=False, classes=2, options={"side": 120})
    net.labels = ("blue", "red")
    net.save(home / "localizer.safetensors")
    return home


def tiny(folder: Path, **changes: Any) -> Recipe:
    content: dict[str, Any] = {
        "epochs": 3,
        "batch": 6,
        "network": {"name": "smallnet", "options": {"side": 120, "widths": [4, 8]}},
        "data": {
            "train": str(folder / "train"),
            "test": str(folder / "train"),
            "localizer": str(folder / "localizer.safetensors"),
        },
        "optimizer": {"name": "adam", "lr": 0.02},
    }
    return recipe(**content | changes)


def test_a_classifier_learns_from_patches_alone(folder: Path, tmp_path: Path) -> None:
    done = loop.train(tiny(folder, epochs=6), tmp_path / "out")
    assert done.score["top1"] > 0.9
    localizer = fovea.load(folder / "localizer.safetensors")
    answers = fovea.classify_patches(localizer, done.network, str(folder / "train"))
    right = [one.label in Path(one.shown.name).parts for one in answers]
    assert sum(right) / len(right) == pytest.approx(done.score["top1"])  # the score is what classify_patches gives


def test_a_step_shows_patches_of_one_branch(folder: Path) -> None:
    medium = medium_of(tiny(folder))
    assert isinstance(medium, PatchMedium)
    feed = medium.feed(medium.network(), torch.device("cpu"), lambda done, total: None)
    assert isinstance(feed, PatchFeed)
    assert feed.sides == [63, 95, 111]
    wanted = [Wanted(torch.arange(6), draw(6, 0, step), draw_more(6, 0, step)) for step in range(12)]
    shown = list(feed.batches(wanted))
    assert {batch.inputs.shape[-1] for batch in shown} == {63, 95, 111}
    # without augmentation a patch is a part of its picture, pixel by pixel
    pixels = feed.prepare.normalize(feed.pixels)
    for batch in shown[:4]:
        side = batch.inputs.shape[-1]
        number = feed.sides.index(side)
        for i in range(6):
            boxes = feed.boxes[number][i, : int(feed.counts[number][i])].tolist()
            cut = torch.stack([pixels[i, :, y0:y1, x0:x1] for x0, y0, x1, y1 in boxes])
            assert float((cut - batch.inputs[i]).abs().amax((1, 2, 3)).min()) < 1e-4


def test_a_reader_of_one_branch(folder: Path, tmp_path: Path) -> None:
    chosen = tiny(folder, epochs=6, data=of_patches(folder, branch=95))
    medium = medium_of(chosen)
    feed = medium.feed(medium.network(), torch.device("cpu"), lambda done, total: None)
    assert isinstance(feed, PatchFeed)
    assert feed.sides == [95]
    wanted = [Wanted(torch.arange(6), draw(6, 0, step), draw_more(6, 0, step)) for step in range(6)]
    assert {batch.inputs.shape[-1] for batch in feed.batches(wanted)} == {95}
    done = loop.train(chosen, tmp_path / "out")
    measured = fovea.measure(
        "patches", done.network, str(folder / "train"), branch=95,
        localizer=str(folder / "localizer.safetensors"), full=done.network,
    )  # fmt: skip
    row = next(row for row in measured.rows if (row["kind"], row["scale"]) == ("patches", "overall"))
    assert row["top1"] == pytest.approx(done.score["top1"])  # it is tested as it is trained
    medium = medium_of(tiny(folder, data=of_patches(folder, branch=64)))
    with pytest.raises(fovea.BadChoice, match="63, 95"):
        medium.feed(medium.network(), torch.device("cpu"), lambda done, total: None)
    with pytest.raises(fovea.BadChoice, match=r"data\.branch is of the localizer"):
        tiny(folder, data={"train": str(folder / "train"), "branch": 95})


def of_patches(folder: Path, **more: int) -> dict[str, Any]:
    data = tiny(folder).data
    return {"train": data.train, "test": data.test, "localizer": data.localizer, **more}


def test_several_patches_of_a_picture_are_shown_together_and_their_answers_added_up(folder: Path) -> None:
    medium = medium_of(tiny(folder, data=of_patches(folder, together=3)))
    feed = medium.feed(medium.network(), torch.device("cpu"), lambda done, total: None)
    assert isinstance(feed, PatchFeed)
    (batch,) = feed.batches([Wanted(torch.tensor([4, 1]), draw(2, 0, 0), draw_more(2, 0, 0))])
    pixels, number = feed.prepare.normalize(feed.pixels), feed.sides.index(batch.inputs.shape[-1])
    assert len(batch.inputs) == 6
    assert len(batch.target) == 2
    for place, shown in zip((4, 4, 4, 1, 1, 1), batch.inputs, strict=True):  # a picture's side by side
        boxes = feed.boxes[number][place, : int(feed.counts[number][place])].tolist()
        cut = torch.stack([pixels[place, :, y0:y1, x0:x1] for x0, y0, x1, y1 in boxes])
        assert float((cut - shown).abs().amax((1, 2, 3)).min()) < 1e-4
    assert len(batch.inputs[:3].flatten(1).unique(dim=0)) == min(3, int(feed.counts[number][4]))
    network = medium.network()
    step = Step(network, tiny(folder).loss)
    network.module.eval()
    loss, logits = step(batch.inputs, batch.target)
    shares = network(batch.inputs).softmax(1).view(2, 3, 2).mean(1)  # as they are read
    torch.testing.assert_close(logits, shares.log())
    torch.testing.assert_close(loss, -shares[[0, 1], batch.target].log().mean())


def test_it_learns_from_patches_together(folder: Path, tmp_path: Path) -> None:
    assert loop.train(tiny(folder, epochs=6, data=of_patches(folder, together=2)), tmp_path / "out").score["top1"] > 0.9
    with pytest.raises(fovea.BadChoice, match=r"data\.together is of patches"):
        tiny(folder, data=of_patches(folder, together=2), augment={"mixup": 0.2})
    with pytest.raises(fovea.BadChoice, match=r"adds up probabilities, and the loss 'triplet' reads none"):
        tiny(folder, data=of_patches(folder, together=2), loss={"name": "triplet"}, per_class=2)
    with pytest.raises(fovea.BadChoice, match=r"of pictures, and mr:split=train holds texts"):
        medium_of(tiny(folder, data={"train": "mr:split=train", "localizer": "anchornet_text-mr", "together": 2}))


@pytest.mark.parametrize("name", ["densenet169", "resnext50_32x4d"])
def test_the_other_readers_of_table_3_take_a_step_and_read(folder: Path, tmp_path: Path, name: str) -> None:
    """On whole pictures, then on patches, as their recipes say; ImageNet's weights, which come from a hub, left out."""
    train, localizer = folder / "train", folder / "localizer.safetensors"
    few = [f"data.train={train}", f"data.validation={train}:limit=1", f"data.test={train}:limit=1"]
    few += ["batch=2", "epochs=0.1", "half=false", "optimizer.weight_decay=0"]  # what changes does so by the loss
    first = [f"network.name=timm/{name}", "network.pretrained=false", "network.keep=false", "network.size=64"]
    whole = loop.train(read(RECIPES / "resnet50-imagenette.toml", few + first), tmp_path / "whole", device="cpu")
    then = [f"network.weights={whole.weights}", f"data.localizer={localizer}"]
    asked = read(RECIPES / f"{name}-imagenette-patches.toml", few + then)
    reader = loop.train(asked, tmp_path / "patches", device="cpu").network
    (loss,) = (row["loss"] for row in log.read(tmp_path / "patches") if "loss" in row)
    assert math.isfinite(loss)
    weights = zip(whole.network.module.parameters(), reader.module.parameters(), strict=True)
    assert not any(torch.equal(before, after) for before, after in weights if before.ndim > 1)  # norms: below rounding
    for side in (63, 95, 111):
        (answer,) = fovea.classify_patches(localizer, reader, train / "red" / "0.png", side=side)
        assert answer.side == side
        assert float(answer.shares.sum()) == pytest.approx(1)


def test_the_same_patches_as_localize_gives(folder: Path) -> None:
    medium = PatchMedium(tiny(folder))
    tested = medium.tested(medium.network(), medium.test, torch.device("cpu"), lambda done, total: None)
    assert tested is not None
    assert len(tested) == 12
    batch = torch.randn(3, 3, 120, 120)
    cut = patches(look(medium.localizer, batch), for_test, (120, 120))
    assert sum(len(one.owner) for one in cut) >= 3


def test_refused(folder: Path, tmp_path: Path) -> None:
    fovea.load("smallnet", pretrained=False, classes=2).save(tmp_path / "small.safetensors")
    data = {"train": str(folder / "train"), "localizer": str(tmp_path / "small.safetensors")}
    with pytest.raises(fovea.BadChoice, match="no branches that localize"):
        medium_of(tiny(folder, data=data))
    other = fovea.load("anchornet", pretrained=False, classes=2, options={"side": 120})
    other.save(tmp_path / "other.safetensors")
    with pytest.raises(fovea.BadChoice, match="knows other classes"):
        medium_of(tiny(folder, data=data | {"localizer": str(tmp_path / "other.safetensors")}))
