"""Training by several processes, timed."""

from pathlib import Path

import pytest

from checks import refused
from fovea.measures.runner import measure
from made_recipes import small, written

pytest.importorskip("sklearn")


def test_several_processes_are_compared_with_one(tmp_path: Path) -> None:
    recipe = str(written(tmp_path, small()))
    refused("compared with one: --processes 1,2,4", measure, "bench train", recipe=[recipe], processes=[2, 4])


@pytest.mark.slow
def test_one_and_two_processes(tmp_path: Path) -> None:
    """Each has a batch of its own, and the network's 1,042 weights are averaged at every step."""
    recipe = str(written(tmp_path, small() | {"log_every": 5}))
    figures = measure("bench train", recipe=[recipe], processes=[1, 2], batch=4, steps=2, rounds=1, device="cpu")
    one, two = figures.rows
    assert [(row["processes"], row["batch"], row["device"]) for row in (one, two)] == [(1, 4, "cpu"), (2, 8, "cpu")]
    assert one["x_one"] == 1.0
    assert two["x_one"] == pytest.approx(two["images_per_second"] / one["images_per_second"], rel=1e-2)
    assert two["gradient_mb"] == one["gradient_mb"] > 0
