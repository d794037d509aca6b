"""Which network an index is of: as it loads again, and what its embeddings hang on."""

import re
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from fovea import networks
from fovea.basics import BadChoice, BadNetwork
from fovea.networks import FILES as WEIGHTS
from fovea.networks import OFFLINE, Network, NetworkLike, as_found, as_network, blank, load, ours
from fovea.networks.heads import embedding
from fovea.pictures import Prepare
from fovea.pictures.fits import FITS
from fovea.retrieval.store import About, Identity

TOLD = {"weights": "weights", "transform": "transform", "features": "features", "dimensions": "width of embedding"}


@dataclass(frozen=True)
class Known:
    """A network whose output is the embedding, what tells it apart, and the names that load it (None: no names do)."""

    network: Network
    identity: Identity
    net: str | None
    weights: str | None

    @property
    def name(self) -> str:
        return self.network.name or "the network"

    def taking(self, transform: str) -> "Known":
        """The same network with pictures fitted as an index tells its transform, where one of FITS does that."""
        if self.identity.transform == transform or not isinstance(self.network.transform, Prepare):
            return self
        with suppress(BadChoice):  # of one that takes pictures in its own way only
            fitted = (self.network.fitted(fit).of_one_size() for fit in FITS)
            found = next((network for network in fitted if _told(network) == transform), None)
            if found is not None:
                return replace(self, network=found, identity=self.identity.model_copy(update={"transform": transform}))
        return self


def known(
    net: NetworkLike,
    weights: str | Path | None = None,
    features: str | None = None,
    device: str | None = None,
    fit: str | None = None,
) -> Known:
    by_name = isinstance(net, (str, Path))
    where = networks.device_of(device or "auto") if device is not None or by_name else None
    network = load(net, weights) if isinstance(net, (str, Path)) else as_network(net)
    network, asked = network if where is None else networks.placed(network, where), fit or network.fit
    network = network.fitted(fit)
    if not asked and isinstance(network.transform, Prepare) and network.transform.step:
        network = network.fitted("squash")
    network = network.of_one_size()  # two pictures are compared cell by cell
    own, which = embedding(network, features)
    with as_found(own), torch.no_grad():
        dimensions = own(blank(own)).flatten(1).shape[1]
    digest = networks.hash_of(network.module.state_dict())[:16]
    identity = Identity(weights=digest, transform=_told(network), features=which, dimensions=dimensions)
    if isinstance(net, (str, Path)):
        return Known(own, identity, _place(net), None if weights is None else str(Path(weights).resolve()))
    name = _named(network)
    if (
        name is not None
        and known(name, None, which, str(network.device)).taking(identity.transform).identity != identity
    ):
        name = None  # it was changed since it was loaded
    return Known(own, identity, name, None)


def named_by(about: About, file: Path, device: str | None) -> Known:
    """The network that an index names, if its weights are here: no file says what to import or what to fetch."""
    name, is_file = about.net or "", Path(about.net or "").suffix.lower() in WEIGHTS and Path(about.net or "").is_file()
    if is_file or (":" not in name and (about.weights is not None or name in ours() or name in OFFLINE)):
        return known(name, about.weights, about.identity.features, device)
    which = f"a network of your own ({name})" if ":" in name else f"{name}, whose weights are not here"
    mend = f"open_index({str(file)!r}, net=that_network), or fovea search --net"
    raise BadNetwork(f"{file} was made with {which if name else 'a network of your own'}: {mend}")


def refuse_another(known: Known, about: About, path: Path) -> None:
    """Embeddings of two networks cannot be compared."""
    before, now = about.identity.model_dump(), known.identity.model_dump()
    differing = [f"{told} {before[key]}, not {now[key]}" for key, told in TOLD.items() if before[key] != now[key]]
    if differing:
        raise BadNetwork(
            f"{path} is the index of another network ({about.net or 'one of your own'}) than {known.name}: "
            f"{'; '.join(differing)}. Give that network (open_index(path, net=…)), name another file, or make the "
            "index anew with fresh=True (fovea index … --fresh)"
        )


def _place(net: str | Path) -> str:
    """A file of weights may be named from anywhere."""
    path = Path(net)
    return str(path.resolve()) if path.suffix.lower() in WEIGHTS and path.is_file() else str(net)


def _named(network: Network) -> str | None:
    """The name that a network given as an object was loaded by, if it has one."""
    origin = network.origin
    if origin is None or (network.name not in ours() and (network.name != origin.name or origin.options)):
        return None
    return network.name


def _told(network: Network) -> str:
    if isinstance(network.transform, Prepare):
        parts = {key: value for key, value in asdict(network.transform).items() if key != "step"}  # there is none here
        return ", ".join(f"{key} {value}" for key, value in parts.items())
    return re.sub(r" at 0x[0-9a-f]+", "", repr(network.transform))  # where in memory it is does not matter


def readable(name: str) -> str:
    """A name as it may be shown: some files' are not text."""
    return name.encode(errors="surrogateescape").decode(errors="replace")
