import json
from pathlib import Path

import pytest
import torch

import fovea
from checks import refused
from fovea.measures.text import average, mean_with_interval

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    folder = tmp_path / "reviews"
    folder.mkdir()
    for name, word in (("pos", "fine"), ("neg", "dull")):
        lines = [" ".join(["film"] * (i % 7) + [word] + ["plot"] * (i % 5)) for i in range(20)]
        (folder / f"rt-polarity.{name}").write_text("\n".join(lines))
    rows = torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).tolist()
    lines = [
        f"{word} {' '.join(map(str, row))}" for word, row in zip(("fine", "dull", "film", "plot"), rows, strict=True)
    ]
    (folder / "vectors.txt").write_text("\n".join(lines))
    return folder


def test_the_mean_of_seeds_and_its_interval() -> None:
    middle, low, high = mean_with_interval([1.0, 2.0, 3.0])
    half = 4.3027 / 3**0.5  # the t quantile of two degrees of freedom; the deviation is 1
    assert (middle, low, high) == pytest.approx((2.0, 2 - half, 2 + half), abs=1e-4)
    assert mean_with_interval([0.7]) == (0.7, None, None)


def test_multiplications_by_hand() -> None:
    net = fovea.load("textcnn", classes=2, options={"width": 10, "length": 9})
    # filters of 3, 4, 5 words at 7, 6, 5 places of 9 words, or 3, 2, 1 places of 5; then 300 x 2
    nine, five = (7 * 3 + 6 * 4 + 5 * 5) * 1000 + 600, (3 * 3 + 2 * 4 + 1 * 5) * 1000 + 600
    assert average(net, [9]) == nine
    assert average(net, [9, 5, 5]) == round((nine + 2 * five) / 3)


def test_both_tables(reviews: Path, tmp_path: Path) -> None:
    changes = ["epochs=1", f"data.train={reviews}:split=train", f"data.test={reviews}:split=test", "batch=8"]
    asked = {"seeds": 1, "device": "cpu", "out": tmp_path / "runs", "recipes": RECIPES, "set": changes}
    found = fovea.measure("text", **asked)
    assert [(row["table"], row["net"]) for row in found.rows] == [
        ("4", "CNN"), ("4", "AnchorNet-T"), ("4", "AnchorNet-T + CNN"),
        ("7", "AnchorNet-T baseline"), ("7", "AnchorNet-T + attention"), ("7", "AnchorNet-T + attention + auxiliary"),
    ]  # fmt: skip
    cnn, anchor, both = found.rows[:3]
    assert cnn["macs_ratio"] == cnn["macs_ratio_all"] == 1
    assert both["macs_ratio_all"] == pytest.approx(both["macs_ratio"] + anchor["macs_ratio"])
    assert both["macs_ratio"] < 0.1
    assert sum(both[f"localized_b{window}"] for window in (3, 5, 7)) == both["sentences"] == 4
    assert {"b3", "b5", "b7", "b7_low"} <= set(found.rows[-1])
    card = json.loads((tmp_path / "runs/anchornet_text-mr-spans-0/card.json").read_text())
    assert "seed=0" in card["changes"]
    assert not any("weights" in one for one in card["changes"])  # where they lay is nobody's business
    again = fovea.measure("text", **asked)  # nothing is trained again
    assert again.rows == found.rows
    names = ["anchornet_text-mr", "anchornet_text-mr-paper"]
    beside = fovea.measure("text", **asked | {"recipe": [names[0], f"recipes/{names[1]}.toml"], "ablation": False})
    assert [row["recipe"] for row in beside.rows] == [names[0]] * 4 + [names[1]] * 4
    assert beside.rows[:4] == [*found.rows[:3], found.rows[-1]]
    assert beside.settings["recipes"] == ["textcnn-mr", *names, "textcnn-mr-spans"]
    refused("seeds is 1 to 1,000", fovea.measure, "text", seeds=0)
