"""Rows of seeds as one: means, Student's intervals, and changes seed by seed, by hand."""

from pathlib import Path

import pytest

from fovea.basics import BadChoice, write_json
from fovea.measures import seeds


def row(net: str, top1: float, method: str = "cam") -> dict[str, object]:
    return {"net": net, "method": method, "images": 9, "top1": top1, "top5": None, "threshold": 0.2}


def test_a_name_and_its_seed() -> None:
    assert seeds.of("gap-seed12") == ("gap", "12")
    assert seeds.of("gap-seedling") == ("gap-seedling", "")


def test_means_and_intervals() -> None:
    """0.4, 0.5, 0.6: the mean is 0.5, the standard error 0.1 / sqrt 3, Student's factor for two degrees 4.303."""
    (found,) = seeds.together([row(f"gap-seed{i}", value) for i, value in enumerate((0.4, 0.5, 0.6))], ["top1"])
    assert (found["net"], found["seeds"], found["images"], found["top5"]) == ("gap", 3, 9, None)
    assert found["top1"] == pytest.approx(0.5)
    assert found["top1_low"] == pytest.approx(0.5 - 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert found["top1_high"] == pytest.approx(0.5 + 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    assert "threshold_low" not in found
    assert "top1_change" not in found


def test_changes_are_seed_by_seed_beside_the_first_network() -> None:
    rows = [row("gap-seed0", 0.5), row("gap-seed1", 0.7), row("adl-seed1", 0.6), row("adl-seed0", 0.4)]
    first, second = seeds.together(rows, ["top1"])
    assert "top1_change" not in first
    assert second["top1_change"] == pytest.approx(-0.1)
    assert second["top1_change_low"] == pytest.approx(-0.1)  # both seeds lose as much
    assert second["top1_change_high"] == pytest.approx(-0.1)


def test_a_difference_may_be_below_zero() -> None:
    """-0.05 and -0.03: the mean is -0.04, the standard error 0.01, Student's factor for one degree 12.706."""
    rows = [{"net": f"a-seed{i}", "method": "cam", "gain": gain} for i, gain in enumerate((-0.05, -0.03))]
    (found,) = seeds.together(rows, ["gain"], ["gain"])
    assert (found["gain"], found["gain_low"]) == (pytest.approx(-0.04), pytest.approx(-0.04 - 0.12706, abs=1e-5))
    assert found["gain_high"] == pytest.approx(-0.04 + 0.12706, abs=1e-5)


def test_what_is_not_there_has_no_change() -> None:
    rows = [row("gap", 0.5), row("adl", 0.6), {**row("acol", 0.6), "gain": 0.1}]
    found = seeds.together(rows, ["top1", "gain"], ["gain"])
    assert [one.get("top1_change") for one in found] == [None, pytest.approx(0.1), pytest.approx(0.1)]
    assert not any("gain_change" in one for one in found)


def test_other_seeds_have_a_change_without_an_interval() -> None:
    rows = [row("gap-seed0", 0.5), row("adl-seed1", 0.6), row("adl-seed2", 0.8)]
    _, second = seeds.together(rows, ["top1"])
    assert second["top1_change"] == pytest.approx(0.2)
    assert "top1_change_low" not in second


def test_methods_are_kept_apart() -> None:
    rows = [row("gap", 0.5), row("gap", 0.9, "l2caf"), row("adl", 0.6), row("adl", 0.8, "l2caf"), row("adl", 0.1, "x")]
    found = {(one["net"], one["method"]): one.get("top1_change") for one in seeds.together(rows, ["top1"])}
    assert found["adl", "cam"] == pytest.approx(0.1)
    assert found["adl", "l2caf"] == pytest.approx(-0.1)
    assert found["adl", "x"] is None  # the first network was not measured so


def test_results_of_seeds_are_one_result(tmp_path: Path) -> None:
    for seed, top1 in enumerate((0.4, 0.5, 0.6)):
        rows = [{**row(f"reader-seed{seed}", top1), "loss_low": top1 / 10}]
        written = {
            "what": "patches",
            "settings": {"net": f"reader-seed{seed}", "seed": 3},
            "rows": rows,
            "command": "c",
        }
        write_json(tmp_path / f"patches-a-seed{seed}.json", written)
    write_json(tmp_path / "patches-a-seedling.json", {"what": "patches", "settings": {}, "rows": [row("other", 0.1)]})
    assert seeds.results(tmp_path) == ["patches-a", "patches-a-seedling"]
    found = seeds.result(tmp_path, "patches-a")
    assert (found.settings, found.command) == ({"net": "reader", "seed": 3}, "c")
    (mean,) = found.rows
    assert (mean["net"], mean["method"], mean["images"], mean["top5"], mean["seeds"]) == ("reader", "cam", 9, None, 3)
    assert mean["top1"] == pytest.approx(0.5)
    assert mean["loss_low"] == pytest.approx(0.05)
    assert seeds.result(tmp_path, "patches-a-seedling").rows == [row("other", 0.1)]
    with pytest.raises(BadChoice, match="no result"):
        seeds.result(tmp_path, "patches-b")
    write_json(tmp_path / "patches-a-seed3.json", {"what": "patches", "settings": {}, "rows": []})
    with pytest.raises(BadChoice, match="different rows"):
        seeds.result(tmp_path, "patches-a")
    write_json(tmp_path / "patches-a.json", {"what": "patches", "settings": {}, "rows": []})
    with pytest.raises(BadChoice, match="stands beside"):
        seeds.result(tmp_path, "patches-a")


def test_seeds_may_come_to_other_verdicts(tmp_path: Path) -> None:
    for seed, (change, attention) in enumerate(((-0.3, "narrows"), (-0.1, "does not change"))):
        row = {"method": "gradcam", "change": change, "attention": attention, "verdict": "as good"}
        write_json(tmp_path / f"a-seed{seed}.json", {"what": "finer", "settings": {}, "rows": [row]})
    (mean,) = seeds.result(tmp_path, "a").rows
    assert mean == {
        "method": "gradcam", "change": pytest.approx(-0.2), "attention": None, "verdict": "as good", "seeds": 2
    }  # fmt: skip


def test_what_a_seed_has_not_is_no_mean(tmp_path: Path) -> None:
    for seed, loss in enumerate((0.7, 0.8, None)):
        rows = [{"top1": 0.5, "loss": loss, "paired": True}]
        write_json(tmp_path / f"a-seed{seed}.json", {"what": "patches", "settings": {}, "rows": rows})
    assert seeds.result(tmp_path, "a").rows == [{"top1": 0.5, "loss": None, "paired": True, "seeds": 3}]
    write_json(tmp_path / "b-seed0.json", {"what": "w", "settings": {}, "rows": [{"scale": "63"}, {"scale": "95"}]})
    write_json(tmp_path / "b-seed1.json", {"what": "w", "settings": {}, "rows": [{"scale": "95"}, {"scale": "63"}]})
    with pytest.raises(BadChoice, match="different rows"):
        seeds.result(tmp_path, "b")
