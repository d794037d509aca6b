import pytest

import fovea
from checks import refused
from fovea.measures.families import WAYS, Timed, draw, family
from fovea.measures.figures import Figures
from fovea.measures.registry import find


def test_seconds_of_any_number_of_iterations() -> None:
    timed = Timed(first=0.5, each=0.1)
    assert timed.of(1) == 0.5
    assert timed.of(100) == pytest.approx(0.5 + 99 * 0.1)


@pytest.fixture(scope="module")
def found() -> Figures:
    return fovea.measure("bench families", ["timm/test_resnet", "timm/test_convnext"], rounds=1)


def test_vanilla_and_fast_take_as_many_iterations_and_only_gap_is_exact(found: Figures) -> None:
    ways = {
        net: [row["method"] for row in found.rows if row["net"] == net]
        for net in ("timm/test_resnet", "timm/test_convnext")
    }
    assert ways["timm/test_resnet"] == [way for way in WAYS if way != "iterated l2caf"]
    assert ways["timm/test_convnext"] == [way for way in WAYS if way != "exact l2caf"]  # a norm after the pooling
    for net in ways:
        own = {row["method"]: row for row in found.rows if row["net"] == net}
        vanilla, fast = own["vanilla l2caf"], own["fast l2caf"]
        assert vanilla["iterations"] == fast["iterations"] > 50  # the rule looks back that far
        assert vanilla["note"] == f"timed 10 of {vanilla['iterations']} iterations"
        assert fast["seconds_100"] < vanilla["seconds_100"]
        assert own["gradcam"]["iterations"] is None
        assert own["gradcam"]["seconds"] == own["gradcam"]["seconds_100"] < fast["seconds"]


def test_the_figure_has_a_bar_a_way_and_a_log_axis(found: Figures) -> None:
    (panel,) = draw(found).axes
    assert panel.get_yscale() == "log"
    assert [one.get_text().partition("\n")[0] for one in panel.get_xticklabels()] == ["test_resnet", "test_convnext"]
    assert len(panel.patches) == len(found.rows)


def test_the_names_of_the_paper() -> None:
    assert [family(name) for name in find("bench families").usual["net"]] == [
        "vgg16", "vgg16, gap", "googlenet", "resnet50", "densenet161", "efficientnet_lite0",
        "convnext_tiny", "swin_tiny_patch4_window7_224", "vit_small_patch16_224",
    ]  # fmt: skip


def test_progress_and_no_rounds() -> None:
    seen: list[tuple[int, int]] = []
    fovea.measure("bench families", "timm/test_resnet", rounds=1, progress=lambda *now: seen.append(now))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    refused("rounds is 1 to", fovea.measure, "bench families", rounds=0)
