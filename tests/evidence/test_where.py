from collections.abc import Callable

import pytest
import timm
import torch
from torch import Tensor, nn

import fovea
import made_twostream
from checks import left_as_found, refused
from conftest import Branching, Pooled, Stacked, seeded
from fovea.evidence.where import Seen, again, see
from fovea.pictures import Placement, Prepare, Shown
from made_evidence import counted, lit, squares

FIRST_ORDER, EXACT = "first order", "exact"


def pictures(count: int, side: int, channels: int = 3) -> Tensor:
    return torch.randn(count, channels, side, side, generator=torch.Generator().manual_seed(1))


def shown(tensors: Tensor) -> list[Shown]:
    place = Placement.identity(tensors.shape[3], tensors.shape[2])
    return [Shown(str(i), place, row) for i, row in enumerate(tensors)]


def seen(network: fovea.Network, tensors: Tensor, method: object = None) -> Seen:
    return see(network, tensors, shown(tensors), method)


def wrapped(module: type[nn.Module]) -> fovea.Network:
    return fovea.wrap(seeded(module), Prepare((24, 24)), labels=list("abcde"))


def vit() -> fovea.Network:
    torch.manual_seed(0)
    module = timm.create_model("vit_tiny_patch16_224", img_size=48, depth=2, num_classes=3, pretrained=False).eval()
    return fovea.wrap(module, Prepare((48, 48)), labels=list("abc"))


def loaded(name: str, **options: object) -> Callable[[], fovea.Network]:
    def made() -> fovea.Network:
        torch.manual_seed(0)
        return fovea.load(name, pretrained=False, classes=3, options=options)

    return made


NETWORKS: dict[str, tuple[Callable[[], fovea.Network], int, str, str]] = {  # side of the input, first layer, solver
    "cnn": (lambda: wrapped(Pooled), 24, "trunk.0", EXACT),
    "layers on all cells": (lambda: wrapped(Stacked), 24, "features.0", FIRST_ORDER),
    "cut by a hook": (lambda: wrapped(Branching), 24, "inner.trunk.0", EXACT),
    "vit": (vit, 48, "patch_embed.proj", FIRST_ORDER),
    "anchornet": (loaded("anchornet"), 128, "head.0.0", FIRST_ORDER),
    "protopnet": (
        loaded("protopnet/timm/resnet10t", channels=[8, 8, 16, 16], stem_width=8, width=4, prototypes=2),
        64,
        "features.body.conv1.0",
        FIRST_ORDER,
    ),
}

HOOKED = {"cut by a hook", "anchornet", "protopnet"}  # whose heads run with all of the network


@pytest.mark.parametrize("name", NETWORKS)
def test_one_pass_for_all_maps_of_a_batch(name: str) -> None:
    """Three pictures, three maps of each by every method, once it is known where to cut."""
    make, side, first, solver = NETWORKS[name]
    network, batch = make(), pictures(3, side)
    rows = counted(network.module.get_submodule(first))
    seen(network, batch)
    rows.clear()
    with left_as_found(network.module):
        found = seen(network, batch)
    assert rows == [3] or (name in HOOKED and len(rows) < 9)
    assert found.shares.solver == solver
    assert found.maps is found.shares
    assert set(found.others) <= {"gradcam", "layercam", "l2caf-exact"}
    assert ("l2caf-exact" in found.others) == (solver == EXACT)
    output = network(batch).detach()
    torch.testing.assert_close(found.output, output)
    best = output.topk(2).indices
    assert torch.equal(found.classes, best)
    for maps in (found.shares, *found.others.values()):
        assert maps.values.shape[:2] == (3, 3)
        assert [row[:2] for row in maps.classes] == [tuple(row) for row in best.tolist()]
        names = [tuple(map(network.label, row)) for row in best.tolist()]
        assert [row[:2] for row in maps.targets] == names
        assert [row[2] for row in maps.targets] == [" vs ".join(row) for row in names]
    values = found.shares.values
    torch.testing.assert_close(values[:, 2], values[:, 0] - values[:, 1], rtol=1e-4, atol=1e-5)


def test_what_cells_add_is_the_logit_where_it_is_exact() -> None:
    network, batch = wrapped(Pooled), pictures(3, 24)
    found = seen(network, batch)
    bias = network.module.fc.bias.detach()
    wanted = found.output.gather(1, found.classes) - bias[found.classes]
    torch.testing.assert_close(found.shares.values[:, :2].mean((2, 3)), wanted)
    torch.testing.assert_close(found.shares.values[:, 2].mean((1, 2)), wanted[:, 0] - wanted[:, 1])


def test_shares_by_hand() -> None:
    """Square 24 adds 2, square 8 takes 0.5 away, and 'gone' has nothing but what is to be reached."""
    found = seen(squares({24: 2.0, 8: -0.5}, 0.8), lit(24, 8, 3))
    assert found.output.tolist() == [[1.5, pytest.approx(0.8)]]
    wanted = torch.zeros(49)
    wanted[[24, 8]] = torch.tensor([2.0, -0.5]) * 49  # times the number of cells, so that their mean is the logit
    values = found.shares.values.flatten(2)[0]
    torch.testing.assert_close(values, torch.stack([wanted, torch.zeros(49), wanted]))


def test_another_method_for_the_maps_that_are_shown() -> None:
    """Shares are found beside it, from the same pass."""
    network, batch = wrapped(Pooled), pictures(2, 24)
    usual = seen(network, batch)
    rows = counted(network.module.trunk[0])
    seen(network, batch)
    rows.clear()
    found = seen(network, batch, "layercam")
    assert rows == [2]
    assert (found.maps.method, found.shares.solver) == ("layercam", EXACT)
    assert set(found.others) == {"gradcam", "l2caf-exact"}
    torch.testing.assert_close(found.shares.values, usual.shares.values)
    torch.testing.assert_close(found.maps.values, usual.others["layercam"].values)


def test_the_global_stream_for_the_answer_of_both() -> None:
    """Red shows in row 3 and column 4 of the whole, green in row 5 and column 2: the classes are told apart by both."""
    network = made_twostream.made()
    batch = torch.stack([made_twostream.planted(), made_twostream.planted().flip(0)])
    with left_as_found(network.module):
        found = seen(network, batch)
    torch.testing.assert_close(found.output, network(batch).detach())
    assert [row[:2] for row in found.shares.classes] == [tuple(row) for row in found.classes.tolist()]
    assert found.shares.targets[0] == ("red_bird", "green_bird", "red_bird vs green_bird")
    assert found.shares.solver == EXACT
    answer, runner_up, contrast = found.shares.values[0]
    assert answer.nonzero().tolist() == [[3, 4]]
    assert runner_up.nonzero().tolist() == [[5, 2]]
    torch.testing.assert_close(contrast, answer - runner_up)
    assert [row["class"] for row in found.shares[0].rows()] == [0, 1, None]


def test_what_a_network_that_glances_has_read() -> None:
    network = loaded("tnet-bagnet77", width=0.0625)()
    batch = pictures(2, 224)
    with left_as_found(network.module):
        found = seen(network, batch)
    assert found.shares.solver == "glimpses"
    torch.testing.assert_close(found.output, network(batch).detach())
    for i, answer in enumerate(fovea.zoom(network, batch)):
        cells = torch.zeros(28, 28)  # of 8 x 8 pixels
        for glimpse in answer.glimpses:
            x0, y0, x1, y1 = (side // 8 for side in glimpse.visible)
            cells[y0:y1, x0:x1] += glimpse.level - 1
        assert torch.equal(found.shares.values[i, 0], cells)
        assert float(cells.max()) > 0
        assert found.shares[i].rows()[0]["class"] == int(found.classes[i, 0])


@pytest.mark.parametrize("name", ["cnn", "vit"])
def test_maps_of_other_pictures_for_the_same_classes(name: str) -> None:
    make, side, first, _ = NETWORKS[name]
    network, batch = make(), pictures(2, side)
    before = seen(network, batch)
    rows = counted(network.module.get_submodule(first))
    again(network, batch, shown(batch), before.classes[:, 0])
    rows.clear()
    maps, output = again(network, batch, shown(batch), before.classes[:, 0])
    assert rows == [2]
    torch.testing.assert_close(output, before.output)
    torch.testing.assert_close(maps.values[:, 0], before.shares.values[:, 0])
    other, _ = again(network, batch, shown(batch), before.classes[:, 1])
    torch.testing.assert_close(other.values[:, 0], before.shares.values[:, 1])


def test_networks_without_an_answer_are_refused_in_words() -> None:
    batch = pictures(1, 24)
    embedding = fovea.wrap(seeded(Pooled), Prepare((24, 24)), embedding=True)
    refused("no classes to tell apart.*fovea.explain", fovea.look, embedding, batch)
    refused("no classes to tell apart", fovea.look, fovea.wrap(seeded(Pooled, 1), labels=1), batch)
    refused("no classes to tell apart", fovea.look, seeded(Pooled, 1), batch)
    lost = seeded(Pooled)
    lost.fc.bias.data[2] = torch.nan
    with pytest.raises(fovea.BadNetwork, match="not a number"):
        fovea.look(fovea.wrap(lost, labels=5), batch)
