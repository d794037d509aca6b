from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from made_maps import Known
from torch import Tensor, nn

import fovea
from checks import left_as_found, refused
from conftest import Through
from fovea.basics import DoesNotApply, Listener, listening
from fovea.data import Box, DataSet, Pixels, Sample
from fovea.heatmaps import Aim, Finding, Look, find, usual
from fovea.measures import trust
from fovea.measures.figures import Figures
from fovea.measures.trust_maps import Part
from fovea.measures.trust_rules import Measured, advise, compare
from fovea.networks import Network
from fovea.pictures import Prepare

COUNT = 12


class Square(nn.Module):
    """The class is decided by one square, rows 4 to 11 and columns 8 to 15 of 24 x 24, through weights to randomize."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.AvgPool2d(2)
        self.last = nn.Linear(16, 2)
        with torch.no_grad():
            self.last.weight.copy_(torch.tensor([[-1.0], [1.0]]).expand(2, 16) + 0.01 * torch.arange(16))
            self.last.bias.copy_(torch.tensor([8.0, -8.0]))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.last(self.cells(x)[:, 0, 2:6, 4:8].flatten(1))
        return logits


@dataclass(frozen=True)
class Refusing:
    name: str = "refusing"

    def __call__(self, look: Look, aim: Aim) -> Finding:
        raise DoesNotApply("not for this head")


@dataclass(frozen=True)
class Blind:
    name: str = "blind"
    oblivious: bool = True

    def __call__(self, look: Look, aim: Aim) -> Finding:
        return find("gradcam").run(look, Aim(aim.names, lambda output: output[:, 1]))


def squares(boxes: tuple[Box, ...] = ((8, 4, 16, 12),), count: int = COUNT) -> DataSet:
    """Noise with a bright square, the same place in every picture."""
    generator, samples = np.random.default_rng(0), []
    for i in range(count):
        pixels = generator.integers(0, 90, (24, 24, 3), dtype=np.uint8)
        pixels[4:12, 8:16] = 255
        samples.append(Sample(f"{i}.png", 1, Pixels(pixels), boxes))
    return DataSet("squares", tuple(samples), ("no", "yes"))


def network(labels: tuple[str, ...] | None = ("no", "yes")) -> Network:
    return fovea.wrap(Square().eval(), Prepare((24, 24), (0.0,) * 3, (1.0,) * 3, None), labels, layer="cells")


def measured(net: Network, data: DataSet, method: Sequence[Any] | None, **more: Any) -> Figures:
    return fovea.measure("trust", net, data, method=method, **more)


@pytest.fixture(scope="module")
def found() -> Figures:
    return measured(
        network(), squares(), ["l2caf", "gradcam", Refusing(), Known("fixed", 1.0, 0.01)], curve_pictures=COUNT, steps=6
    )


def rows(found: Figures) -> dict[str, dict[str, object]]:
    return {str(row["method"]): dict(row) for row in found.rows}


def test_a_row_a_method_the_control_last_and_who_refuses_is_told(found: Figures) -> None:
    assert [row["method"] for row in found.rows] == ["l2caf", "gradcam", "fixed", "random"]
    assert found.details["refused"] == {"refusing": "not for this head"}
    assert {row["images"] for row in found.rows} == {row["curve_images"] for row in found.rows} == {COUNT}
    for row in found.rows:
        for what in ("gt_known", "insertion", "deletion"):
            assert row[f"{what}_low"] <= row[what] <= row[f"{what}_high"]


def test_a_map_that_is_not_about_the_network_is_left_out_however_well_it_localizes(found: Figures) -> None:
    fixed, control = rows(found)["fixed"], rows(found)["random"]
    assert (fixed["gt_known"], fixed["sanity_all"]) == (1, pytest.approx(1))
    assert str(fixed["verdict"]).startswith("do not use: its maps still resemble those of random weights")
    assert any(one.startswith("Do not use ") and "fixed" in one for one in found.details["recommendation"])
    assert control["verdict"] == "the control"
    assert abs(float(str(control["sanity_all"]))) < 0.2


def test_the_recommended_map_finds_the_square_and_changes_with_the_weights(found: Figures) -> None:
    best, control = rows(found)[found.details["recommended"]], rows(found)["random"]
    assert best["method"] in ("l2caf", "gradcam")
    assert best["verdict"] == "recommended"
    assert best["insertion"] > control["insertion"]
    assert best["deletion"] < control["deletion"]
    assert found.details["recommendation"][0].startswith(f"Use {' or '.join(found.details['level'])}: localization ")


def test_a_method_that_ignores_the_class_is_known_by_what_it_declares() -> None:
    """It looks at the square, as Grad-CAM does, and at random weights at something else."""
    found = measured(network(), squares(), ["gradcam", Blind()], curve_pictures=4, steps=4)
    assert "the same for every class" in str(rows(found)["blind"]["verdict"])
    assert found.details["recommended"] == "gradcam"


def test_every_method_is_measured_if_none_is_named() -> None:
    found = measured(network(), squares(), None, curve_pictures=2, steps=2)
    assert found.details["refused"].keys() == {"rollout", "rollout-gradient"}  # it has no attention
    assert [row["method"] for row in found.rows] == [*(name for name in usual() if "rollout" not in name), "random"]
    assert all(row["verdict"] for row in found.rows)


def test_maps_on_other_grids_are_measured_beside_each_other() -> None:
    found = measured(network(), squares(), ["gradcam", "input-x-gradient", "rise:masks=9"], curve_pictures=2, steps=2)
    assert [row["method"] for row in found.rows] == ["gradcam", "input-x-gradient", "rise:masks=9", "random"]
    assert [row["same_as"] for row in found.rows] == [None] * 4


def test_data_without_boxes_is_measured_by_the_rest() -> None:
    seen: list[tuple[int, int]] = []
    found = measured(
        network(), squares(()), ["gradcam"], curve_pictures=4, steps=4, progress=lambda *now: seen.append(now)
    )
    assert found.settings["localisation"] == "no boxes"
    assert all(row["gt_known"] is None and row["threshold"] is None for row in found.rows)
    assert found.rows[0]["insertion"] > found.rows[1]["insertion"]
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A flat folder of six pictures."""
    for sample in squares((), 6).samples:
        sample.read().save(tmp_path / sample.name)
    return tmp_path


@pytest.mark.parametrize("pattern", ["", "*.png"])
def test_a_flat_folder_is_measured_by_the_class_that_is_predicted(photos: Path, pattern: str) -> None:
    found = measured(network(), photos / pattern, ["gradcam"], steps=4)
    assert {row["images"] for row in found.rows} == {6}
    assert found.settings["localisation"] == "no boxes"
    assert rows(found)["gradcam"]["insertion"] > rows(found)["random"]["insertion"]  # type: ignore[operator]
    several = [str(path) for path in sorted(photos.iterdir())[:3]]
    assert {row["images"] for row in measured(network(), several, ["gradcam"], steps=4).rows} == {3}


def test_folders_whose_names_the_network_does_not_know(photos: Path) -> None:
    """Their boxes are measured with maps of the class that is predicted, which is told once."""
    (photos / "mine").mkdir()
    for path in photos.glob("*.png"):
        path.rename(photos / "mine" / path.name)
    (photos / "boxes.csv").write_text("file,boxes\n" + "".join(f"mine/{i}.png,8 4 16 12\n" for i in range(6)))
    found = measured(network(), photos, ["gradcam"], steps=4, batch=2)
    known = "network does not know all classes of"
    assert [known in words for words in found.warnings] == [True]
    assert found.warnings[0].endswith("as 'mine': by the class that the network predicts")
    assert rows(found)["gradcam"]["gt_known"] == measured(network(), squares(count=6), ["gradcam"]).rows[0]["gt_known"]


def test_faithfulness_needs_no_labels(photos: Path) -> None:
    found = fovea.measure("faithfulness", network(), photos, method=["gradcam", "random"], steps=4)
    assert found.settings["labels"] == "none: by the class that the network predicts"
    assert found.rows[0]["insertion"] > found.rows[1]["insertion"]
    with pytest.raises(fovea.BadChoice, match="has no true classes that"):
        fovea.measure("faithfulness", network(), photos, method=["gradcam"], true_class=True)


def test_the_size_is_announced() -> None:
    lines: list[str] = []
    with listening(Listener(lines.append, lambda words: None)):
        measured(network(), squares(), ["gradcam"], curve_pictures=4, steps=4)
    assert lines[0] == (
        "4 pictures x 2 methods x 6 masks = 48 passes; maps of 4 copies with random weights; boxes of 12 pictures"
    )


def test_an_embedding_is_followed_by_its_cosine_and_methods_that_are_one_are_told() -> None:
    found = measured(network(None), squares(), ["l2caf", "l2caf-oblivious", "gradcam"], curve_pictures=4, steps=4)
    same = {row["method"]: row["same_as"] for row in found.rows}
    assert same == {"l2caf": None, "l2caf-oblivious": "l2caf", "gradcam": None, "random": None}
    assert found.settings["followed"] == "cosine to the whole picture's embedding"
    assert all(-1 <= row["insertion"] <= 1 for row in found.rows)


def test_scores_under_masks() -> None:
    """What is hidden is filled, so the embedding of an all-ones picture turns with the share that is shown."""
    turn = Through(lambda x: torch.stack([x.mean((1, 2, 3)), torch.ones(len(x))], 1))
    masks = torch.zeros(2, 3, 4, 4, dtype=torch.bool)
    masks[:, 1, 0], masks[:, 2] = True, True
    whole = torch.ones(2, 3, 4, 4)
    part = Part(whole, [], "output", torch.ones(2, 2), {})
    shown = part.scores(fovea.wrap(turn, labels=2), masks, torch.zeros(()))
    cosines = [(share + 1) / (2 * (share**2 + 1)) ** 0.5 for share in (0, 0.25, 1)]
    assert shown == pytest.approx(np.array([cosines] * 2))


def test_the_network_is_left_as_found() -> None:
    net = network()
    with left_as_found(net.module.train()):
        measured(net, squares(), ["gradcam"], curve_pictures=2, steps=2)


def test_wrong_choices_are_told() -> None:
    refused("no method 'l2ca'; did you mean 'l2caf'", measured, network(), squares(), ["l2ca"])
    refused("each once", measured, network(), squares(), ["cam", "cam"])
    refused("curve_pictures is 2 to", measured, network(), squares(), ["cam"], curve_pictures=1)
    refused("not for this head", measured, network(), squares(), [Refusing()], curve_pictures=2)


def made(method: str, hits: float, insertion: float, deletion: float, **more: float | str | None) -> Measured:
    """100 pictures, harder and easier ones; the differences between methods are the same in all."""
    hard = np.linspace(-0.1, 0.1, 100)
    localized = (np.arange(100) < 100 * hits).astype(np.float64)
    pictures = {"gt_known": localized, "insertion": insertion + hard, "deletion": deletion + hard}
    given = {"sanity_last": 0.0, "sanity_all": 0.0, "x_forward": 1.0, **more}
    return Measured(method, pictures, **given)


CONTROL = made("random", 0.3, 0.2, 0.3)


def advised(*methods: Measured) -> tuple[str | None, dict[str, str], str]:
    found = [*methods, CONTROL]
    advice = advise(found, compare(found))
    return advice.recommended, dict(advice.verdicts), str(advice)


def test_pairs_are_resampled_together() -> None:
    """Pictures differ by 0.2 and the methods by 0.02 in each: alone their intervals overlap, together they do not."""
    compared = compare([made("a", 0.6, 0.40, 0.1), made("b", 0.6, 0.42, 0.1), CONTROL])
    a, b = (compared.alone["insertion", name] for name in "ab")
    assert a.high > b.low
    difference = compared.against["insertion", "b", "a"]
    assert (difference.mean, difference.low, difference.high) == pytest.approx((0.02, 0.02, 0.02))
    assert difference.better
    assert compared.against["insertion", "a", "b"].worse
    lower = compared.against["deletion", "a", "random"]  # a lower deletion is a better one
    assert lower.better
    assert lower.mean == pytest.approx(0.2)


def test_the_better_one_is_recommended_even_if_it_is_slow() -> None:
    name, verdicts, text = advised(made("a", 0.6, 0.40, 0.1), made("b", 0.6, 0.42, 0.1, x_forward=9.0))
    assert name == "b"
    assert verdicts["a"] == "worse insertion"
    assert "better than a's 0.400" in text
    assert "Behind it: a (insertion -0.020 (-0.020 to -0.020))." in text
    assert text.endswith("Random maps reach localization 0.300, insertion 0.200, deletion 0.300.")


def test_ties_are_settled_by_speed_and_told_as_ties_where_they_are_not() -> None:
    slow, quick = made("a", 0.6, 0.4, 0.1, x_forward=3.0), made("b", 0.6, 0.4, 0.1, x_forward=1.1)
    name, verdicts, text = advised(slow, quick)
    assert (name, verdicts["a"]) == ("b", "as good, slower")
    assert "a (3.00 x) is level with it on every measure, and slower." in text
    name, verdicts, text = advised(made("a", 0.6, 0.4, 0.1), quick)
    assert (name, verdicts["b"]) == ("a", "as good: either will do")
    assert text.startswith("Use a or b: localization ")
    assert "a (1.00 x) and b (1.10 x) are level on every measure, in sanity and in time: either will do." in text


def test_the_order_in_which_methods_are_named_decides_nothing() -> None:
    given = [
        made("b", 0.6, 0.4, 0.1),
        made("gradcam", 0.6, 0.4, 0.1, x_forward=1.05),
        made("l2caf", 0.6, 0.4, 0.1, x_forward=1.2),
        made("c", 0.6, 0.4, 0.1, x_forward=4.0),
        made("d", 0.6, 0.4, 0.1, sanity_last=0.7),
    ]
    compared, other = compare([*given, CONTROL]), compare([CONTROL, *reversed(given)])
    assert (compared.alone, compared.against) == (other.alone, other.against)
    found = [advise([*order, CONTROL], compared) for order in permutations(given)]
    assert {advice.recommended for advice in found} == {"l2caf"}  # the default, of those that are level
    assert {advice.level for advice in found} == {("b", "gradcam", "l2caf")}
    assert len({advice.sentences[1:4] for advice in found}) == 1
    text = str(found[0])
    assert text.startswith("Use b or gradcam or l2caf: ")
    assert "c (4.00 x) is level with it on every measure, and slower." in text
    assert "d (1.00 x) is level with it on every measure, but its maps change less with the weights." in text


def test_equals_are_told_apart_by_whether_they_are_about_the_class() -> None:
    vague, sharp = made("a", 0.6, 0.4, 0.1, sanity_last=0.6), made("b", 0.6, 0.4, 0.1, x_forward=3.0)
    name, _, text = advised(vague, sharp)
    assert name == "b"
    assert "a (1.00 x) is level with it on every measure, but its maps change less with the weights." in text
    assert "Still alike with a random last layer, and so about more than the class: a (0.60)." in text
    found = [vague, sharp, CONTROL]
    embedding = advise(found, compare(found), of_classes=False)
    assert embedding.recommended == "a"
    assert "last layer" not in str(embedding)


def test_a_certain_difference_that_is_worth_nothing_is_a_tie() -> None:
    name, verdicts, _ = advised(made("a", 0.6, 0.400, 0.1), made("b", 0.6, 0.405, 0.1))
    assert (name, verdicts["b"]) == ("a", "as good: either will do")


def test_one_that_wins_here_and_loses_there_is_told() -> None:
    """b is ahead in insertion only, a in localization and deletion."""
    name, verdicts, text = advised(made("a", 0.8, 0.40, 0.10), made("b", 0.5, 0.45, 0.15))
    assert (name, verdicts["b"]) == ("a", "better insertion; worse localization, deletion")
    assert "b has the better insertion +0.050 (+0.050 to +0.050), but the worse localization -0.300" in text
    assert "deletion +0.050 (+0.050 to +0.050)." in text  # a higher deletion is the worse one
    assert "behind b's 0.450" in text


@pytest.mark.parametrize(
    ("vague", "reason"),
    [
        (made("b", 0.9, 0.9, 0.0, oblivious=True), "its maps are the same for every class"),
        (made("b", 0.9, 0.9, 0.0, sanity_last=0.9), "leaves its maps nearly as they are (rank correlation 0.90)"),
    ],
)
def test_maps_of_no_class_are_not_recommended_for_a_classifier(vague: Measured, reason: str) -> None:
    """However good they are; an embedding has no class that they could miss."""
    name, verdicts, text = advised(vague, made("a", 0.6, 0.4, 0.1))
    assert name == "a"
    assert verdicts["b"].startswith("do not use: ")
    assert reason in verdicts["b"]
    assert reason in text
    found = [vague, made("a", 0.6, 0.4, 0.1), CONTROL]
    assert advise(found, compare(found), of_classes=False).recommended == "b"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (
            made("b", 0.9, 0.9, 0.0, sanity_all=0.9),
            "its maps still resemble those of random weights (rank correlation 0.90)",
        ),
        (made("b", 0.1, 0.9, 0.0), "it is worse than random maps: localization -0.200"),
        (made("b", 0.9, 0.2, 0.3), "the answer hangs on its pixels no more than on random ones: insertion +0.000"),
    ],
)
def test_what_is_left_out(bad: Measured, reason: str) -> None:
    name, verdicts, text = advised(bad, made("a", 0.6, 0.4, 0.1))
    assert name == "a"
    assert reason in verdicts["b"]
    assert "Do not use b: " in text
    name, _, text = advised(bad)
    assert name is None
    assert text.startswith("None of these maps can be trusted")


def test_the_same_maps_are_no_rivals() -> None:
    name, verdicts, text = advised(made("a", 0.6, 0.4, 0.1), made("b", 0.6, 0.4, 0.1, same_as="a"))
    assert (name, verdicts["b"]) == ("a", "the same maps as a")
    assert "b gives the same maps here." in text
    assert "level" not in text
    quicker = made("b", 0.6, 0.4, 0.1, same_as="a", x_forward=0.5)
    name, verdicts, text = advised(made("a", 0.6, 0.4, 0.1), quicker)
    assert (name, verdicts["a"]) == ("b", "the same maps as b")
    assert "a gives the same maps here." in text


def test_the_figure_shows_every_measure_and_the_recommended_method(found: Figures) -> None:
    sheet = trust.draw(found)
    titles = [panel.get_title().partition("\n")[0] for panel in sheet.axes]
    assert titles[:3] == ["localization", "insertion", "deletion"]
    assert len(titles) == len(trust.PANELS)
    bold = [one.get_text() for one in sheet.axes[0].get_yticklabels() if one.get_fontweight() == "bold"]
    assert bold == [found.details["recommended"]]
    without = trust.draw(measured(network(), squares(()), ["gradcam"], curve_pictures=2, steps=2))
    assert len(without.axes) == len(titles) - 1
