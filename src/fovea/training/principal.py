"""Where an embedding begins: the principal directions of the training pictures' features."""

import torch

from fovea.data import DataSet
from fovea.models.embedding import embedding_of
from fovea.networks.network import Network, as_found
from fovea.networks.stream import batches, prepared
from fovea.training.feed import Progress


def start(network: Network, data: DataSet, size: int, progress: Progress) -> None:
    """The embedding begins as the principal directions of the training pictures' pooled features."""
    module, found = embedding_of(network), []
    for samples, images in batches(data, size, []):
        tensors, _, _ = prepared(network, samples, images)
        with as_found(network), torch.no_grad():
            found.append(module.pooled(module.forward_features(tensors)).float().cpu())
        progress(sum(map(len, found)), len(data))
    module.start_from(torch.cat(found))
