"""What a network that zooms reads, as patches."""

from collections.abc import Sequence

from PIL import Image

from fovea.basics import BadChoice
from fovea.glimpses.zoom import glimpsing, zoom_steps
from fovea.models.glimpsing import Route
from fovea.networks import Network
from fovea.patches import Finder, Scored, patch_source


@patch_source("tnet", about="the glimpses of a TNet, deepest level first")
@patch_source("saccader", about="the glimpses of a Saccader")
@patch_source("dram", about="the glimpses of a DRAM")
def glimpses(network: Network, count: int | None = None) -> Finder:
    """As many as the network usually reads unless given. The score is the probability of what a glimpse alone is taken
    for."""
    if not network.can("glimpses"):
        raise BadChoice(
            f"{network.name} reads pictures as a whole; glimpses are of a TNet ('fovea models tnet'), a Saccader or a "
            f"DRAM (a source for any classifier: l2caf:{network.name})"
        )
    module = glimpsing(network)
    least, most = max(module.least, 1), module.most
    if count is not None and not least <= count <= most:
        raise BadChoice(f"{network.name} reads {least} to {most} glimpses of a picture; got count={count}")

    def finder(images: Sequence[Image.Image]) -> list[Scored]:
        steps = zoom_steps(network, list(images), Route(count))
        answers = [answer for step in steps for answer in step.results]
        deepest_first = [sorted(answer.glimpses, key=lambda glimpse: -glimpse.level) for answer in answers]
        return [[(glimpse.box, glimpse.probability) for glimpse in row] for row in deepest_first]

    return finder
