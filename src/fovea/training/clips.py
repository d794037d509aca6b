"""Training on clips: data called `moving` or `segments`. What the frozen network sees of a frame is found once."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from fovea.basics.errors import BadChoice
from fovea.data.moving import Frame, Shots
from fovea.data.segments import open_clips
from fovea.models.videonet import Features, video_of
from fovea.networks.loading import load
from fovea.networks.network import Network, fit_for_half
from fovea.training.feed import Batch, Progress, Wanted, preparing, room
from fovea.training.losses import loss
from fovea.training.recipe import AugmentPart, Recipe
from fovea.training.scoring import Retrieved

TOGETHER = 8  # frames looked at in one pass: more of them fall out of the cache of a CPU


class ClipMedium:
    pictures = None

    def __init__(self, recipe: Recipe) -> None:
        part = recipe.network
        if recipe.augment != AugmentPart():
            raise BadChoice("[augment] is for pictures: of clips, a larger count= brings more variety")
        if (part.size, part.crop, part.squash, recipe.data.side) != (None, None, False, None):
            raise BadChoice(
                "network.size, network.crop, network.squash and data.side are for pictures; frames are squashed whole "
                "to network.options = { size = SIDE }"
            )
        if recipe.loss.reads != "embedding":
            known = [name for name, entry in loss.entries().items() if entry.traits.get("reads") == "embedding"]
            raise BadChoice(f"clips are told by their embeddings: set loss.name to {' or '.join(known)}")
        self.recipe, self.data = recipe, open_clips(recipe.data.train)
        self.name, self.labels = self.data.name, self.data.labels
        self.test = None if recipe.data.test is None else open_clips(recipe.data.test)

    def __len__(self) -> int:
        return len(self.data)

    def network(self) -> Network:
        part = self.recipe.network
        network = load(part.name, part.weights, part.pretrained, None, part.options)
        frozen = video_of(network).features
        if self.recipe.half:  # they do not change, so they can be from the beginning what the file will hold
            frozen.load_state_dict({key: fit_for_half(value) for key, value in frozen.state_dict().items()})
        return network

    def feed(self, network: Network, device: torch.device, progress: Progress) -> "ClipFeed":
        return ClipFeed(Looked(network, self.data, self.recipe.data.hold, device, progress))

    def tested(self, network: Network, device: torch.device, progress: Progress) -> Retrieved | None:
        if self.test is None:
            return None
        return Retrieved(ClipTest(Looked(network, self.test, self.recipe.data.hold, device, progress)))


class Looked:
    """Clips as the trained part of the network takes them, by index. A frame that is in several is looked at once.

    They are held in fp16 where they fit, and found anew at every turn otherwise.
    """

    def __init__(self, network: Network, data: Shots, hold: bool | str, device: torch.device, progress: Progress):
        self.module, self.prepare, self.data, self.device = video_of(network), preparing(network), data, device
        self.module.features.to(device)
        self.labels = torch.tensor([shot.label for shot in data.samples]).to(device)
        places: dict[Frame, int] = {}
        rows = [[places.setdefault(frame, len(places)) for frame in shot.frames] for shot in data.samples]
        self.places, self.frames = torch.tensor(rows), tuple(places)  # N,T
        self.held: Tensor | None = None
        one = self._seen(self.frames[:1])
        if hold is True or (hold == "auto" and len(self.frames) * one.nbytes <= room(device)):
            self.held = one.new_empty(len(self.frames), *one.shape[1:])
            for start in range(0, len(self.frames), TOGETHER):
                stop = min(start + TOGETHER, len(self.frames))
                self.held[start:stop] = self._seen(self.frames[start:stop])
                progress(stop, len(self.frames))

    def __getitem__(self, index: Tensor) -> Features:
        places = self.places[index]  # N,T
        if self.held is not None:
            found = self.held[places.to(self.device)]
        else:
            found = torch.stack([self._seen([self.frames[i] for i in row]) for row in places.tolist()])
        return found.float().as_subclass(Features)  # N,T,channels,h,w

    def _seen(self, frames: Sequence[Frame]) -> Tensor:
        ready = torch.stack([self.prepare(frame.read()) for frame in frames]).to(self.device)
        like = next(self.module.features.parameters(), ready)
        seen: Tensor = self.module.features(ready.to(like.dtype))
        return seen.half()


class ClipFeed:
    def __init__(self, looked: Looked) -> None:
        self.looked, self.samples = looked, looked.data.samples
        self.skipped: list[tuple[str, str]] = []  # a video that cannot be read is said when it is opened

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        for one in wanted:
            yield Batch(self.looked[one.index], self.looked.labels[one.index.to(self.looked.device)], one.index)


class ClipTest:
    def __init__(self, looked: Looked) -> None:
        self.looked = looked
        self.skipped: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self.looked.data)

    def batches(self, size: int, rank: int = 0, world: int = 1) -> Iterator[tuple[Tensor, Tensor]]:
        for index in torch.split(torch.arange(rank, len(self), world), size):
            yield self.looked[index], self.looked.labels[index.to(self.looked.device)]
