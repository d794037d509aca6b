import math

import pytest
import torch
from torch import Tensor

from fovea.models.saccader import Cell, CellWalk, Policy, Saccader, SaccaderOptions
from fovea.training.losses.sorted_locations import SortedLocations


def walk_over(mixed: Tensor, evidence: Tensor, glimpses: int) -> CellWalk:
    """Of one channel, whose softmax is 1: a cell's value is the logit of its being chosen."""
    n = len(mixed)
    nothing = torch.zeros(n, glimpses, evidence.shape[1])
    return CellWalk(
        nothing[:, 0], nothing, nothing, torch.zeros(n, glimpses, 4), (2,) * glimpses, (-1,) * glimpses,
        torch.zeros(n, glimpses), evidence=evidence, cells=torch.zeros(n, glimpses), policy=Policy(Cell(1), mixed),
    )  # fmt: skip


MIXED = torch.tensor([[[0.0], [math.log(2)], [math.log(3)]]])  # 1,P,1: chosen with 1/6, 2/6 and 3/6
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
    loss = SortedLocations()(walk_over(MIXED, EVIDENCE, glimpses), torch.tensor(target))
    assert float(loss.detach()) == pytest.approx(-sum(map(math.log, chances)) / glimpses, abs=1e-6)


def test_pictures_are_averaged() -> None:
    both = walk_over(MIXED.expand(2, -1, -1), EVIDENCE.expand(2, -1, -1, -1), 1)
    loss = SortedLocations()(both, torch.tensor([0, 1]))
    assert float(loss.detach()) == pytest.approx(-(math.log(1 / 6) + math.log(1 / 3)) / 2, abs=1e-6)


def test_learned_by_the_network_while_its_representation_stays() -> None:
    """A few steps on two pictures: the loss falls, and the network then goes to where its evidence is highest."""
    torch.manual_seed(0)
    net = Saccader(2, SaccaderOptions(0.125, 3, "locations", 93)).train()
    frozen = {key: value.clone() for key, value in net.representation.state_dict().items()}
    pictures, target = torch.randn(2, 3, 93, 93), torch.tensor([0, 1])
    tuner = torch.optim.Adam([one for one in net.parameters() if one.requires_grad], 3e-3)
    losses = []
    for _ in range(40):
        loss = SortedLocations()(net(pictures), target)
        tuner.zero_grad()
        loss.backward()
        tuner.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.2 < losses[0]
    assert all(torch.equal(value, frozen[key]) for key, value in net.representation.state_dict().items())
    with torch.no_grad():
        out = net(pictures)
        orders = [out.evidence[i, i].flatten().topk(3).indices for i in range(2)]
        followed = out.policy.log_likelihood(torch.stack(orders))
    assert bool((followed.exp() > 0.5).all())
