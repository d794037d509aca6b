"""The end of a run: the weights that are kept, scored as they are in the file, with their card."""

from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from torch import Tensor, nn

from fovea.basics.files import write_json
from fovea.basics.provenance import provenance
from fovea.networks.network import Network
from fovea.networks.weights import borrowed_of, fit_for_half, hash_of
from fovea.training.averaging import settled
from fovea.training.log import Log, plot, read
from fovea.training.prototypes import project
from fovea.training.run import Run, said

WEIGHTS, CARD, CURVES = "weights.safetensors", "card.json", "curves.png"


@dataclass(frozen=True)
class Trained:
    """A finished run. `hash` is of the weights in the file, bit by bit."""

    network: Network
    score: dict[str, float]
    weights: Path
    card: Path
    hash: str
    minutes: float


def finish(run: Run, module: nn.Module, seconds: float) -> Trained:
    recipe, fabric, out, network = run.job.recipe, run.job.fabric, run.job.out, run.network
    if recipe.settle:
        settled(module, (batch.inputs for batch in run.feed.batches(islice(run.order.wanted(0), recipe.settle))))
    state = _stored(module, recipe.half)
    if fabric.world_size > 1 and not recipe.sync_norm:
        state = fabric.broadcast(state)  # each process's norms have their own statistics
    network.module.load_state_dict(state)
    network.module.eval()
    if recipe.project and run.pictures is not None:  # with the weights of the file, of which it must be true
        run.job.show.line(project(network, run.pictures, progress=run.job.show.decoding).line())
        state = _stored(network.module, recipe.half)
        network.module.load_state_dict(state)
    score = run.score(network.module)
    run.report_skipped()
    trained = Trained(network, score, out / WEIGHTS, out / CARD, hash_of(state), round(seconds / 60, 2))
    if fabric.is_global_zero:
        network.save(trained.weights, recipe.half)
        _write(run, trained)
    network.module.to(fabric.device)
    return trained


def _stored(module: nn.Module, half: bool) -> dict[str, Tensor]:
    """Weights as the file has them."""
    state = {key: value.detach().cpu() for key, value in module.state_dict().items()}
    another, ours = borrowed_of(module, state)
    return another | {key: fit_for_half(value) for key, value in ours.items()} if half else state


def _write(run: Run, trained: Trained) -> None:
    """Card, the log's last row, curves."""
    recipe, name, out, steps = run.job.recipe, run.job.name, run.job.out, run.order.steps
    facts = {
        "name": name,
        "about": recipe.about,
        "network": recipe.network.name,
        "classes": len(run.labels),
        "parameters": sum(parameter.numel() for parameter in trained.network.module.parameters()),
        "trained_on": recipe.data.train,
        "tested_on": recipe.data.test,
        "test_pictures": None if run.tested is None else len(run.tested),
        "score": trained.score,
        "changes": list(run.job.changes),
        "minutes": trained.minutes,
        "weights_sha256": trained.hash,
    }
    write_json(trained.card, facts | provenance(recipe.seed, f"recipes/{name}.toml"))
    log, rows = Log(out, steps), read(out)
    if trained.score and not (rows and next(iter(trained.score)) in rows[-1]):  # a finished run may be asked to go on
        log.add(step=steps, epoch=round(run.epoch(steps), 4), **trained.score)
    plot(out, f"{name}: {recipe.about}")
    run.job.show.line("the end: " + said(trained.score))
