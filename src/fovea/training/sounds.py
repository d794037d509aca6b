"""Training on sounds. Spectrograms are made once and held where they fit, made anew otherwise."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice
from fovea.data import Sounds, open_sounds
from fovea.models.anchornet_sound import Spectrogram, located, parts
from fovea.networks import Network, load, rank_of
from fovea.training.feed import Batch, Feed, Hold, Kept, Progress, Wanted
from fovea.training.medium import Medium, refuse_pictures
from fovea.training.recipe import Recipe
from fovea.training.scoring import Counts, Tested, answer


class SoundMedium(Medium):
    def __init__(self, recipe: Recipe) -> None:
        refuse_pictures(recipe, "of sounds made in code, a larger count= brings variety", "sounds take none of them")
        data, test = open_sounds(recipe.data.train), recipe.data.test
        super().__init__(recipe, data.labels, data, None if test is None else open_sounds(test))

    def network(self) -> Network:
        part = self.recipe.network
        network = load(part.name, part.weights, part.pretrained, len(self.labels), part.options)
        spectrogram, _ = parts(network)
        for data in filter(None, (self.data, self.test)):
            if data.rate != spectrogram.rate:
                why = f"the data has {data.rate:,} Hz: set network.options = {{ rate = {data.rate} }}"
                raise BadChoice(f"the network takes sounds of {spectrogram.rate:,} Hz and {why}")
        network.labels = self.labels
        return network

    def taken(self, network: Network, data: Sounds, device: torch.device, progress: Progress) -> "SoundFeed":
        return SoundFeed(network, data, self.recipe.data.hold, device, progress)

    def scored(self, network: Network, taken: "SoundFeed") -> Tested:
        return SoundTest(taken)


class SoundFeed(Feed):
    """Sounds as spectrograms. What is made in code can be read."""

    def __init__(self, network: Network, data: Sounds, hold: Hold, device: torch.device, progress: Progress) -> None:
        super().__init__(data.samples, [sound.label for sound in data.samples], device)
        self.spectrogram: Spectrogram = parts(network)[0]
        self.data = data
        self.kept = Kept(self._made, len(data), hold, progress)

    def inputs(self, wanted: Wanted) -> Tensor:
        return self.kept[wanted.index]  # N,bands,T

    def _made(self, numbers: Sequence[int]) -> Tensor:
        return torch.stack([self.spectrogram(self.data.samples[i].read()) for i in numbers]).to(self.device)


class SoundTest(Tested):
    """Top-1, and `hit`: the share of sounds whose best span has its center in the true event."""

    def counts(self, network: Network, module: nn.Module, batch: Batch, size: int) -> Counts:
        out, (spectrogram, sound_net) = answer(module, batch), parts(network)
        right = rank_of(network.read(out), batch.target) < 1
        true = [self.held.samples[i].span for i in batch.index.tolist()]
        spans = [heard.spans[0] for heard in located(out, spectrogram, sound_net.windows)]
        hit = sum(start <= span.center < stop for span, (start, stop) in zip(spans, true, strict=True))
        return {"top1": (int(right.sum()), len(true)), "hit": (hit, len(true))}
