"""fovea serve."""

import os
from urllib.parse import quote

from fovea.basics import BadChoice
from fovea.cli.commands import Asked, command
from fovea.cli.common import bar, say, warn

NEEDS = "fovea serve needs packages that are not installed: pip install 'fovea[serve]'"
TOKEN = "FOVEA_TOKEN"


@command(
    "serve",
    options=(
        "net", "index", "host", "port", "token", "allow_host", "allow_origin", "max_bytes", "max_pixels", "timeout",
        "queue", "batch", "device",
    ),
    usual={"net": (), "index": None, "max_pixels": 100_000_000},
    help={
        "net": "Networks that may be asked, the first of them by default; all that come with fovea if none is named.",
        "index": "What 'fovea index' made, to search.",
        "token": f"Whoever asks must send it, as 'Authorization: Bearer TOKEN'; also taken from ${TOKEN}.",
        "batch": "Pictures that go through the network together.",
    },
    epilog="Examples:  fovea serve  |  fovea serve --net efficientnet_lite0 --port 8080  |  "
    "fovea serve --host 0.0.0.0 --allow-host pictures.example --token SECRET",
)  # fmt: skip
def serve(asked: Asked) -> None:
    """Serve a page to look through, and a service to call, on this machine: open the address that is printed."""
    with bar("starting"):
        try:
            from fovea.serve import keep_flat

            keep_flat()
            from fovea.serve import Limits, ServeOptions, application, demand_token, loaded
            from fovea.serve import serve as run
        except ImportError as error:
            if (error.name or "").partition(".")[0] == "fovea":
                raise
            raise BadChoice(NEEDS) from None
    limits = Limits(asked.max_bytes, asked.max_pixels, asked.timeout, asked.queue, asked.batch)
    options = ServeOptions(
        asked.net or (), asked.index, asked.host, asked.port, asked.token or os.environ.get(TOKEN) or None,
        asked.allow_host or (), asked.allow_origin or (), asked.device, limits,
    )  # fmt: skip
    demand_token(options)
    if not options.local and options.token is None:
        warn.print(f"note: {options.host} may be reached by others, and there is no --token: whoever can, may ask")
    with bar("loading networks") as advance:
        index = None
        if options.index is not None:
            from fovea.retrieval import open_index

            index = open_index(options.index, device=options.device)
        networks = loaded(options, index, advance)
    app = application(options, networks, index)

    def ready(address: str) -> None:
        token = f"#token={quote(options.token, safe='')}" if options.token else ""
        say.print(f"fovea is at {address}/{token}  (Ctrl+C stops it)")

    run(app, options, ready)
