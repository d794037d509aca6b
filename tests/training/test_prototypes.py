from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.basics import BadChoice
from fovea.data import DataSet, open_data
from fovea.models.protopnet import ProtoPNet
from fovea.models.trunks import Trunk
from fovea.networks import Network
from fovea.pictures import Prepare
from fovea.training import loop
from fovea.training.prototypes import place, project
from fovea.training.recipe import Recipe
from made_recipes import SMALLNET, TEN_T, digits, recipe

pytest.importorskip("lightning")


def test_other_networks_are_refused() -> None:
    with pytest.raises(BadChoice, match="no prototypes"):
        project(fovea.load("smallnet", classes=2), DataSet("none", ()))


def pictures(root: Path, colors: dict[str, list[list[tuple[int, int, int]]]]) -> DataSet:
    """Pictures of 2 x 2 pixels, given by class and in reading order."""
    for label, each in colors.items():
        for i, four in enumerate(each):
            path = root / label / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.array(four, np.uint8).reshape(2, 2, 3)).save(path)
    return open_data(str(root))


def pixelwise(prototypes: list[list[list[float]]]) -> Network:
    """Cells are pixels, red, green and blue in 0..1."""
    module = ProtoPNet(Trunk(nn.Identity(), (2, 2)), len(prototypes), 3, len(prototypes[0]))
    module.add_on = nn.Sequential()
    module.prototypes.data = torch.tensor(prototypes)
    prepare = Prepare((2, 2), (0.0,) * 3, (1.0,) * 3, None, "nearest")
    return Network(module.eval(), prepare, ("a", "b"))


RED, GREEN, BLUE, DARK = (255, 0, 0), (0, 255, 0), (0, 0, 255), (51, 0, 0)


def test_prototypes_become_the_nearest_cells_of_their_own_class(tmp_path: Path) -> None:
    data = pictures(
        tmp_path,
        {"a": [[GREEN, GREEN, GREEN, DARK], [GREEN, RED, GREEN, GREEN]], "b": [[BLUE, BLUE, GREEN, BLUE]]},
    )
    # b's first is nearest to a's red, which it may not take; it is nearer to green than to blue
    network = pixelwise([[[0.9, 0.1, 0.0], [0.3, 0.0, 0.0]], [[0.8, 0.1, 0.0], [0.0, 0.0, 0.6]]])
    found = project(network, data)
    module = network.module
    assert isinstance(module, ProtoPNet)
    expected = [[[1.0, 0.0, 0.0], [0.2, 0.0, 0.0]], [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]]
    assert torch.allclose(module.prototypes, torch.tensor(expected))
    assert module.picture.tolist() == [[1, 0], [2, 2]]
    assert module.cell.tolist() == [[[0, 1], [1, 1]], [[1, 0], [0, 0]]]  # of equal cells the first
    assert (found.prototypes, found.coinciding, found.left) == (4, 0, 0)
    for label in range(2):
        for k in range(2):
            sample = data.samples[int(module.picture[label, k])]
            assert sample.label == label
            tensor, _ = network.prepare(sample.source.read())
            apart = module.distances(module.embedded(tensor[None])).detach().view(2, 2, 2, 2)[label, k]
            assert float(apart[tuple(module.cell[label, k].tolist())]) == 0


def test_those_on_the_same_cell_are_counted_and_classes_without_pictures_left(tmp_path: Path) -> None:
    data = pictures(tmp_path, {"a": [[RED, GREEN, GREEN, GREEN]]})
    start = [[[0.9, 0.1, 0.0], [0.8, 0.0, 0.0]], [[0.8, 0.1, 0.0], [0.0, 0.0, 0.6]]]
    network = pixelwise(start)
    found = project(network, data)
    assert (found.coinciding, found.left) == (1, 2)
    assert found.line() == (
        "2 prototypes projected, 1 on the very cell of an earlier one; 2 of classes without pictures left as they were"
    )
    assert torch.equal(network.module.prototypes[1], torch.tensor(start[1]))
    assert network.module.picture.tolist() == [[0, 0], [-1, -1]]


def test_the_projection_is_the_same_whatever_the_batches_and_twice_changes_nothing(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    made = {label: [[tuple(one) for one in random.integers(0, 256, (4, 3))] for _ in range(5)] for label in "ab"}
    data = pictures(tmp_path, made)
    states = []
    for size in (1, 3, 64):
        network = pixelwise([[[0.9, 0.1, 0.0], [0.3, 0.0, 0.0]], [[0.8, 0.1, 0.0], [0.0, 0.0, 0.6]]])
        project(network, data, size)
        states.append({key: value.clone() for key, value in network.module.state_dict().items()})
        project(network, data, size)
        states.append(network.module.state_dict())
    assert all(torch.equal(one[key], states[0][key]) for one in states for key in one)


def test_a_picture_that_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    data = pictures(tmp_path, {"a": [[GREEN] * 4, [RED] * 4], "b": [[BLUE] * 4]})
    (tmp_path / "a/0.png").write_bytes(b"")
    network = pixelwise([[[0.0, 0.9, 0.0]], [[0.0, 0.0, 0.6]]])
    found = project(network, data)
    assert network.module.picture.tolist() == [[1], [2]]  # numbers are those of the whole set
    assert [name.endswith("0.png") for name, _ in found.skipped] == [True]


def tiny(**changes: Any) -> Recipe:
    options = {**TEN_T, "in_chans": 1, "width": 4, "prototypes": 2}
    content: dict[str, Any] = {
        "batch": 16,
        "half": True,
        "ema": 0.5,
        "place": True,
        "project": True,
        "network": {"name": "protopnet/timm/resnet10t", "pretrained": False, "options": options, "size": 32},
        "data": digits(48, 10),
        "loss": {"name": "prototypes"},
        "optimizer": {"name": "adam", "lr": 3e-3, "groups": [{"match": "last.*", "lr": 0}]},
    }
    return recipe(**content | changes)


def test_a_run_ends_with_prototypes_on_pictures_and_a_second_moves_the_last_layer_alone(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    first = loop.train(tiny(), tmp_path / "first", device="cpu")
    module = fovea.load(first.weights).module
    assert isinstance(module, ProtoPNet)
    data = open_data(tiny().data.train)
    assert int(module.picture.max()) < len(data)
    for label, k in ((0, 0), (7, 1)):
        sample = data.samples[int(module.picture[label, k])]
        assert sample.label == label
        tensor, _ = first.network.prepare(sample.source.read())
        apart = module.distances(module.embedded(tensor[None])).detach()[0, label * 2 + k]
        assert float(apart[tuple(module.cell[label, k].tolist())]) < 1e-5  # what fp16 in the file leaves
    frozen = [{"match": one, "lr": 0} for one in ("features.*", "add_on.*", "prototypes")]
    network = tiny().network.model_dump() | {"weights": str(first.weights)}
    optimizer = {"name": "adam", "lr": 1e-2, "groups": frozen}
    second = loop.train(
        tiny(place=False, project=False, network=network, optimizer=optimizer), tmp_path / "b", device="cpu"
    )
    state = fovea.load(second.weights).module.state_dict()
    moved = {key for key, value in module.state_dict().items() if not torch.equal(value, state[key])}
    assert moved == {"last.weight"}


def test_only_networks_with_prototypes_are_projected(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    with pytest.raises(BadChoice, match="smallnet has no prototypes"):
        loop.train(tiny(network=SMALLNET, loss={}, optimizer={}), tmp_path, device="cpu")


def test_prototypes_begin_as_the_strongest_cells_of_pictures_of_their_class(tmp_path: Path) -> None:
    data = pictures(
        tmp_path,
        {"a": [[DARK, DARK, GREEN, DARK], [RED, DARK, DARK, DARK]], "b": [[BLUE, (0, 0, 204), DARK, DARK]]},
    )
    network = pixelwise([[[0.5] * 3] * 2] * 2)
    place(network, data, torch.Generator().manual_seed(0))
    first, second = network.module.prototypes.tolist()
    assert sorted(first) == [[0, 1, 0], [1, 0, 0]]  # one picture each
    assert second == [[0, 0, 1], pytest.approx([0, 0, 0.8])]  # there is one picture alone: its two strongest cells
    again = pixelwise([[[0.5] * 3] * 2] * 2)
    place(again, data, torch.Generator().manual_seed(0), size=1)
    assert torch.equal(again.module.prototypes, network.module.prototypes)
