"""What is counted of walks, by hand."""

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from fovea.data import Sample
from fovea.models.glimpsing import Walk
from fovea.networks import Network
from fovea.pictures import Prepare
from fovea.training.feed import Batch
from fovea.training.scoring import Walked

SAID = torch.tensor([[0, 1, 1], [1, 1, 0]])  # of the overview and two glimpses of each picture, all of class 1
EVEN = [[0.5, 0.25], [1.0, 0.5]]  # how even the choice of each glimpse was


class Fixed(nn.Module):
    abilities, least, most = frozenset({"glimpses"}), 0, 2

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Walk:
        each = torch.eye(2)[SAID] * self.scale  # N,V,classes
        boxes = torch.tensor([[0.0, 0, 8, 8], [0, 0, 4, 4], [4, 4, 8, 8]]).expand(len(x), 3, 4)
        return Walk(
            each.mean(1), each, each, boxes, (1, 2, 3), (-1, 0, 1), torch.zeros(len(x), 2), entropy=torch.tensor(EVEN)
        )


def test_each_level_is_judged_alone_and_where_it_lies() -> None:
    prepare = Prepare((8, 8), (0.5,) * 3, (0.5,) * 3, None)
    samples: list[Any] = [Sample("a", 1, None, ((1, 1, 3, 3),)), Sample("b", 1, None)]  # type: ignore[arg-type]
    batch = Batch(
        torch.zeros(2, 3, 8, 8), torch.tensor([1, 1]), torch.tensor([0, 1]), [(one, (8, 8)) for one in samples]
    )
    network = Network(Fixed(), prepare, ("x", "y"))
    counts = Walked(SimpleNamespace(prepare=prepare)).counts(network, network.module, batch, 2)
    assert counts == {
        "top1": (2, 2),
        "found_at_2": (1, 1),
        "found_at_3": (0, 1),
        "alone_at_1": (1, 2),
        "alone_at_2": (2, 2),
        "alone_at_3": (1, 2),
        "entropy_at_2": (1.5, 2),
        "entropy_at_3": (0.75, 2),
    }
