from dataclasses import dataclass, field

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import fovea
from fovea.evidence.audit.table import PatchTable
from fovea.evidence.audit.transplanting import DONORS, HOSTS, moved
from fovea.pictures import Placement
from made_audit import BLUE, GREEN, RED, SIDE, Lit, cluster, colors, painted, table

SIZE = (2 * SIDE, SIDE // 2)  # of the user's pictures, which are squashed into the input


@dataclass
class Album:
    """Pictures by name, as an audit loads them; those that are gone are none any more."""

    network: fovea.Network
    pictures: dict[str, Image.Image | None]
    loaded: list[str] = field(default_factory=list)

    def __call__(self, name: str) -> tuple[Tensor, Placement] | None:
        self.loaded.append(name)
        picture = self.pictures[name]
        return None if picture is None else self.network.prepare(picture)


def on_picture(row: int, column: int) -> tuple[float, ...]:
    """The patch of a cell and those to its right and below, in the user's pixels."""
    x0, y0 = 8 * column, 8 * row
    return (2 * x0, y0 / 2, 2 * (x0 + 16), (y0 + 16) / 2)


def made(
    *lit: Lit, at: tuple[int, int], donors: int = 8, hosts: int = 20, network: fovea.Network | None = None
) -> tuple[PatchTable, Album]:
    """Red pictures with these cells, a patch of which is the cluster's; and green ones, cells of which are 0.6."""
    album = Album(network or colors(), {})
    known = table([RED] * donors + [GREEN] * hosts, np.zeros((donors + hosts, 1, 64)))
    for number, name in enumerate(known.names):
        green = (number % 7, number % 5, GREEN, 0.6)
        album.pictures[name] = painted(*(lit if number < donors else [green]), size=SIZE)
    known.boxes[:] = on_picture(*at)
    return known, album


def tried(known: PatchTable, album: Album, donors: int = 8, seed: int = 0) -> float:
    return moved(album.network, known, cluster(label=RED, patches=np.arange(donors)), album, seed)


def test_patches_with_the_mark_move_every_other_picture() -> None:
    assert tried(*made((5, 5, RED, 1), at=(5, 5))) == 1
    assert tried(*made((5, 5, RED, 1), (6, 6, RED, 1), at=(5, 5))) == 1


def test_patches_without_it_move_none() -> None:
    assert tried(*made((5, 5, RED, 1), at=(0, 0))) == 0
    assert tried(*made((5, 5, RED, 0.55), at=(5, 5))) == 0  # which is less than they have of green


def test_a_share_of_the_pictures() -> None:
    """Half of the donors have the mark."""
    known, album = made((5, 5, RED, 1), at=(5, 5), donors=4)
    for name in ("1.png", "3.png"):
        album.pictures[name] = painted(size=SIZE)
    assert tried(known, album, donors=4) == 0.5


class Place(nn.Module):
    """Red where the cell in row 1, column 5 is; green otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.Sequential(nn.AvgPool2d(8), nn.Conv2d(3, 3, 1, bias=False))
        self.cells[1].weight.data = torch.eye(3)[:, :, None, None]
        self.fc = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        red = self.cells(x)[:, 0, 1, 5]
        return torch.stack([red, 0.5 - 0 * red, 0 * red, 0 * red], 1)


def test_a_patch_is_put_where_it_was() -> None:
    network = colors(module=Place())
    assert tried(*made((1, 5, RED, 1), at=(1, 5), network=network)) == 1
    assert tried(*made((1, 5, RED, 1), at=(0, 4), network=network)) == 1  # as its lower right cell
    assert tried(*made((5, 1, RED, 1), at=(5, 1), network=network)) == 0


def test_pictures_are_left_as_they_are() -> None:
    """Each patch goes into pictures as they came, not into those that hold the patches before."""
    known, album = made((5, 5, RED, 1), at=(5, 5), donors=2)
    album.pictures["1.png"] = painted(size=SIZE)  # the first makes all of them red, the second none
    known.boxes[1] = on_picture(0, 0)
    assert tried(known, album, donors=2) == 0.5


@pytest.mark.parametrize("spoil", ["answer", "truth"])
def test_pictures_of_the_class_are_no_hosts(spoil: str) -> None:
    """Neither those that are taken for it nor those that are of it."""
    known, album = made((5, 5, RED, 1), at=(5, 5))
    getattr(known, spoil)[8:24] = RED
    assert tried(known, album) == 1
    assert {name for name in album.loaded if int(name.removesuffix(".png")) >= 8} == {
        f"{number}.png" for number in range(24, 28)
    }
    known.answer[:] = RED
    assert tried(known, album) == 0


@pytest.mark.parametrize(("alike", "share"), [(4, 1), (1, 1), (0, 0)])
def test_pictures_of_other_shapes_are_left_out(alike: int, share: float) -> None:
    """Where pictures come in whole, in their proportions: a place in one is not that place in the other."""
    known, album = made((5, 5, RED, 1), at=(5, 5), hosts=4)

    def load(name: str) -> tuple[Tensor, Placement] | None:
        found = album(name)
        assert found is not None
        wider = int(name.removesuffix(".png")) >= 8 + alike
        return (torch.zeros(3, SIDE, SIDE + 8) if wider else found[0]), found[1]

    assert moved(album.network, known, cluster(patches=np.arange(8)), load) == share


def test_pictures_that_are_gone_are_left_out() -> None:
    known, album = made((5, 5, RED, 1), at=(5, 5), hosts=4)
    album.pictures["0.png"] = album.pictures["8.png"] = None
    assert tried(known, album) == 1
    album.pictures.update(dict.fromkeys(known.names))
    assert tried(known, album) == 0


def test_a_few_donors_and_hosts_which_follow_from_the_seed() -> None:
    def loaded(seed: int) -> list[str]:
        known, album = made((5, 5, RED, 1), at=(5, 5), hosts=50)
        assert tried(known, album, seed=seed) == 1
        return album.loaded

    first, again, other = loaded(0), loaded(0), loaded(1)
    assert first == again
    assert set(first) != set(other)
    assert first[HOSTS:] == [f"{number}.png" for number in range(DONORS)]  # the nearest to the middle
    assert len(set(first[:HOSTS])) == HOSTS


def test_truths_that_nobody_knows() -> None:
    known, album = made((3, 3, BLUE, 1), at=(3, 3))
    assert (known.truth == -1).all()
    assert moved(album.network, known, cluster(label=BLUE, patches=np.arange(8)), album) == 1
