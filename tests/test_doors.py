"""What is of a wrong kind is refused in words, in one line, at every door."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
import made_twostream
from conftest import Pooled, seeded
from fovea.pictures import Prepare
from made_clips import make_clip

X = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))
STRANGE: dict[str, Any] = {
    "bytes": b"abc",
    "set": {1, 2},
    "dict": {"a": 1},
    "object": object(),
    "class": int,
    "not a number": float("nan"),
    "huge": 10**30,
    "list of nothing": [None],
    "tensor": torch.zeros(2, 2),
    "array": np.zeros(3),
    "module": nn.ReLU(),
    "zero inside": "a\0b",
}
PICTURES: dict[str, Any] = {
    **STRANGE,
    "nothing": None,
    "number": 3,
    "list of numbers": [1, 2],
    "bytes as pixels": torch.zeros(2, 3, 24, 24, dtype=torch.uint8),
    "complex": torch.zeros(2, 3, 24, 24, dtype=torch.complex64),
    "no channels": torch.zeros(2, 0, 24, 24),
    "no height": torch.zeros(2, 3, 0, 24),
    "a channel too many": torch.zeros(2, 4, 24, 24),
    "no axes": torch.tensor(1.0),
    "six axes": torch.zeros(1, 1, 1, 1, 1, 1),
    "sparse": X.to_sparse(),
    "meta": X.to("meta"),
    "tensors and paths": [X[0], "a.png"],
    "objects": np.array([None, 1], dtype=object),
    "no pixels": np.zeros((0, 0, 3), np.uint8),
}
NETWORKS = STRANGE | {"nothing": None, "number": 3, "empty": "", "list": [1], "tensor": X}
VERBS = ("explain", "localize", "look", "zoom", "look_longer", "watch", "classify_patches", "audit")
OPTIONS = {  # those that take none of the strange values
    "explain": "layer batch device differentiable max_pixels",
    "localize": "count overlap share branch target side batch device max_pixels",
    "look": "index glimpses forwards trust batch device max_pixels fit",
    "zoom": "glimpses batch device max_pixels",
    "look_longer": "method target truth batch device max_pixels",
    "watch": "frames every start stop layer batch device fit clip_network max_pixels",
    "classify_patches": "side batch device max_pixels",
    "audit": "boxes limit folder batch device",
    "wrap": "labels layer embedding",
    "load": "weights pretrained classes options",
    "fitted": "fit",
    "region": "cell layer branch",
}
Door = Callable[..., Any]


@pytest.fixture(scope="module")
def doors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Door]:
    """Each with a network and pictures that it takes, unless others are given."""
    folder: Path = tmp_path_factory.mktemp("doors")
    clip, picture = make_clip(folder / "clip.mp4", 6), Image.new("RGB", (30, 40))
    (folder / "photos").mkdir()
    picture.save(folder / "photos/a.png")
    net = fovea.wrap(seeded(Pooled), Prepare((24, 24)), labels=5)
    torch.manual_seed(0)
    tnet = fovea.load("tnet-bagnet77", classes=3, options={"width": 0.0625})
    streams = made_twostream.made()
    return {
        "explain": lambda net=net, pictures=X, **how: fovea.explain(net, pictures, **how),
        "localize": lambda net=net, pictures=X, **how: fovea.localize(net, pictures, **how),
        "look": lambda net=net, pictures=X, **how: fovea.look(net, pictures, **how),
        "zoom": lambda net=tnet, pictures=X, **how: fovea.zoom(net, pictures, **how),
        "look_longer": lambda net=streams, pictures=picture, **how: fovea.look_longer(net, pictures, **how),
        "watch": lambda net=net, pictures=clip, **how: fovea.watch(net, pictures, **how),
        "classify_patches": lambda net=net, pictures=X, **how: fovea.classify_patches(net, net, pictures, **how),
        "audit": lambda net=net, pictures=folder / "photos", **how: fovea.audit(net, pictures, **how),
        "wrap": lambda net=net.module, **how: fovea.wrap(net, **how),
        "load": lambda net="tnet-bagnet77", **how: fovea.load(net, **{"pretrained": False, **how}),
        "index": lambda net=net, pictures=folder: fovea.index(net, pictures, folder / "a.fovea"),
        "sanity": lambda net=net: fovea.sanity(net, X),
        "fitted": lambda **how: net.fitted(**how),
        "region": lambda **how: net.region(**{"cell": (0, 0), **how}),
    }


def refused_in_words(door: Door, what: str, **given: Any) -> None:
    try:
        door(**given)
    except Exception as error:
        if isinstance(error, fovea.FoveaError) and "\n" not in str(error):
            return
        raise AssertionError(f"{what}: {error!r}") from error
    raise AssertionError(f"{what} was taken")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize("name", VERBS)
def test_what_are_no_pictures(name: str, doors: dict[str, Door]) -> None:
    for what, pictures in PICTURES.items():
        refused_in_words(doors[name], f"{name} of {what}", pictures=pictures)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", [*VERBS, "wrap", "load", "index", "sanity"])
def test_what_is_no_network(name: str, doors: dict[str, Door]) -> None:
    for what, net in NETWORKS.items():
        if not (isinstance(net, nn.Module) and name == "wrap"):
            refused_in_words(doors[name], f"{name} by {what}", net=net)


@pytest.mark.parametrize("name", OPTIONS)
def test_options_of_a_wrong_kind(name: str, doors: dict[str, Door]) -> None:
    for option in OPTIONS[name].split():
        for what, value in STRANGE.items():
            if not (option == "layer" and name == "wrap") and (option, what) != ("options", "dict"):
                refused_in_words(doors[name], f"{name}({option}={what})", **{option: value})


def test_targets_that_are_none(doors: dict[str, Door]) -> None:
    for what in set(STRANGE) - {"array", "module"}:  # a module may be a score
        refused_in_words(doors["explain"], f"explain(target={what})", target=STRANGE[what])
    refused_in_words(doors["explain"], "a share of a class", target=[0.5])
    refused_in_words(doors["explain"], "too many labels", net=None)


def test_numbers_of_numpy_are_numbers(doors: dict[str, Door]) -> None:
    wanted = doors["localize"](count=2, target=1)
    found = doors["localize"](count=np.int64(2), target=np.int64(1))
    assert [row.to_dict() for row in found] == [row.to_dict() for row in wanted]


def test_as_many_labels_as_there_can_be() -> None:
    with pytest.raises(fovea.BadChoice, match="the number of labels is 1 to 1,000,000"):
        fovea.wrap(nn.Identity(), labels=10**30)


@pytest.mark.parametrize("name", ["anchornet_sound-made", "anchornet_text-mr", "textcnn-mr"])
def test_networks_that_take_no_pictures(name: str, tmp_path: Path, doors: dict[str, Door]) -> None:
    picture, net = Image.new("RGB", (30, 40)), fovea.load(name)
    picture.save(tmp_path / "a.png")
    for verb in ("explain", "localize", "look", "zoom", "look_longer"):
        refused_in_words(doors[verb], f"{verb} by {name}", net=net, pictures=[picture])
    refused_in_words(doors["index"], f"index by {name}", net=net, pictures=tmp_path)
    refused_in_words(lambda net: fovea.classify_patches("efficientnet_lite0-cub100", net, [picture]), name, net=net)
    refused_in_words(lambda net: net([picture]), f"{name} itself", net=net)


@pytest.mark.parametrize("verb", ["zoom", "look_longer"])
def test_verbs_that_need_what_a_network_cannot_do(verb: str, doors: dict[str, Door]) -> None:
    classifier = fovea.wrap(seeded(Pooled), Prepare((24, 24)), labels=5)
    refused_in_words(doors[verb], f"{verb} by a classifier", net=classifier)
