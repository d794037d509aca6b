"""So many steps on the sphere reach what fovea's search reaches."""

from functools import partial

import pytest
import torch

import fovea
from conftest import seeded
from fovea.graphs.search import searched
from fovea.heatmaps import Aim, Look, Weighted, find, weighing
from fovea.networks import as_found, cut
from made_graphs import Normed


@pytest.mark.parametrize("target", [0, 3])
def test_the_loss_is_as_low_as_that_of_the_search(target: int) -> None:
    net = fovea.wrap(seeded(Normed), labels=5)
    batch = torch.randn(6, 3, 64, 64, generator=torch.Generator().manual_seed(target))
    own = fovea.explain(net, batch, target=target)
    run = find("l2caf-signed").run
    with as_found(net) as parts:
        opened = cut(net, batch, None, parts).open(batch)
        classes = torch.full((6,), target)
        aim = Aim((), Weighted(partial(weighing, opened.output.detach(), classes, 1.0, 0.0)), classes, "a class")
        f, few = (searched(run, count)(Look(opened), aim) for count in (14, 4))
        losses, early = (run.loss(Look(opened), aim)(opened.filtered(found)).detach() for found in (f, few))
    assert torch.allclose(f.norm(dim=1), torch.ones(6), atol=1e-5)
    spread = (early - losses).max()
    assert (losses <= early + 1e-6).all()  # more steps never lose
    assert own.loss is not None
    assert (losses <= own.loss[:, 0] + 1e-3 * (1 + spread)).all()
