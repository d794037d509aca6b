"""fovea serve."""

import os
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from fovea.basics import BadChoice, keep_flat, processors
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, warn

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
        "net": "Networks that can be asked, the first by default; all that come with fovea if none is named.",
        "index": "An index to search, which 'fovea index' made.",
        "token": f"A secret that every request must carry, as 'Authorization: Bearer TOKEN'; also read from ${TOKEN}.",
        "batch": "Pictures that go through a network together.",
    },
    examples=(
        "fovea serve",
        "fovea serve --net efficientnet_lite0 --port 8080",
        "fovea serve --host 0.0.0.0 --allow-host pictures.example --token SECRET",
        "fovea serve --engine ray --replicas 1-4",
    ),
)  # fmt: skip
def serve(asked: Asked) -> None:
    """Start a web page to look through, and a service to call, on this machine: prints the address to open."""
    by_ray = asked.engine == "ray"
    if unused := [name for name in ("address", "replicas") if name in asked.typed and not by_ray]:
        raise BadChoice(f"--{unused[0]} is for a Ray cluster: add --engine ray")
    keep_flat(few_kernels=True)
    with bar("starting"):
        try:
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
        warn.print(f"note: others may reach {options.host}, and without --token whoever does can use the service")
    listening_at(options).close()  # refused before anything is started
    deployed = _by_ray(asked.address) if by_ray else None
    device = "cpu" if by_ray else options.device  # those here only say what they can do
    with bar("loading networks") as advance:
        index = None
        if options.index is not None:
            from fovea.retrieval import open_index

            index = open_index(options.index, device=device)
        networks = loaded(replace(options, device=device), index, advance)
    with ExitStack() as stack:
        elsewhere = None
        if deployed is not None:
            with bar("starting replicas on the cluster"):
                here = scale if asked.address else scale.sharing(processors())
                elsewhere = stack.enter_context(deployed(options, here, asked.address))
        app = application(options, networks, index, elsewhere)

        def ready(address: str) -> None:
            token = f"#token={quote(options.token, safe='')}" if options.token else ""
            say.print(f"fovea is at {address}/{token}  (Ctrl+C stops it)")

        run(app, options, ready)


def _by_ray(address: str | None) -> Any:
    """What puts replicas on a cluster, once Ray is there."""
    from fovea.jobs import before_ray

    before_ray(address)
    try:
        from fovea.serve import deployed
    except ImportError as error:
        raise _missing(error, NEEDS_RAY) from None
    return deployed


def _missing(error: ImportError, words: str) -> Exception:
    return error if (error.name or "").partition(".")[0] == "fovea" else BadChoice(words)
