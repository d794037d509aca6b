"""Training by several processes that torchrun starts once for many short runs: starting them takes longer than all of
the steps. `together(…)` is for tests; this file is also what the processes run."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from torch import nn

from fovea.data.samples import Member
from fovea.training.log import read
from fovea.training.loop import Running, running
from fovea.training.recipe import check
from fovea.training.shards import local
from fovea.training.together import part_ways
from made_recipes import HEAD

Facts = dict[str, Any]


def together(processes: int, folder: Path, *runs: Facts, agents: int = 1) -> list[list[Facts]]:
    """What every process says of each run: a recipe, its `out`, and where to `stop`. Agents stand for machines."""
    asked = folder / f"asked-{processes}-{agents}.json"
    asked.write_text(json.dumps(runs), encoding="utf-8")
    words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(processes // agents)]
    words += ["--standalone"] if agents == 1 else ["--nnodes", str(agents), "--rdzv-backend", "c10d", "--rdzv-id", "a"]
    words += [] if agents == 1 else ["--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    started = [
        subprocess.Popen([*words, __file__, str(asked)], stderr=subprocess.PIPE, text=True, env=env)
        for _ in range(agents)
    ]
    said = [process.communicate(timeout=240)[1] for process in started]
    assert all(process.returncode == 0 for process in started), "\n".join(said)[-4000:]
    facts = [[json.loads(_facts(run, rank).read_text()) for rank in range(processes)] for run in runs]
    return facts


def free_port() -> int:
    import socket

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def losses(out: str | Path) -> list[float]:
    return [row["loss"] for row in read(Path(out)) if "loss" in row]


def _facts(run: Facts, rank: int) -> Path:
    out = Path(run["out"])
    return out.parent / f"{out.name}-{run.get('stop', 'end')}-{rank}.json"


def _held(module: nn.Module) -> int:
    return sum(local(weight.detach()).numel() for weight in module.parameters())


def _one(run: Facts, reads: list[str]) -> Running:
    reads.clear()
    recipe = check(HEAD | run["recipe"])
    with running(recipe, run["out"], resume=run.get("resume", False), device="cpu") as loop:
        opened = sorted(reads)
        reads.clear()
        whole = sum(weight.numel() for weight in loop.stepper.parameters())
        facts: Facts = {"rank": loop.fabric.global_rank, "opened": opened, "weights": whole}
        loop.go(run.get("stop", loop.order.steps) - loop.done)
        facts |= {"reads": sorted(reads), "held": _held(loop.stepper)}
        if "stop" not in run:
            trained = loop.finish()
            facts |= {"score": trained.score, "hash": trained.hash}
        _facts(run, loop.fabric.global_rank).write_text(json.dumps(facts))
        return loop


if __name__ == "__main__":
    names, plain = list[str](), Member.read

    def noted(member: Member) -> Any:
        names.append(member.name)
        return plain(member)

    Member.read = noted  # type: ignore[method-assign]
    done = [_one(run, names) for run in json.loads(Path(sys.argv[1]).read_text())]
    part_ways(done[-1].fabric)
