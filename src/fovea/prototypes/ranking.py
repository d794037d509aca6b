"""Which pictures of a data set are most like each prototype: looked for once, and kept in a file for the next time."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from fovea.basics import BadPicture, Progress, plain, whole
from fovea.data import DataSet
from fovea.models.protopnet import prototypes_of
from fovea.networks import Network, as_found, groups, hash_of

FOLDER = Path("out/alike")
Skipped = list[tuple[str, str]]
LEAST = 16  # pictures kept of each prototype


@dataclass(frozen=True)
class Ranked:
    """The pictures most like each prototype, best first: their similarity (-inf where there is none) and their place
    in the data, P,K each."""

    similarity: Tensor
    which: Tensor


def rank(
    network: Network, data: DataSet, count: int, batch: int, kept: Path | None, skipped: Skipped, progress: Progress
) -> Ranked:
    """Of every prototype at least `count` pictures, but the one that it was projected on, or all that there are."""
    most = min(max(count, LEAST), len(data))
    file = None if kept is None else kept / _name(network, data)
    found = None if file is None else _read(file, prototypes_of(network).owner.numel(), most, len(data))
    if found is None:
        found = _looked_for(network, data, most, batch, skipped, progress)
        if file is not None and not skipped:  # what could not be read now may be readable the next time
            file.parent.mkdir(parents=True, exist_ok=True)
            with whole(file) as part:
                save_file({"similarity": found.similarity, "which": found.which}, str(part))
    return found


def _looked_for(net: Network, data: DataSet, most: int, batch: int, skipped: Skipped, progress: Progress) -> Ranked:
    module = prototypes_of(net)
    projected = module.picture.flatten().unsqueeze(1).cpu()  # P,1
    best: Ranked | None = None
    for group in groups(net, data, batch):
        skipped += group.skipped
        if group.batch is not None:
            with as_found(net), torch.no_grad():
                similarity = module(group.batch).similarity.T.float().cpu()  # P,N
            which = torch.tensor(group.places).expand(len(similarity), -1)
            similarity = similarity.masked_fill(which == projected, -torch.inf)
            if best is not None:
                similarity, which = torch.cat([best.similarity, similarity], 1), torch.cat([best.which, which], 1)
            order = similarity.argsort(dim=1, descending=True, stable=True)[:, :most]  # of equal ones the first
            best = Ranked(similarity.gather(1, order).contiguous(), which.gather(1, order).contiguous())
        progress(group.done, group.total)
    if best is None:
        reason = f"no picture of {data.name} could be read: {skipped[0][1]}" if skipped else f"{data.name} is empty"
        raise BadPicture(reason)
    return best


def _name(network: Network, data: DataSet) -> str:
    """Other weights, another transform or other pictures have another file."""
    names = [sample.name for sample in data.samples]
    facts = json.dumps([hash_of(network.module.state_dict()), repr(network.transform), names])
    return f"{plain(data.name)}-{hashlib.sha256(facts.encode()).hexdigest()[:16]}.safetensors"


def _read(file: Path, prototypes: int, most: int, pictures: int) -> Ranked | None:
    """What a file holds; one that is not there, damaged or too short is made anew."""
    try:
        found = load_file(file)
        similarity, which = found["similarity"], found["which"]
    except (OSError, KeyError, SafetensorError):
        return None
    fits = similarity.shape == which.shape == (prototypes, similarity.shape[-1]) and similarity.shape[-1] >= most
    sound = similarity.dtype == torch.float32 and which.dtype == torch.int64 and not bool(similarity.isnan().any())
    if not fits or not sound or not bool(((which >= 0) & (which < pictures)).all()):
        return None
    return Ranked(similarity, which)
