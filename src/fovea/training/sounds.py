"""Training on sounds: data called `sounds`. Spectrograms are made once and held where they fit, made anew otherwise."""

from collections.abc import Iterable, Iterator

import torch
from lightning.fabric import Fabric
from torch import Tensor, nn

from fovea.basics.errors import BadChoice
from fovea.data.sounds import Sounds, open_sounds
from fovea.models.anchornet_sound import Spectrogram, located, parts
from fovea.networks.loading import load
from fovea.networks.network import Network
from fovea.networks.stream import rank_of
from fovea.training.feed import Batch, Progress, Wanted, room
from fovea.training.recipe import AugmentPart, Recipe


class SoundMedium:
    pictures = None

    def __init__(self, recipe: Recipe) -> None:
        part = recipe.network
        if recipe.augment != AugmentPart():
            raise BadChoice("[augment] is for pictures: of sounds made in code, a larger count= brings more variety")
        if (part.size, part.crop, recipe.data.side) != (None, None, None):
            raise BadChoice("network.size, network.crop and data.side are for pictures; sounds take none of them")
        self.recipe, self.data = recipe, open_sounds(recipe.data.train)
        self.name, self.labels = self.data.name, self.data.labels
        self.test = None if recipe.data.test is None else open_sounds(recipe.data.test)

    def __len__(self) -> int:
        return len(self.data)

    def network(self) -> Network:
        part = self.recipe.network
        network = load(part.name, part.weights, part.pretrained, len(self.labels), part.options)
        spectrogram, _ = parts(network)
        for data in filter(None, (self.data, self.test)):
            if data.rate != spectrogram.rate:
                raise BadChoice(
                    f"the network takes sounds of {spectrogram.rate:,} Hz and the data has {data.rate:,} Hz: set "
                    f"network.options = {{ rate = {data.rate} }}"
                )
        network.labels = self.labels
        return network

    def feed(self, network: Network, device: torch.device, progress: Progress) -> "SoundFeed":
        return SoundFeed(Spectrograms(network, self.data, self.recipe.data.hold, device, progress))

    def tested(self, network: Network, device: torch.device, progress: Progress) -> "SoundTest | None":
        if self.test is None:
            return None
        return SoundTest(Spectrograms(network, self.test, self.recipe.data.hold, device, progress))


class Spectrograms:
    """A set as the network takes it, by index."""

    def __init__(
        self, network: Network, data: Sounds, hold: bool | str, device: torch.device, progress: Progress
    ) -> None:
        self.spectrogram: Spectrogram = parts(network)[0]
        self.data, self.device = data, device
        self.labels = torch.tensor([sound.label for sound in data.samples]).to(device)
        one = self._made([0])
        self.held: Tensor | None = None
        if hold is True or (hold == "auto" and len(data) * one[0].nbytes <= room(device)):
            self.held = one.new_empty(len(data), *one.shape[1:])
            for i in range(len(data)):
                self.held[i] = self._made([i])[0]
                progress(i + 1, len(data))

    def __getitem__(self, index: Tensor) -> Tensor:
        return self._made(index.tolist()) if self.held is None else self.held[index.to(self.device)]  # N,bands,T

    def _made(self, index: list[int]) -> Tensor:
        return torch.stack([self.spectrogram(self.data.samples[i].read()) for i in index]).to(self.device)


class SoundFeed:
    def __init__(self, made: Spectrograms) -> None:
        self.made, self.samples = made, made.data.samples
        self.skipped: list[tuple[str, str]] = []  # what is made in code can be read

    def batches(self, wanted: Iterable[Wanted]) -> Iterator[Batch]:
        for one in wanted:
            yield Batch(self.made[one.index], self.made.labels[one.index.to(self.made.device)], one.index)


class SoundTest:
    """Top-1, and `hit`: the share of sounds whose best span has its centre in the true event."""

    def __init__(self, made: Spectrograms) -> None:
        self.made = made
        self.skipped: list[tuple[str, str]] = []

    def __len__(self) -> int:
        return len(self.made.data)

    @torch.no_grad()
    def score(self, network: Network, module: nn.Module, fabric: Fabric, size: int) -> dict[str, float]:
        module.eval()
        spectrogram, own = parts(network)
        counts, dtype = torch.zeros(3, dtype=torch.float64), next(module.parameters()).dtype
        mine = torch.arange(fabric.global_rank, len(self), fabric.world_size)
        for index in torch.split(mine, size):
            out = module(self.made[index].to(dtype))
            right = rank_of(network.read(out), self.made.labels[index.to(self.made.device)]) < 1
            true = [self.made.data.samples[i].span for i in index.tolist()]
            found = located(out, spectrogram, own.windows)
            hit = sum(start <= one.spans[0].centre < stop for one, (start, stop) in zip(found, true, strict=True))
            counts += torch.tensor([len(index), right.sum(), hit], dtype=torch.float64)
        if fabric.world_size > 1:
            counts = torch.as_tensor(fabric.all_reduce(counts.to(fabric.device), reduce_op="sum"))
        sounds, top1, hit = counts.tolist()
        return {"top1": top1 / sounds, "hit": hit / sounds}
