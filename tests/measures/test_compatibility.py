from pathlib import Path

import pytest

import fovea
from fovea.heatmaps.methods import names
from fovea.measures import figures
from fovea.measures.registry import find

METHODS = names()  # now, before other tests register methods of their own
RESULT = Path(__file__).parents[2] / "results/compatibility.json"
QUICK = ("torchvision/resnet18", "torchvision/shufflenet_v2_x1_0", "timm/vit_tiny_patch16_224")


def test_a_cell_says_how_a_method_fares_and_the_end_why_some_do_not() -> None:
    cnn, vit = fovea.measure("compatibility", ["timm/test_resnet", "timm/test_vit"]).rows
    assert {row["l2caf"] for row in (cnn,)} == {"exact"}
    assert (vit["l2caf"], vit["cam"], vit["rollout"]) == ("iterated", "refused", "works")
    assert (cnn["rollout"], cnn["scorecam"], cnn["deeplift"]) == ("refused", "works", "works")
    assert "rollout, rollout-gradient: attention is rolled out" in cnn["why"]
    assert all(name in cnn for name in METHODS)


def test_the_table_of_the_docs_is_of_forty_networks_and_more_and_of_all_methods() -> None:
    rows = figures.read(RESULT).rows
    assert [row["net"] for row in rows] == list(find("compatibility").usual["net"])
    assert len(rows) >= 40
    for row in rows:
        assert {row[name] for name in METHODS} <= {"works", "exact", "iterated", "refused"}
        assert bool(row["why"]) == ("refused" in [row[name] for name in METHODS])


@pytest.mark.parametrize(
    "net", [*QUICK, *(pytest.param(net, marks=pytest.mark.slow) for net in find("compatibility").usual["net"])]
)
def test_what_the_table_says_is_so(net: str) -> None:
    (row,) = fovea.measure("compatibility", [net]).rows
    told = next(row for row in figures.read(RESULT).rows if row["net"] == net)
    assert {key: row[key] for key in told} == told
