"""Training on clips. What the frozen network sees of a frame is found once."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fovea.basics import BadChoice
from fovea.data import Frame, Shots, open_clips
from fovea.models.videonet import Features, video_of
from fovea.networks import Network, fit_for_half, load
from fovea.training.feed import Feed, Hold, Kept, Progress, Wanted, preparing
from fovea.training.losses import loss
from fovea.training.medium import Medium, refuse_pictures
from fovea.training.recipe import Recipe
from fovea.training.scoring import Retrieved, Tested

TOGETHER = 8  # frames looked at in one pass: more of them fall out of the cache of a CPU


class ClipMedium(Medium):
    def __init__(self, recipe: Recipe) -> None:
        sized = "frames are squashed whole to network.options = { size = SIDE }"
        refuse_pictures(recipe, "of clips, a larger count= brings more variety", sized)
        if recipe.loss.reads != "embedding":
            known = [name for name, entry in loss.entries().items() if entry.traits.get("reads") == "embedding"]
            raise BadChoice(f"clips are compared by their embeddings: set loss.name to {' or '.join(known)}")
        data, test = open_clips(recipe.data.train), recipe.data.test
        super().__init__(recipe, data.labels, data, None if test is None else open_clips(test))

    def network(self) -> Network:
        part = self.recipe.network
        network = load(part.name, part.weights, part.pretrained, None, part.options)
        frozen = video_of(network).features
        if self.recipe.half:  # they do not change, so they can be from the beginning what the file will hold
            frozen.load_state_dict({key: fit_for_half(value) for key, value in frozen.state_dict().items()})
        return network

    def taken(self, network: Network, data: Shots, device: torch.device, progress: Progress) -> "ClipFeed":
        return ClipFeed(network, data, self.recipe.data.hold, device, progress)

    def scored(self, network: Network, taken: "ClipFeed") -> Tested:
        return Retrieved(taken)


class ClipFeed(Feed):
    """Clips as the trained part of the network takes them. A frame that is in several is looked at once. What is seen
    of frames is held in fp16 where it fits, and found anew at every turn otherwise. A video that cannot be read is said
    when it is opened."""

    def __init__(self, network: Network, data: Shots, hold: Hold, device: torch.device, progress: Progress) -> None:
        super().__init__(data.samples, [shot.label for shot in data.samples], device)
        self.module, self.prepare = video_of(network), preparing(network)
        self.module.features.to(device)
        places: dict[Frame, int] = {}
        rows = [[places.setdefault(frame, len(places)) for frame in shot.frames] for shot in data.samples]
        self.places, self.frames = torch.tensor(rows, device=device), tuple(places)  # N,T
        self.kept = Kept(self._seen, len(self.frames), hold, progress, TOGETHER)

    def inputs(self, wanted: Wanted) -> Features:
        return self.kept[self.places[wanted.index]].float().as_subclass(Features)  # N,T,channels,h,w

    def _seen(self, numbers: Sequence[int]) -> Tensor:
        ready = torch.stack([self.prepare(self.frames[i].read()) for i in numbers]).to(self.device)
        like = next(self.module.features.parameters(), ready)
        seen: Tensor = self.module.features(ready.to(like.dtype))
        return seen.half()
