import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.basics.errors import BadChoice
from fovea.data import DataSet, open_data
from fovea.models.protopnet import ProtoPNet, ProtoPNetOutput
from fovea.models.trunks import Trunk
from fovea.networks.network import Network
from fovea.pictures.transforms import Prepare
from fovea.training import loop
from fovea.training.prototypes import Prototypes, place, project
from fovea.training.recipe import LossPart, Recipe, check

pytest.importorskip("lightning")

# two pictures, two classes with two prototypes each; the first picture is of class 0, the second of class 1
DISTANCES = torch.tensor([[0.5, 0.2, 0.9, 0.7], [0.1, 0.3, 0.6, 0.4]])
LOGITS = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
WEIGHTS = torch.tensor([[1.0, 1.0, -0.5, 0.25], [-0.5, 0.0, 1.0, 1.0]])
OUT = ProtoPNetOutput(
    LOGITS, torch.zeros(2, 4, 1, 1), torch.zeros(2, 4), DISTANCES, torch.tensor([0, 0, 1, 1]), WEIGHTS
)
ENTROPY = (math.log(1 + math.exp(-2)) + math.log(1 + math.exp(1))) / 2


def loss(**settings: Any) -> float:
    return float(Prototypes(LossPart(name="prototypes", **settings))(OUT, torch.tensor([0, 1])))


def test_the_loss_by_hand() -> None:
    cluster, separation = (0.2 + 0.4) / 2, (0.7 + 0.1) / 2
    others = 0.5 + 0.25 + 0.5  # the last layer's weights of a class for another's prototypes
    expected = ENTROPY + 0.8 * cluster - 0.08 * separation + 1e-4 * others
    assert loss() == pytest.approx(expected, rel=1e-6)


def test_each_part_of_the_loss_alone() -> None:
    none = {"cluster": 0.0, "separation": 0.0, "l1": 0.0}
    assert loss(**none) == pytest.approx(ENTROPY, rel=1e-6)
    assert loss(**none | {"cluster": 1.0}) - loss(**none) == pytest.approx(0.3, rel=1e-5)
    assert loss(**none | {"separation": 1.0}) - loss(**none) == pytest.approx(-0.4, rel=1e-5)
    assert loss(**none | {"l1": 1.0}) - loss(**none) == pytest.approx(1.25, rel=1e-5)


def test_only_the_nearest_prototypes_are_pulled_and_pushed() -> None:
    distances = DISTANCES.clone().requires_grad_()
    out = ProtoPNetOutput(LOGITS, OUT.maps, OUT.similarity, distances, OUT.owner, WEIGHTS)
    Prototypes(LossPart(name="prototypes"))(out, torch.tensor([0, 1])).backward()
    expected = torch.tensor([[0.0, 0.4, 0.0, -0.04], [-0.04, 0.0, 0.0, 0.4]])
    assert distances.grad is not None
    assert torch.allclose(distances.grad, expected)


def test_shares_of_classes_count_as_their_largest() -> None:
    part = LossPart(name="prototypes", cluster=1.0, separation=0.0, l1=0.0)
    shares = torch.tensor([[0.8, 0.2], [0.0, 1.0]])
    entropy = torch.nn.functional.cross_entropy(LOGITS, shares)
    assert float(Prototypes(part)(OUT, shares) - entropy) == pytest.approx(0.3, rel=1e-5)


def test_other_networks_and_other_settings_are_refused() -> None:
    with pytest.raises(BadChoice, match="protopnet/NAME"):
        Prototypes(LossPart(name="prototypes"))(LOGITS, torch.tensor([0, 1]))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="cluster belongs to the loss 'prototypes'"):
        LossPart(cluster=1.0)
    with pytest.raises(BadChoice, match="no prototypes"):
        project(fovea.load("smallnet", classes=2), DataSet("none", ()))


def pictures(root: Path, colours: dict[str, list[list[tuple[int, int, int]]]]) -> DataSet:
    """Pictures of 2 x 2 pixels, given by class and in reading order."""
    for label, each in colours.items():
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


def recipe(**changes: Any) -> Recipe:
    data = "megapixel:canvas=48,digit=24,clutter=1,noise=1,count={count},split={split}"
    content: dict[str, Any] = {
        "about": "a test",
        "command": "fovea train recipes/tiny.toml",
        "epochs": 1,
        "batch": 16,
        "half": True,
        "ema": 0.5,
        "place": True,
        "project": True,
        "network": {
            "name": "protopnet/timm/resnet10t",
            "pretrained": False,
            "options": {"channels": [8, 8, 16, 16], "stem_width": 8, "in_chans": 1, "width": 4, "prototypes": 2},
            "size": 32,
        },
        "data": {"train": data.format(count=48, split="train"), "test": data.format(count=10, split="test")},
        "loss": {"name": "prototypes"},
        "optimiser": {"name": "adam", "lr": 3e-3, "groups": [{"match": "last.*", "lr": 0}]},
    }
    return check(content | changes)


def test_a_run_ends_with_prototypes_on_pictures_and_a_second_moves_the_last_layer_alone(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    first = loop.train(recipe(), tmp_path / "first", device="cpu")
    module = fovea.load(first.weights).module
    assert isinstance(module, ProtoPNet)
    data = open_data(recipe().data.train)
    assert int(module.picture.max()) < len(data)
    for label, k in ((0, 0), (7, 1)):
        sample = data.samples[int(module.picture[label, k])]
        assert sample.label == label
        tensor, _ = first.network.prepare(sample.source.read())
        apart = module.distances(module.embedded(tensor[None])).detach()[0, label * 2 + k]
        assert float(apart[tuple(module.cell[label, k].tolist())]) < 1e-5  # what fp16 in the file leaves
    frozen = [{"match": one, "lr": 0} for one in ("features.*", "add_on.*", "prototypes")]
    network = recipe().network.model_dump() | {"weights": str(first.weights)}
    optimiser = {"name": "adam", "lr": 1e-2, "groups": frozen}
    second = loop.train(
        recipe(place=False, project=False, network=network, optimiser=optimiser), tmp_path / "b", device="cpu"
    )
    state = fovea.load(second.weights).module.state_dict()
    moved = {key for key, value in module.state_dict().items() if not torch.equal(value, state[key])}
    assert moved == {"last.weight"}


def test_only_networks_with_prototypes_are_projected(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    network = {"name": "smallnet", "options": {"side": 32, "widths": [8, 8]}}
    with pytest.raises(BadChoice, match="no prototypes"):
        loop.train(recipe(network=network, loss={}, optimiser={}), tmp_path, device="cpu")


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
