"""Where an embedding begins: the principal directions of the training pictures' features."""

import torch

from fovea.data import DataSet
from fovea.models.embedding import embedding_of
from fovea.networks.inputs import groups
from fovea.networks.network import Network, as_found
from fovea.training.feed import Progress


def start(network: Network, data: DataSet, size: int, progress: Progress) -> None:
    """The embedding begins as the principal directions of the training pictures' pooled features."""
    module, features = embedding_of(network), []
    for group in groups(network, data, size):
        if group.batch is not None:
            with as_found(network), torch.no_grad():
                features.append(module.pooled(module.forward_features(group.batch)).float().cpu())
        progress(group.done, group.total)
    module.start_from(torch.cat(features))
