"""LIP on a network's evidence: of AnchorNet's decided branch, of a map, or of crops."""

from collections.abc import Sequence
from typing import Annotated

from PIL import Image

from fovea.basics import SHARE, BadChoice
from fovea.networks import Network
from fovea.patches.localize import localize_steps
from fovea.patches.options import Evidence, LocalizeOptions
from fovea.patches.sources import Finder, PatchCount, Scored, patch_source


@patch_source("anchornet", about="LIP on AnchorNet's decided branch; scores are evidence")
def informative_patches(
    network: Network,
    count: PatchCount = 5,
    overlap: Annotated[float, SHARE] | None = None,
    share: Annotated[float, SHARE] | None = None,
) -> Finder:
    """`overlap` and `share` are LIP's T and P."""
    options = LocalizeOptions(count, overlap, share)
    if not network.can("branches"):
        why = f"{network.name} has none (a source for any classifier: l2caf:{network.name})"
        raise BadChoice(f"anchornet needs a network with branches that localize, as anchornet-cub100 is; {why}")

    return _finder(network, options)


@patch_source("lip", about="LIP on the map of any network, or on crops that it sees alone; scores are evidence")
def patches_of_evidence(
    network: Network,
    count: PatchCount | None = None,
    overlap: Annotated[float, SHARE] | None = None,
    share: Annotated[float, SHARE] | None = None,
    evidence: Evidence | None = None,
) -> Finder:
    """As `fovea localize` does, with the same defaults."""
    return _finder(network, LocalizeOptions(count, overlap, share, evidence=evidence))


def _finder(network: Network, options: LocalizeOptions) -> Finder:
    def finder(images: Sequence[Image.Image]) -> list[Scored]:
        steps = localize_steps(network, list(images), options, len(images))
        return [[(patch.box, patch.evidence) for patch in one.patches] for step in steps for one in step.results]

    return finder
