import pytest
import torch
from torch import nn

import fovea
from fovea.training.optimizers import optimizer_of, parameter_groups, set_rates, share
from fovea.training.recipe import GroupPart, OptimizerPart, SchedulePart


@pytest.fixture
def module() -> nn.Module:
    return nn.ModuleDict({"trunk": nn.Conv2d(1, 2, 3), "norm": nn.BatchNorm2d(2), "head": nn.Linear(2, 3)})


def test_cosine_with_warm_up() -> None:
    part = SchedulePart(name="cosine", warmup=2, floor=0.1)
    assert [share(part, epoch, 10) for epoch in (0, 1, 2)] == [0, 0.5, 1]
    assert share(part, 6, 10) == pytest.approx(0.55)
    assert share(part, 10, 10) == pytest.approx(0.1)


def test_steps_and_constant() -> None:
    part = SchedulePart(name="step", at=[3, 6], factor=0.1)
    assert [share(part, epoch, 9) for epoch in (0, 2.9, 3, 6)] == [1, 1, 0.1, pytest.approx(0.01)]
    assert share(SchedulePart(name="constant"), 5, 9) == 1


def test_groups_have_their_own_rates_and_norms_do_not_decay(module: nn.Module) -> None:
    part = OptimizerPart(lr=0.1, weight_decay=0.01, groups=[GroupPart(match="head.*", lr=1.0)])
    groups = parameter_groups(part, module)
    found = {(group["lr"], group["weight_decay"]): sum(p.numel() for p in group["params"]) for group in groups}
    assert found == {(0.1, 0.01): 18, (0.1, 0.0): 2 + 4, (1.0, 0.01): 6, (1.0, 0.0): 3}
    optimizer = optimizer_of(part, module)
    set_rates(optimizer, 0.5)
    assert sorted({group["lr"] for group in optimizer.param_groups}) == [0.05, 0.5]


def test_frozen_parameters(module: nn.Module) -> None:
    parameter_groups(OptimizerPart(groups=[GroupPart(match="trunk.*", lr=0)]), module)
    assert not any(p.requires_grad for p in module["trunk"].parameters())  # type: ignore[index]
    with pytest.raises(fovea.BadChoice, match="every parameter is frozen"):
        parameter_groups(OptimizerPart(groups=[GroupPart(match="*", lr=0)]), module)


def test_a_pattern_that_matches_nothing(module: nn.Module) -> None:
    with pytest.raises(fovea.BadChoice, match=r"no parameter is called 'heads\.\*'; did you mean 'head'"):
        parameter_groups(OptimizerPart(groups=[GroupPart(match="heads.*")]), module)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw", "adadelta", "rmsprop"])
def test_every_optimizer_steps(name: str, module: nn.Module) -> None:
    optimizer = optimizer_of(OptimizerPart(name=name, lr=0.1), module)  # type: ignore[arg-type]
    before = module["head"].weight.clone()  # type: ignore[index]
    module["head"](torch.ones(1, 2)).square().sum().backward()  # type: ignore[index]
    optimizer.step()
    assert not torch.equal(before, module["head"].weight)  # type: ignore[index]


def test_an_option_of_another_optimizer(module: nn.Module) -> None:
    with pytest.raises(fovea.BadChoice, match="adamw takes no momentum"):
        optimizer_of(OptimizerPart(name="adamw", momentum=0.9), module)
