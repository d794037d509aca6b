"""One step of every registered loss, several heads, and what is said to the author of a loss."""

import math
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import fovea
from fovea.models.twostream import Views
from fovea.pictures import Prepare
from fovea.training.losses import chosen, loss
from fovea.training.step import Step, hits
from made_recipes import SMALLNET, TEN_T, recipe

TARGET = torch.tensor([0, 0, 1, 1])
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {  # of losses that are not for any network
    "acol": ("acol/smallnet", {"widths": [8, 8], "side": 32}),
    "gain": (
        "tnet-classifier/timm/resnet10t",
        {**TEN_T, "base": 32, "grid": 2, "side": 64, "levels": 2, "glimpses": 2, "while_training": 4},
    ),
    "prototypes": ("protopnet/timm/resnet10t", {**TEN_T, "width": 4, "prototypes": 2}),
    "reinforce": ("tnet/resnet10t", {**TEN_T, "base": 32, "grid": 2, "side": 64, "glimpses": 2}),
    "sorted_locations": ("saccader", {"width": 0.125, "locations": 2, "stage": "locations", "side": 93}),
    "two_streams": (
        "twostream/timm/resnet10t",
        {**TEN_T, "side": 40, "size": 32, "patch": 32, "hidden": 8, "steps": 2},
    ),
}


class Waiting(TorchDispatchMode):
    """Refuses what a GPU has to be waited for: a value that is looked at, and tensors as long as their values say."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        masks = (
            [one for one in args[1] if one is not None and one.dtype == torch.bool]
            if "index.Tensor" in str(func)
            else []
        )
        assert str(func) not in ("aten._local_scalar_dense.default", "aten.nonzero.default")
        assert not masks
        return func(*args, **(kwargs or {}))


def network_for(name: str) -> fovea.Network:
    torch.manual_seed(0)
    kind, options = NETWORKS.get(name, ("embedding/smallnet", {**SMALLNET["options"], "dimensions": 4}))  # type: ignore[dict-item]
    classes = None if kind.startswith("embedding") else 3
    return fovea.load(kind, pretrained=False, classes=classes, options=options)


@pytest.mark.parametrize("name", list(loss))
def test_every_loss_trains_a_step(name: str) -> None:
    """One number, and slopes that are numbers for all that is trained; a GPU would not be waited for."""
    network = network_for(name)
    step = Step(network, chosen({"name": name})).train()
    side = network.transform.size[0]  # type: ignore[union-attr]
    inputs: Any = torch.randn(4, 3, side, side)
    if name == "two_streams":
        inputs = Views(inputs, torch.tensor([[[0.1, 0.1, 0.7, 0.7]]]).expand(4, 1, 4))
    with Waiting():
        value, logits = step(inputs, TARGET)
        value.backward()
    assert value.shape == ()
    slopes = [one.grad for one in step.parameters() if one.grad is not None]
    assert slopes
    assert all(bool(one.isfinite().all()) for one in slopes)
    assert any(bool(one.any()) for one in slopes)
    assert 0 <= float(hits(chosen({"name": name}), logits, TARGET)) <= 1


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_loss_of_one_kind_of_network_says_which(name: str, pooled: nn.Module) -> None:
    such_as = loss.entry(name).traits["such_as"]
    with pytest.raises(
        fovea.BadChoice, match=f"the loss '{name}' reads .* gives a Tensor .* network.name is {such_as}"
    ):
        Step(fovea.wrap(pooled, labels=5), chosen({"name": name}))(torch.randn(4, 3, 24, 24), TARGET)


def test_a_step_trains_the_network_and_not_the_teacher(
    pooled: nn.Module, stacked: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = Prepare((24, 24))
    monkeypatch.setattr("fovea.training.losses.cross_entropy.load", lambda name: fovea.wrap(stacked, prepare, 5))
    step = Step(fovea.wrap(pooled, prepare, 5), chosen({"distil": {"teacher": "given"}}))
    value, logits = step(torch.randn(4, 3, 24, 24), torch.tensor([0, 1, 2, 3]))
    value.backward()
    assert logits.shape == (4, 5)
    assert {name.partition(".")[0] for name, _ in step.named_parameters()} == {"module"}
    assert all(p.grad is not None for p in pooled.parameters())
    assert all(p.grad is None for p in stacked.parameters())


class TwoHeaded(nn.Module):
    """Logits x and, as a second group, 2x: what is trained is told by `heads`."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> "Both":
        return Both(x * self.scale)


@dataclass(frozen=True)
class Both:
    logits: Tensor

    def heads(self) -> dict[str, tuple[Tensor, ...]]:
        return {"plain": (self.logits,), "double": (2 * self.logits, 2 * self.logits)}


def test_every_head_counts_with_its_groups_weight() -> None:
    network = fovea.wrap(TwoHeaded(), labels=2, output=lambda out: out.logits)
    x, target = torch.tensor([[0.0, math.log(3)]]), torch.tensor([1])
    plain, double = math.log(4 / 3), math.log(10 / 9)
    for weights, expected in (
        ({}, plain + 2 * double),
        ({"double": 0.25}, plain + 0.5 * double),
        ({"double": 0.0}, plain),
    ):
        value, logits = Step(network, chosen({"weights": weights}))(x, target)
        assert float(value) == pytest.approx(expected, abs=1e-6)
        assert torch.equal(logits, x)
    with pytest.raises(fovea.BadChoice, match="no output 'dubble'; did you mean 'double'"):
        Step(network, chosen({"weights": {"dubble": 1.0}}))(x, target)


def test_a_batch_is_right_where_the_nearest_is_of_the_same_class() -> None:
    angles = torch.tensor([0.0, 10, 12, 90]) * math.pi / 180
    embeddings, labels = torch.stack([angles.cos(), angles.sin()], 1), torch.tensor([0, 0, 1, 1])
    assert float(hits(chosen({"name": "triplet"}), embeddings, labels)) == pytest.approx(2 / 4)  # those at 0° and 90°
    assert float(hits(chosen({}), torch.eye(4), torch.tensor([0, 1, 2, 0]))) == pytest.approx(3 / 4)


MINE = '''
from torch import Tensor
from torch.nn import functional as F
from fovea.training.losses import Loss, loss

@loss("focal-{n}", about="easy pictures count less")
class Focal(Loss):
    """Lin et al. 2017."""
    gamma: float = 2.0

    def __call__(self, logits: Tensor, target: Tensor) -> Tensor:
        entropy = F.cross_entropy(logits, target, reduction="none")
        return ((1 - (-entropy).exp()) ** self.gamma * entropy).mean()

def hinge(logits, target, margin: float = 1.0):
    return F.multi_margin_loss(logits, target, margin=margin)

def vector(logits, target):
    return F.cross_entropy(logits, target, reduction="none")

def hard(logits, target):
    return (logits.argmax(1) != target).float().mean()

def plain(logits, target):
    return 1.0

def single(logits): ...

class Other: ...

class Silent(Loss):
    gamma: float = 2.0

@loss("odd-{n}", reads="pixels")
def odd(logits, target): ...
'''


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stranger's file, outside the package; its module's name."""
    name = f"mine_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(MINE.replace("{n}", name))
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


def test_a_loss_of_ones_own(mine: str, pooled: nn.Module) -> None:
    logits, target = torch.tensor([[0.0, math.log(3)]]), torch.tensor([1])
    declared = recipe(network=SMALLNET, data={"train": "x"}, loss={"name": f"{mine}:focal-{mine}", "gamma": 1.0}).loss
    assert declared.name == f"{mine}:focal-{mine}"
    assert float(loss.get(declared.name)(gamma=1.0)(logits, target)) == pytest.approx(-0.25 * math.log(0.75))
    value, _ = Step(fovea.wrap(pooled, labels=5), declared)(torch.randn(4, 3, 24, 24), TARGET)
    assert value.shape == ()
    by_hand = max(0, 0.5 + 0 - math.log(3)) / 2
    assert float(loss.get(f"{mine}:hinge")(margin=0.5)(logits, target)) == pytest.approx(by_hand)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("vector", r"gives \(4,\) numbers: a loss is one number per batch, so take their mean\(\) or sum\(\)"),
        ("hard", r"has no gradient: .* argmax\(\)"),
        ("plain", "gives a float: a loss is a tensor of one number"),
        ("single", r"takes 1 argument\(s\): a loss is a function of \(logits, target\)"),
        ("Other", r"is the class Other: a loss is a function of \(logits, target\), or a class that derives"),
        ("Silent", r"has no __call__\(self, logits, target\)"),
        ("odd", "reads logits or embedding or output; got 'pixels'"),
        ("hingee", "did you mean 'hinge'"),
    ],
)
def test_a_loss_that_is_none_is_refused_in_words(name: str, words: str, mine: str, pooled: nn.Module) -> None:
    with pytest.raises(fovea.BadChoice, match=words):
        Step(fovea.wrap(pooled, labels=5), chosen({"name": f"{mine}:{name}"}))(torch.randn(4, 3, 24, 24), TARGET)


def test_settings_of_ones_own_loss_are_checked(mine: str) -> None:
    with pytest.raises(ValueError, match="has no setting 'gama'; did you mean 'gamma'"):
        chosen({"name": f"{mine}:focal-{mine}", "gama": 1.0})
    with pytest.raises(ValueError, match=r"margin\n.*valid number"):
        chosen({"name": f"{mine}:hinge", "margin": "wide"})


def test_settings_are_read_without_torch_and_are_those_of_the_class() -> None:
    code = """
import sys
from fovea.training.losses import loss, settings_of
def fields(kind):
    return [(name, str(one.annotation).split('.')[-1], one.default) for name, one in kind.model_fields.items()]
read = {name: fields(settings_of(name)) for name in loss}
assert 'torch' not in sys.modules
for name in loss: assert read[name] == fields(loss.get(name)), name
print(len(read))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "9\n"), done.stderr
