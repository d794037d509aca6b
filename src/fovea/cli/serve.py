"""fovea serve."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import quote

from fovea.basics import BadChoice, processors
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, warn

if TYPE_CHECKING:
    from fovea.serve import Scale, ServeOptions
    from fovea.serve.cluster import Replicas

NEEDS = "fovea serve needs packages that are not installed: pip install 'fovea[serve]'"
NEEDS_RAY = "--engine ray needs packages that are not installed: pip install 'fovea[serve,cluster]'"
TOKEN = "FOVEA_TOKEN"


@command(
    "serve",
    options=(
        "net", "index", "host", "port", "token", "allow_host", "allow_origin", "max_bytes", "max_pixels", "timeout",
        "queue", "batch", "device", "engine", "address", "replicas",
    ),
    usual={"net": (), "index": None, "max_pixels": 100_000_000},
    help={
        "net": "Networks that may be asked, the first of them by default; all that come with fovea if none is named.",
        "index": "What 'fovea index' made, to search.",
        "token": f"Whoever asks must send it, as 'Authorization: Bearer TOKEN'; also taken from ${TOKEN}.",
        "batch": "Pictures that go through the network together.",
    },
    epilog="Examples:  fovea serve  |  fovea serve --net efficientnet_lite0 --port 8080  |  "
    "fovea serve --host 0.0.0.0 --allow-host pictures.example --token SECRET  |  "
    "fovea serve --engine ray --replicas 1-4",
)  # fmt: skip
def serve(asked: Asked) -> None:
    """Serve a page to look through, and a service to call, on this machine: open the address that is printed."""
    by_ray = asked.engine == "ray"
    if unused := [name for name in ("address", "replicas") if name in asked.typed and not by_ray]:
        raise BadChoice(f"--{unused[0]} is of a Ray cluster: add --engine ray")
    with bar("starting"):
        try:
            from fovea.serve import keep_flat

            keep_flat()
            from fovea.serve import Limits, Scale, ServeOptions, application, demand_token, listening_at, loaded
            from fovea.serve import serve as run
        except ImportError as error:
            raise _missing(error, NEEDS) from None
    limits = Limits(asked.max_bytes, asked.max_pixels, asked.timeout, asked.queue, asked.batch)
    options = ServeOptions(
        asked.net or (), asked.index, asked.host, asked.port, asked.token or os.environ.get(TOKEN) or None,
        asked.allow_host or (), asked.allow_origin or (), asked.device, limits,
    )  # fmt: skip
    demand_token(options)
    scale = Scale.of(asked.replicas, gpus=float(asked.device.startswith("cuda")))
    if not options.local and options.token is None:
        warn.print(f"note: {options.host} may be reached by others, and there is no --token: whoever can, may ask")
    listening_at(options).close()  # refused before anything is started
    with ExitStack() as stack:
        elsewhere = stack.enter_context(_replicas(options, scale, asked.address)) if by_ray else None
        device = "cpu" if by_ray else options.device  # they are asked here only what they can do
        with bar("loading networks") as advance:
            index = None
            if options.index is not None:
                from fovea.retrieval import open_index

                index = open_index(options.index, device=device)
            networks = loaded(replace(options, device=device), index, advance)
        app = application(options, networks, index, elsewhere)

        def ready(address: str) -> None:
            token = f"#token={quote(options.token, safe='')}" if options.token else ""
            say.print(f"fovea is at {address}/{token}  (Ctrl+C stops it)")

        run(app, options, ready)


@contextmanager
def _replicas(options: "ServeOptions", scale: "Scale", address: str | None) -> "Iterator[Replicas]":
    """On the cluster, until the service has ended."""
    with bar("starting replicas on the cluster"):
        from fovea.serve import before_ray

        before_ray(address)
        try:
            from fovea.serve import deployed
        except ImportError as error:
            raise _missing(error, NEEDS_RAY) from None
        stack = ExitStack()
        found = stack.enter_context(deployed(options, scale if address else scale.sharing(processors()), address))
    with stack:
        yield found


def _missing(error: ImportError, words: str) -> Exception:
    return error if (error.name or "").partition(".")[0] == "fovea" else BadChoice(words)
