"""An embedding network (L2-CAF supplement, S2): any network's last map, its mean over cells, and one linear layer."""

import torch
from torch import Tensor, nn

from fovea.basics import BadChoice
from fovea.models.trunks import Trunk, prepare_of, trunk_of
from fovea.networks import Network, borrowed_of, hash_of, model


class Embedding(nn.Module):
    """Pictures to vectors as they are, whatever their length: who compares directions scales them. With `keep_norms`,
    and with frozen features, norms keep their statistics in training: those of batches with a few classes each are no
    good for classes that come later."""

    abilities = frozenset({"embedding"})

    def __init__(self, features: Trunk, dimensions: int, keep_norms: bool = True, frozen: bool = False) -> None:
        super().__init__()
        self.features, self.keep_norms = features, keep_norms
        self.project = nn.Linear(features.channels, dimensions)
        self.features.requires_grad_(not frozen)
        self.borrowed = "features." if frozen else ""  # weights that are another network's, which files do without
        self.lent = hash_of(borrowed_of(self, self.state_dict())[0]) if frozen else ""  # what they were

    def train(self, mode: bool = True) -> "Embedding":
        super().train(mode)
        frozen = not any(parameter.requires_grad for parameter in self.features.parameters())
        for layer in self.features.modules():
            if frozen or (self.keep_norms and isinstance(layer, nn.modules.batchnorm._BatchNorm)):
                layer.training = False
        return self

    def forward_features(self, x: Tensor) -> Tensor:
        return self.features(x)  # N,k,h,w

    def pooled(self, features: Tensor) -> Tensor:
        return features.mean((2, 3))  # N,k

    def forward_head(self, features: Tensor) -> Tensor:
        return self.project(self.pooled(features))  # N,D

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4:
            raise BadChoice(f"an embedding network takes pictures, N,C,H,W; got {tuple(x.shape)}")
        return self.forward_head(self.forward_features(x))

    @torch.no_grad()
    def start_from(self, pooled: Tensor) -> None:
        """The linear layer becomes the projection on the principal directions of pooled features, M,k. Distances among
        them are kept as well as so few numbers can keep them, which a random layer does not do."""
        spread = pooled.double() - pooled.double().mean(0)
        _, directions = torch.linalg.eigh(spread.T @ spread)  # the largest last
        kept = directions.flip(1)[:, : len(self.project.weight)].T  # D,k
        if len(kept) < len(self.project.weight):
            most, given = pooled.shape[1], len(self.project.weight)
            raise BadChoice(f"the features have {most} channels: give dimensions of at most so many; got {given}")
        self.project.weight.copy_(kept)
        self.project.bias.zero_()


@model("embedding", about="a vector over the features of any network", over="network", can=("embedding",))
def build(features: Network, dimensions: int = 128, keep_norms: bool = True, frozen: bool = False) -> Network:
    """An embedding of so many numbers over the features of any network; it has no labels. `keep_norms`: in training,
    batch norm goes on with the statistics that the features came with. `frozen`: the features stay as they are, and a
    weights file holds the linear layer alone."""
    if dimensions < 1:
        raise BadChoice(f"an embedding has at least 1 dimension; got {dimensions}")
    return Network(Embedding(trunk_of(features), dimensions, keep_norms, frozen), prepare_of(features), None)


def embedding_of(network: Network) -> Embedding:
    if not isinstance(network.module, Embedding):
        raise BadChoice(f"{network.name or 'the network'} is no embedding network: give an embedding/NAME")
    return network.module
