import math

import pytest
import torch
from torch import Tensor

from fovea.models.saccader import Cell, CellWalk, Policy, Saccader, SaccaderOptions
from fovea.training.losses.sorted_locations import SortedLocations


def walk_over(mixed: Tensor, evidence: Tensor, glimpses: int, cells: Tensor | None = None) -> CellWalk:
    """Of one channel, whose softmax is 1: a cell's value is the logit of its being chosen."""
    n = len(mixed)
    cells = torch.zeros(n, glimpses, dtype=torch.long) if cells is None else cells
    nothing = torch.zeros(n, glimpses, evidence.shape[1])
    return CellWalk(
        nothing[:, 0], nothing, nothing, torch.zeros(n, glimpses, 4), (2,) * glimpses, (-1,) * glimpses,
        torch.zeros(n, glimpses), evidence=evidence, cells=cells, policy=Policy(Cell(1), mixed),
    )  # fmt: skip


MIXED = torch.tensor([[[0.0], [math.log(2)], [math.log(3)]]])  # 1,P,1: chosen with 1/6, 2/6 and 3/6
TAUGHT = SortedLocations(label="true", along="order")
EVIDENCE = torch.tensor([[[[9.0, 8.0, 7.0]], [[1.0, 5.0, 3.0]]]])  # 1,classes,1,3: the order 0 1 2, and 1 2 0


@pytest.mark.parametrize(
    ("target", "glimpses", "chances"),
    [
        ([1], 1, [1 / 3]),
        ([1], 2, [1 / 3, 3 / 4]),  # without the second cell 1/4 and 3/4 are left
        ([1], 3, [1 / 3, 3 / 4, 1]),  # the last one is all there is
        ([0], 2, [1 / 6, 2 / 5]),
        ([[0.3, 0.7]], 2, [1 / 3, 3 / 4]),  # a mixed picture
    ],
)
def test_three_cells_by_hand(target: list[object], glimpses: int, chances: list[float]) -> None:
    loss = TAUGHT(walk_over(MIXED, EVIDENCE, glimpses), torch.tensor(target))
    assert float(loss.detach()) == pytest.approx(-sum(map(math.log, chances)) / glimpses, abs=1e-6)


@pytest.mark.parametrize(
    ("drawn", "chances"),
    [
        ([0, 1], [1 / 6, 2 / 5]),  # as wanted
        ([2, 0], [1 / 6, 2 / 3]),  # without the third cell 1/3 and 2/3 are left
        ([1, 0], [1 / 6, 2 / 4]),  # the second was drawn already: judged beside those that are free
    ],
)
def test_the_networks_own_samples_are_followed(drawn: list[int], chances: list[float]) -> None:
    """All cells together say class 0 (8 beside 3), whose order is 0 1 2, whatever the truth is."""
    walk = walk_over(MIXED, EVIDENCE, 2, torch.tensor([drawn]))
    for truth in (0, 1):
        loss = SortedLocations()(walk, torch.tensor([truth]))
        assert float(loss.detach()) == pytest.approx(-sum(map(math.log, chances)) / 2, abs=1e-6)


def test_pictures_are_averaged() -> None:
    both = walk_over(MIXED.expand(2, -1, -1), EVIDENCE.expand(2, -1, -1, -1), 1)
    loss = TAUGHT(both, torch.tensor([0, 1]))
    assert float(loss.detach()) == pytest.approx(-(math.log(1 / 6) + math.log(1 / 3)) / 2, abs=1e-6)


@pytest.mark.parametrize("loss_of", [TAUGHT, SortedLocations()])
def test_learned_by_the_network_while_its_representation_stays(loss_of: SortedLocations) -> None:
    """A few steps on two pictures: the loss falls, and the network then goes to where its evidence is highest."""
    torch.manual_seed(0)
    net = Saccader(2, SaccaderOptions(0.125, 3, "locations", 93)).train()
    frozen = {key: value.clone() for key, value in net.representation.state_dict().items()}
    pictures, target = torch.randn(2, 3, 93, 93), torch.tensor([0, 1])
    tuner = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], 3e-3)
    losses = []
    for _ in range(80):
        loss = loss_of(net(pictures), target)
        tuner.zero_grad()
        loss.backward()
        tuner.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < (0.2 if loss_of is TAUGHT else 0.6) < losses[0]  # own samples may take a wanted cell early
    assert all(torch.equal(value, frozen[key]) for key, value in net.representation.state_dict().items())
    with torch.no_grad():
        out = net.eval()(pictures)
        label = target if loss_of is TAUGHT else out.evidence.mean((2, 3)).argmax(1)
        orders = [out.evidence[i, label[i]].flatten().topk(3).indices for i in range(2)]
        followed = out.policy.log_likelihood(torch.stack(orders))
    assert [set(cells) for cells in out.cells.tolist()] == [set(order.tolist()) for order in orders]
    assert bool((followed.exp() > 0.5).all()) or loss_of is not TAUGHT
