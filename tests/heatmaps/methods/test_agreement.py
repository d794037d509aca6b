"""Every method beside other libraries' own, and why one differs where it does."""

from functools import cache

import pytest
from peers import DIFFERS, FULL, PEERS, SAME, Subject, agreement, subject

from fovea.basics import DoesNotApply
from fovea.heatmaps.methods import find

pytest.importorskip("pytorch_grad_cam")
pytest.importorskip("torchcam")
pytest.importorskip("captum")
small = cache(lambda name: subject(name, side=64))
large = cache(lambda name, costly: subject(name, 96, 1) if costly else subject(name))


def compare(method: str, library: str, here: Subject) -> None:
    try:
        cosine, correlation = agreement(method, library, here)
    except (NotImplementedError, DoesNotApply) as reason:
        pytest.skip(str(reason))
    same = min(cosine, correlation) >= SAME
    assert same or (method, library) in DIFFERS, f"{cosine}, {correlation}"


@pytest.mark.parametrize("net", ["timm/test_resnet", "timm/test_vit"])
@pytest.mark.parametrize(("method", "library"), PEERS)
def test_of_small_networks(method: str, library: str, net: str) -> None:
    compare(method, library, small(net))


@pytest.mark.parametrize(("method", "library"), [pair for pair in DIFFERS if pair != ("gradcam++", "torchcam")])
def test_peers_that_differ_elsewhere_agree_on_plain_layers(method: str, library: str) -> None:
    """Where there are no tokens, and no ReLU6, only one peer computes something else."""
    assert min(agreement(method, library, small("timm/test_resnet"))) >= SAME


@pytest.mark.slow
@pytest.mark.parametrize("net", FULL)
@pytest.mark.parametrize(("method", "library"), PEERS)
def test_of_networks_that_people_use(method: str, library: str, net: str) -> None:
    compare(method, library, large(net, find(method).costly))


@pytest.mark.parametrize(("method", "library"), DIFFERS)
def test_a_peer_that_differs_is_one_of_several(method: str, library: str) -> None:
    """Where a peer is not followed, another that is independent agrees."""
    others = [other for name, other in PEERS if name == method and other != library and (name, other) not in DIFFERS]
    alone = ("scorecam", "guided-backprop", "deeplift")  # whose peers differ in masks a little, and at ReLU6
    assert others or method in alone
