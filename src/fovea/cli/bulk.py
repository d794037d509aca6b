"""--engine ray, --parquet: a verb on any number of pictures, its rows and maps as Parquet."""

import re
from typing import TYPE_CHECKING, Any

from fovea.basics import LOCAL, BadChoice
from fovea.cli.commands import Asked
from fovea.cli.common import bar, say, tell_note, tell_skipped
from fovea.cli.glossary import spelled

if TYPE_CHECKING:
    from fovea.basics import Engine
    from fovea.networks import Network

ENGINE = ("engine", "address", "workers")
BULK = (*ENGINE, "parquet", "fresh")
SHORT = re.compile(r"^([a-z][a-z0-9+.-]+:)/(?!/)")  # of an address that was taken for a path


def is_bulk(asked: Asked) -> bool:
    """Whether it was asked for; what goes with it alone is refused elsewhere."""
    demand_ray(asked)
    found = asked.engine == "ray" or asked.parquet
    if not found and "fresh" in asked.typed:
        raise BadChoice("--fresh is for --parquet and --engine ray; other results are never replaced: leave it out")
    if found and asked.values.get("server") is not None:
        raise BadChoice("a service answers one picture at a time: --parquet and --engine do not go with --server")
    return bool(found)


def demand_ray(asked: Asked) -> None:
    if asked.engine != "ray" and (typed := asked.typed & {"address", "workers"}):
        raise BadChoice(f"{spelled(sorted(typed)[0])} is for a Ray cluster: add --engine ray")


def engine_of(asked: Asked) -> "Engine":
    """Of a command whose results stay what they are, whoever does the work."""
    from fovea.jobs import Cluster

    demand_ray(asked)
    return Cluster(asked.address, asked.workers, asked.device) if asked.engine == "ray" else LOCAL


def in_bulk(asked: Asked, verb: str, network: "Network", **words: Any) -> None:
    """The verb, and what a command says last."""
    for name in ("json", "full_size", "frames", "every", "truth"):
        if name in asked.typed and not (name == "full_size" and not asked.full_size):
            raise BadChoice(f"{spelled(name)} does not go with Parquet, whose rows hold every result: leave one out")
    out = SHORT.sub(r"\1//", str(asked.out).removeprefix("file:")) if "out" in asked.typed else f"out/{verb}-parquet"
    how = {name: asked.values[name] for name in ("engine", "address", "workers", "fresh", "max_pixels")}
    how |= {name: asked.values[name] for name in ("batch", "fit", "device") if name in asked.typed}
    how |= {"files": bool(asked.values.get("files")), "called": asked.one("net") or ""}
    with bar(f"{verb}, {asked.engine} engine") as advance:
        from fovea.jobs import bulk

        given = list(asked.values.get("pictures") or asked.values.get("given") or ())
        done = bulk(network, given, out, verb=verb, progress=advance, **how, **words)
    tell_skipped(done.skipped, f", listed in {out}")
    tell_note(done.settings, ())
    before = f", {done.already:,} of them before" if done.already else ""
    say.print(f"{done.what}: {done.pictures:,} done{before}, {len(done.skipped):,} skipped")
    say.print(out)
