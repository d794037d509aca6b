"""Whole runs of a small network on a few canvases: learning, going on after a kill, several processes, going wrong."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torch import nn

import fovea
from fovea.basics import locked
from fovea.data import open_data
from fovea.networks import hash_of, read_weights
from fovea.training import loop, medium
from fovea.training.averaging import Averages, settled
from fovea.training.log import read
from fovea.training.optimizers import set_rates
from fovea.training.recipe import Recipe
from fovea.training.step import Step
from made_recipes import digits, recipe, small, written

pytest.importorskip("sklearn")


def tiny(**changes: Any) -> Recipe:
    return recipe(**small() | {"epochs": 2} | changes)


def run(recipe: Recipe, out: Path, **options: Any) -> loop.Trained:
    return loop.train(recipe, out, "tiny", device="cpu", **options)


def losses(out: Path) -> list[float]:
    return [row["loss"] for row in read(out) if "loss" in row]


def test_training_makes_a_calibration_void(tmp_path: Path) -> None:
    before = fovea.load("smallnet", classes=10, options=small()["network"]["options"])
    before.temperature = 2.0
    before.save(tmp_path / "sure.safetensors")
    done = run(tiny(epochs=1, network={"name": str(tmp_path / "sure.safetensors")}), tmp_path / "run")
    assert fovea.load(tmp_path / "sure.safetensors").temperature == 2
    assert done.network.temperature is fovea.load(done.weights).temperature is None


def test_a_run_leaves_weights_card_log_and_curves(tmp_path: Path) -> None:
    done = run(tiny(ema=0.5), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {
        "card.json", "checkpoint.pt", "curves.png", "log.jsonl", "recipe.json", "started", "weights.safetensors",
    }  # fmt: skip
    card = json.loads(done.card.read_text())
    assert card["score"] == done.score
    assert card["seed"] == 0
    assert card["weights_sha256"] == done.hash
    assert str(tmp_path) not in done.card.read_text()
    net = fovea.load(done.weights)
    assert net.labels == tuple("0123456789")
    batch = torch.randn(2, 3, 32, 32)
    assert torch.equal(net(batch), done.network(batch))


def test_the_card_names_the_recipe_really_used(tmp_path: Path) -> None:
    """And the weights carry the network's name, wherever they are copied."""
    from fovea.training.recipe import read as read_recipe

    path = written(tmp_path, small() | {"epochs": 0.25, "name": "mydigits"})
    done = loop.train(read_recipe(path), tmp_path / "out", device="cpu")
    card = json.loads(done.card.read_text())
    assert (card["name"], card["recipe"]) == ("mydigits", "tiny.toml")
    assert card["labels"] == list("0123456789")
    copied = shutil.copy(done.weights, tmp_path / "copy.safetensors")
    assert fovea.load(done.weights).name == fovea.load(copied).name == "mydigits"


def validated(**changes: Any) -> Recipe:
    data = digits(64, 20)
    return tiny(data={**data, "validation": f"{data['test']},labels=0-4"}, best=True, **changes)


def test_the_epoch_that_does_best_on_validation_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the test data is looked at once, with those weights."""
    shares = iter([0.2, 0.9, 0.9, 0.5, 0.7, 0.6])  # four epochs; then the weights that are kept, and the test
    states: list[str] = []

    def score(self: object, network: object, module: torch.nn.Module, *_: object) -> dict[str, float]:
        states.append(hash_of({key: value.cpu() for key, value in module.state_dict().items()}))
        return {"top1": next(shares)}

    monkeypatch.setattr("fovea.training.scoring.Tested.score", score)
    done = run(validated(epochs=4), tmp_path)
    assert len(states) == 6
    assert done.hash == states[2] == states[4] == states[5]  # of equally good epochs the last
    assert (done.score, json.loads(done.card.read_text())["validation"]) == ({"top1": 0.6}, {"top1": 0.7})
    assert [row["validation_top1"] for row in read(tmp_path) if "validation_top1" in row] == [0.2, 0.9, 0.9, 0.5]


def test_the_best_epoch_outlasts_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(validated(epochs=3), tmp_path / "whole")
    rates, calls = loop.set_rates, iter(range(9))

    def until_killed(*given: Any) -> None:
        next(calls)  # in the third epoch it is killed, by a StopIteration
        rates(*given)

    monkeypatch.setattr("fovea.training.loop.set_rates", until_killed)
    with pytest.raises(StopIteration):
        run(validated(epochs=3, save_every=0), tmp_path / "cut")
    monkeypatch.setattr("fovea.training.loop.set_rates", rates)
    assert run(validated(epochs=3), tmp_path / "cut", resume=True).hash == whole.hash


def test_the_digits_recipe_learns(tmp_path: Path) -> None:
    """The recipe of recipes/digits.toml in a short form: far above chance after a few seconds."""
    from fovea.training.recipe import read as read_recipe

    recipe = read_recipe(
        Path(__file__).parents[2] / "recipes/digits.toml",
        [
            "data.train=megapixel:canvas=48,digit=24,clutter=2,noise=2,count=3000,split=train",
            "data.test=megapixel:canvas=48,digit=24,clutter=2,noise=2,count=200,split=test",
            "data.side=48",
            "network.options={side = 48}",
            "epochs=4",
            "ema=0.9",
            "test_every=4",
        ],
    )
    assert run(recipe, tmp_path).score["top1"] > 0.7


@pytest.mark.parametrize("hold", [True, False])
def test_going_on_ends_with_the_same_weights(hold: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = digits(64, 20) | {"hold": hold, "workers": 0}
    recipe = tiny(ema=0.9, augment={"mixup": 0.2, "cutmix": 1.0, "flip": True}, save_every=0.0, data=data)
    whole = run(recipe, tmp_path / "whole")
    steps: list[float] = []

    def stop(optimizer: torch.optim.Optimizer, by: float) -> None:
        steps.append(by)
        if len(steps) == 4:
            raise KeyboardInterrupt
        set_rates(optimizer, by)

    monkeypatch.setattr("fovea.training.loop.set_rates", stop)
    with pytest.raises(KeyboardInterrupt):
        run(recipe, tmp_path / "cut")
    monkeypatch.undo()
    again = run(recipe, tmp_path / "cut", resume=True)
    assert again.hash == whole.hash
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    assert run(recipe, tmp_path / "cut", resume=True).hash == whole.hash  # nothing left to do


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    run(tiny(epochs=1), tmp_path)
    with pytest.raises(fovea.BadChoice, match="--resume goes on with it"):
        run(tiny(epochs=1), tmp_path)
    with pytest.raises(fovea.BadChoice, match=r"another recipe \(seed, optimizer differ\)"):
        run(tiny(epochs=1, seed=1, optimizer={"lr": 0.1}), tmp_path, resume=True)
    run(tiny(epochs=1, seed=1), tmp_path, fresh=True)
    assert len([row for row in read(tmp_path) if "top1" in row]) == 1


def test_a_fresh_run_killed_at_once_does_not_go_on_with_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tiny(epochs=1), tmp_path)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fovea.training.loop.set_rates", stop)
    with pytest.raises(KeyboardInterrupt):
        run(tiny(epochs=1), tmp_path, fresh=True)
    assert not (tmp_path / "checkpoint.pt").exists()


def test_a_test_set_with_more_classes_is_refused(tmp_path: Path) -> None:
    for part, classes in (("train", "ab"), ("test", "abc")):
        for name in classes:
            (tmp_path / part / name).mkdir(parents=True)
            Image.new("RGB", (32, 32)).save(tmp_path / part / name / "one.png")
    data = {"train": str(tmp_path / "train"), "test": str(tmp_path / "test")}
    with pytest.raises(fovea.BadChoice, match="classes that were not trained: c"):
        run(tiny(data=data, batch=2), tmp_path / "out")
    shutil.rmtree(tmp_path / "test" / "a")
    shutil.rmtree(tmp_path / "test" / "c")
    done = medium.numbered_as(open_data(tmp_path / "test"), ("a", "b"))
    assert [sample.label for sample in done.samples] == [1]  # by name, not by place


def test_data_that_changed_is_not_gone_on_with(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / "data" / name).mkdir(parents=True)
        Image.new("RGB", (32, 32)).save(tmp_path / "data" / name / "one.png")
    recipe = tiny(data={"train": str(tmp_path / "data")}, batch=2)
    run(recipe, tmp_path / "out")
    (tmp_path / "data" / "b").rename(tmp_path / "data" / "c")
    with pytest.raises(fovea.BadChoice, match="the data has changed"):
        run(recipe, tmp_path / "out", resume=True)


def spoil(monkeypatch: pytest.MonkeyPatch, at: int, spoilt: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """The loss of one step, and of no other."""
    forward, calls = Step.forward, []

    def step(self: Step, inputs: torch.Tensor, target: torch.Tensor) -> Any:
        calls.append(1)
        loss, logits = forward(self, inputs, target)
        return (spoilt(loss) if len(calls) == at else loss), logits

    monkeypatch.setattr(Step, "forward", step)


@pytest.mark.parametrize("last", [3, 8])
def test_gradients_that_are_not_finite_are_not_saved(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss is a number, its slope is not."""

    def steep(loss: torch.Tensor) -> torch.Tensor:
        loss.register_hook(lambda slope: slope * float("nan"))
        return loss

    spoil(monkeypatch, last, steep)
    with pytest.raises(fovea.FoveaError, match=f"weights are no longer finite after step {last}"):
        run(tiny(save_every=0.0), tmp_path)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["step"] == last - 1
    assert not (tmp_path / "weights.safetensors").exists()


def test_seeds_make_the_difference(tmp_path: Path) -> None:
    first, same, other = (run(tiny(epochs=1, seed=s), tmp_path / n).hash for s, n in ((0, "a"), (0, "b"), (1, "c")))
    assert first == same != other


def test_accumulation_gives_the_same_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without batch norm, whose statistics are a part's own."""
    monkeypatch.setattr("fovea.models.smallnet.nn.BatchNorm2d", nn.Identity)
    for parts in (1, 4):
        run(tiny(accumulate=parts), tmp_path / str(parts))
    split = losses(tmp_path / "4")
    assert losses(tmp_path / "1") == [pytest.approx(one, abs=1e-5) for one in split]
    with pytest.raises(fovea.BadChoice, match="make it a multiple of 3"):
        run(tiny(accumulate=3), tmp_path / "3")


def test_a_loss_that_is_not_a_number_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoil(monkeypatch, 6, lambda loss: loss * float("nan"))
    with pytest.raises(fovea.FoveaError) as error:
        run(tiny(save_every=0.0), tmp_path)
    said = str(error.value)
    assert "the loss is nan at step 6 (of 8)" in said
    assert "last good checkpoint is" in said
    assert "train/0000" in said  # the batch's pictures
    known = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    assert known["step"] == 5
    assert all(value.isfinite().all() for value in known["stepper"].values())


def test_averages_follow_the_weights() -> None:
    module = nn.Linear(1, 1, bias=False)
    module.weight.data.fill_(1.0)
    averaged = Averages(module, 0.5)
    averaged.update()  # the first is a copy
    module.weight.data.fill_(3.0)
    averaged.update()  # (1 + 1) / (10 + 1) of the old
    assert averaged.module.weight.item() == pytest.approx(3 - 2 * 2 / 11)


def fovea_train(path: Path, out: Path, *more: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "fovea", "train", str(path), "--out", str(out), "--device", "cpu", *more]
    own = os.environ | {"OMP_NUM_THREADS": "1"} | (env or {})
    return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=own)


def weights(out: Path) -> dict[str, torch.Tensor]:
    return read_weights(out / "weights.safetensors")


@pytest.mark.slow
def test_killed_at_five_moments_it_ends_with_the_same_weights(tmp_path: Path) -> None:
    augment = {"area": [0.6, 1.0], "flip": True, "mixup": 0.2}
    path = written(tmp_path, small() | {"epochs": 60, "ema": 0.9, "save_every": 0, "augment": augment})
    first = fovea_train(path, tmp_path / "whole")
    assert first.wait() == 0, first.stdout.read()  # type: ignore[union-attr]
    whole = checkpoint_steps(tmp_path / "whole")
    assert whole == 240
    moments = random.Random(0)
    kills = 0
    while kills < 5:
        process = fovea_train(path, tmp_path / "cut", "--resume")
        before = checkpoint_steps(tmp_path / "cut")
        wait_until(lambda: checkpoint_steps(tmp_path / "cut") > before or process.poll() is not None)  # noqa: B023
        time.sleep(moments.random() * 0.3)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, process.stdout.read()  # type: ignore[union-attr]
        kills += 1
    last = fovea_train(path, tmp_path / "cut", "--resume")
    assert last.wait() == 0, last.stdout.read()  # type: ignore[union-attr]
    ours, theirs = weights(tmp_path / "cut"), weights(tmp_path / "whole")
    assert hash_of(ours) == hash_of(theirs)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")


def checkpoint_steps(out: Path) -> int:
    rows = [row for row in read(out) if "loss" in row]
    return int(rows[-1]["step"]) if rows and (out / "checkpoint.pt").is_file() else 0


def wait_until(true: Any, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def test_a_run_begun_before_a_key_existed_goes_on(tmp_path: Path) -> None:
    recipe = tiny()
    first = loop.train(recipe, tmp_path)
    known = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    older = json.loads(known["recipe"])
    del older["compile"], older["network"]["keep"]
    torch.save(known | {"recipe": json.dumps(older)}, tmp_path / "checkpoint.pt")
    assert loop.train(recipe, tmp_path, resume=True).hash == first.hash
    older["network"]["crop"] = 0.5
    torch.save(known | {"recipe": json.dumps(older)}, tmp_path / "checkpoint.pt")
    with pytest.raises(fovea.BadChoice, match="network differ"):
        loop.train(recipe, tmp_path, resume=True)


def test_a_checkpoint_that_does_not_fit_the_run_is_said(tmp_path: Path) -> None:
    recipe = tiny(epochs=1, ema=0.9)
    run(recipe, tmp_path)
    known = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    moments = known["optimizer"]
    other: dict[str, Any] = {
        "step past the end": {"step": known["step"] + 1},
        "no averages": {"averaged": None},
        "averages of another": {"averaged": {"a": torch.ones(1)}},
        "weights of another": {"stepper": {"module.stem.weight": torch.ones(3)}},
        "no weights": {"stepper": {}},
        "a shape of another": {"stepper": {key: value[:1] for key, value in known["stepper"].items() if value.ndim}},
        "moments of another": {"optimizer": moments | {"state": {0: {"momentum_buffer": torch.ones(3)}}}},
        "moments of nothing": {"optimizer": moments | {"state": {10**6: {"momentum_buffer": torch.ones(3)}}}},
        "a recipe that is none": {"recipe": json.dumps({"data": 5, "loss": 5, "network": []})},
    }
    before = (tmp_path / "weights.safetensors").read_bytes()
    for change in other.values():
        torch.save(known | change, tmp_path / "checkpoint.pt")
        with pytest.raises(fovea.FoveaError, match=r"checkpoint.pt .*--fresh"):
            run(recipe, tmp_path, resume=True)
    assert (tmp_path / "weights.safetensors").read_bytes() == before
    (tmp_path / ".part-0123456789abcdef.pt").write_bytes(b"half")  # of a run that was killed while it wrote
    torch.save(known, tmp_path / "checkpoint.pt")
    run(recipe, tmp_path, resume=True)
    assert not list(tmp_path.glob(".part-*"))


def test_two_runs_into_one_folder_are_refused(tmp_path: Path) -> None:
    with locked(tmp_path), pytest.raises(fovea.FoveaError, match="another process is writing"):
        run(tiny(epochs=1), tmp_path)
    assert not list(tmp_path.iterdir())


def test_settling_takes_the_statistics_of_these_weights() -> None:
    torch.manual_seed(0)
    norms = nn.BatchNorm2d(2), nn.BatchNorm2d(3)
    module = nn.Sequential(nn.Conv2d(1, 2, 1), norms[0], nn.Dropout(0.9), nn.Conv2d(2, 3, 1), norms[1])
    batches = [torch.randn(8, 1, 4, 4) for _ in range(5)]
    module.train()(batches[0])  # statistics that are soon out of date
    settled(module, iter(batches))
    with torch.no_grad():
        means = torch.stack([module[0](one).mean((0, 2, 3)) for one in batches])
    assert norms[0].running_mean is not None
    assert torch.allclose(norms[0].running_mean, means.mean(0), atol=1e-6)
    assert not any(one.training for one in module.modules())
    assert norms[0].momentum == 0.1


def test_settling_counts_every_time_a_norm_runs_and_leaves_frozen_ones() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm, self.frozen = nn.BatchNorm2d(1), nn.BatchNorm2d(1)

        def train(self, mode: bool = True) -> "Twice":
            super().train(mode)
            self.frozen.eval()
            return self

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.frozen(x)
            a: torch.Tensor = self.norm(x)
            b: torch.Tensor = self.norm(x + 3)
            return a + b

    module, x = Twice(), torch.zeros(4, 1, 2, 2)
    settled(module, iter([x, x + 1]))
    assert module.norm.running_mean is not None
    assert float(module.norm.running_mean) == pytest.approx((0 + 3 + 1 + 4) / 4)
    assert module.frozen.running_mean is not None
    assert float(module.frozen.running_mean) == 0
