"""Every measure is taken the same way, a stranger's too; what an author gets wrong is refused in words."""

import json
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from PIL import Image
from torch import nn

import fovea
from checks import refused
from commands import ran
from fovea.cli.glossary import OPTIONS
from fovea.data import open_data
from fovea.measures.figures import Figures, cell, giga, printed
from fovea.measures.registry import Declared, find, measure, titles
from fovea.measures.runner import Given, Run, part_of
from fovea.pictures import Prepare

ROOT = Path(__file__).parents[2]
DEMANDED = {  # keys that others read
    "wsol": ["net", "method", "images", "top1", "top5", "top1_loc", "top5_loc", "gt_known", "max_box_acc",
             "max_box_acc_v2", "threshold"],
    "bench explain": ["library", "method", "net", "batch", "x_forward", "ms_per_picture"],
    "cost": ["net", "params", "macs", "ms_per_picture", "peak_mb"],
    "classify": ["net", "data", "images", "top1", "top5", "low", "high"],
    "retrieval": ["net", "data", "recall_at_1", "nmi"],
}  # fmt: skip
STRANGER = """
    from fovea.measures import Figures, Run, measure

    @measure("share-of-red", title="Redness", about="How red pictures are.", nets="several", fit="squash",
             columns=("net", "red"))
    def share_of_red(run: Run, *, power: float = 1.0, names: tuple = ("red",), batch: int = 4) -> Figures:
        images = [shown.image() for _, inputs in run.inputs(batch) for shown in inputs[0].shown]
        pixels = [image.resize((1, 1)).getpixel((0, 0))[0] for image in images]
        rows = [{"net": net, "red": sum(pixels) / len(pixels) / 255 * power, "hidden": 1} for net in run.networks]
        return run.figures(rows, {"power": power}, notes=[f"of {','.join(names)}"])

    @measure("empty", title="Empty")
    def empty(run: Run) -> Figures:
        return Figures("empty", {}, [])

    @measure("none", title="None")
    def none(run: Run) -> Figures:
        return [1, 2]

    @measure("deep", title="Deep")
    def deep(run: Run) -> Figures:
        return run.figures([{"values": [1, 2]}], {})

    @measure("needy", title="Needy", needs=("boxs",))
    def needy(run: Run) -> Figures: ...

    @measure("wrong-word", titel="Wrong")
    def wrong_word(run: Run) -> Figures: ...

    @measure("positional")
    def positional(run: Run, batch: int = 4) -> Figures: ...

    @measure("without-default")
    def without_default(run: Run, *, batch: int) -> Figures: ...
"""


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a file of somebody's measures, and two red pictures of one class."""
    (tmp_path / "redness.py").write_text(dedent(STRANGER))
    for name in ("a", "b"):
        (tmp_path / "data" / "red").mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8), (255, 0, 0)).save(tmp_path / "data" / "red" / f"{name}.png")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_strangers_measure_in_one_file(stranger: Path) -> None:
    module = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    net = fovea.wrap(module, Prepare((8, 8)))
    found = fovea.measure("redness:share-of-red", net, "data:limit=1", power=0.5)
    assert found.rows == [{"net": "network", "red": 0.5, "hidden": 1}]
    assert found.settings == {"data": "data", "input": "cropped", "power": 0.5, "skipped": 0, "part": "limit=1"}
    line = "measure redness:share-of-red --data data --net timm/test_resnet,timm/test_vit --untrained --power 2"
    done = ran(f"{line} --names red,dark --json red.json")
    assert "Redness, data, squashed" in done.stdout
    assert "hidden" not in done.stdout
    assert "of red,dark" in done.stdout
    written = json.loads(Path("red.json").read_text())
    assert (written["what"], [row["red"] for row in written["rows"]]) == ("share-of-red", [2.0, 2.0])
    assert titles()["share-of-red"] == "Redness"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", "with at least one row; got none"),
        ("none", r"measure 'none' gives Figures \(run.figures\(rows, settings\)\); got list"),
        ("deep", "whose rows are flat: keys with numbers and words; got {'values'"),
        ("needy", "declares needs='boxs'; did you mean 'boxes'"),
        ("wrong-word", "declares 'titel', which means nothing; did you mean 'title'"),
        ("positional", "takes a Run and then keywords alone"),
        ("without-default", "batch needs a default"),
    ],
)
def test_an_authors_mistakes(stranger: Path, name: str, words: str) -> None:
    refused(words, fovea.measure, f"redness:{name}", nn.Linear(1, 1), "data")


def test_what_is_wrong_is_told() -> None:
    refused("no measure 'clasify'; did you mean 'classify'", fovea.measure, "clasify", nn.Linear(1, 1), "data")
    with pytest.raises(fovea.BadChoice, match="'classify' has no option 'sead'; did you mean 'seed'"):
        fovea.measure("classify", nn.Linear(1, 1), "data", sead=1)
    refused("takes one network, and 2 are given", fovea.measure, "classify", ["a", "b"], "data")
    refused("'classify' needs data", fovea.measure, "classify", fovea.wrap(nn.Linear(1, 2), labels=2))


@pytest.mark.parametrize("name", measure)
def test_declarations(name: str) -> None:
    declared = find(name)
    assert declared.title
    assert declared.about
    assert declared.columns or not declared.interval
    unknown = {*declared.options, *declared.roles} - set(OPTIONS)
    assert not unknown, "its options are words of the glossary"
    assert declared == measure.get(name).declared, "what is read off the text is what the file says"


@pytest.mark.parametrize("name", measure)
def test_columns_are_in_the_rows_that_were_written(name: str) -> None:
    files = [json.loads(path.read_text()) for path in (ROOT / "results").glob("*.json")]
    keys = {key for content in files if content["what"] == name for row in content["rows"] for key in row}
    if not keys and name not in DEMANDED:
        pytest.skip("nothing was measured by it yet")
    declared = find(name)
    columns = {*declared.columns, *([declared.interval] if declared.interval else [])}
    unknown = {column for column in columns if not any(fnmatchcase(key, column) for key in keys)}
    known_later = {"loc_apart", "gain_apart", "gt_known_fixed", "gt_known_apart"}  # than what is in results/
    assert unknown <= {"seeds", *known_later}, "which rows of networks called NAME-seed<N> have"
    assert set(DEMANDED.get(name, ())) <= keys


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two pictures of each of two classes that ImageNet has, with boxes, and a file that is none."""
    data = tmp_path_factory.mktemp("pictures") / "data"
    lines = ["file,boxes"]
    for name in ("tabby", "lynx"):
        (data / name).mkdir(parents=True)
        for i in range(2):
            Image.effect_noise((40, 40), 50 + 20 * i).save(data / name / f"{i}.png")
            lines.append(f"{name}/{i}.png,4 4 20 20")
    (data / "lynx" / "bad.png").write_text("no picture")
    (data / "boxes.csv").write_text("\n".join([*lines, "lynx/bad.png,0 0 4 4"]))
    return data


@pytest.mark.parametrize(
    ("words", "seed", "fit", "told"),
    [
        ("classify --batch 2 --out seen/confusion.png", 0, "cropped", "2 classes, 1000 outputs, matched by name"),
        ("wsol --methods gradcam,l2caf", None, "squashed", "threshold: one for the whole set"),
        ("wsol --method cam --crop --limit 3", None, "cropped", "gt_known"),
        ("retrieval --seed 2 --squash", 2, "squashed", "features: pooled"),
        ("retrieval-loc --method gradcam --features output", 0, "squashed", "R@1"),
        (
            "faithfulness --steps 2 --method cam,random --kinds masking --out a.png",
            0,
            "cropped",
            "good maps: insertion and coverage high",
        ),
        ("robustness --batch 2 --seed 3 --attacks fgsm:0.2,noise:5,jpeg:30 --out a.png", 3, "cropped", "unchanged"),
    ],
)
def test_commands(
    words: str, seed: int | None, fit: str, told: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables and notes are printed, what cannot be read is told, figures and pictures are written."""
    monkeypatch.chdir(tmp_path)
    line = f"measure {words} --net timm/test_resnet --untrained --data {folder}:limit=5 --json new/figures.json"
    done = ran(line)
    assert told in done.stdout
    content = json.loads(Path("new/figures.json").read_text())
    limited = "--limit" in words
    assert "bad.png" in done.stderr
    assert (content["what"], content["seed"], content["settings"]["input"]) == (words.split()[0], seed, fit)
    assert content["settings"]["part"] == ("limit=3" if limited else "limit=5")
    assert content["rows"][0]["images"] == (2 if limited else 4)
    assert str(folder) not in json.dumps(content)
    if "--out" in words:
        with Image.open(words.split()[-1]) as drawn:
            assert drawn.width > 300


def test_part() -> None:
    assert part_of(Given(data="cub100:split=test,limit=5", limit=9)) == "limit=5,split=test"
    assert part_of(Given(data="moving:file=/a/b/c.mp4")) == "file=c.mp4"
    assert part_of(Given(data="cub100")) is None


def test_a_network_keeps_its_transform_unless_a_fit_is_asked(lite0: fovea.Network) -> None:
    squashes = Declared("x", {}, fit="squash")
    load: Callable[..., Any] = Run(squashes, Given(untrained=True)).load
    assert load(lite0) is lite0
    assert load("timm/test_resnet").transform.crop is None
    assert Run(squashes, Given(fit="squash")).load(lite0).transform.crop is None
    assert Run(squashes, Given(fit="crop", untrained=True)).load("timm/test_resnet").transform.crop is not None


def test_a_runs_weights_are_called_as_its_folder(tmp_path: Path) -> None:
    file = tmp_path / "net-seed1" / "weights.safetensors"
    fovea.load("timm/test_resnet", pretrained=False).save(file)
    assert list(Run(Declared("x", {}), Given((file,))).networks) == ["net-seed1"]


def test_tables() -> None:
    rows = [{"net": "a", "top1": 0.5, "low": 0.4, "high": 0.6, "recall_at_1": 0.25, "macs": 492_015_256, "none": None}]
    assert printed(rows, ("net", "top1", "recall*", "macs", "none", "missing"), "top1") == [
        {"net": "a", "top1": "0.500 (0.400 to 0.600)", "R@1": 0.25, "macs": "0.492 G"}
    ]
    change = {"loc_change": 0.1, "loc_change_low": -0.1, "loc_change_high": 0.3}
    assert cell(change, "loc_change") == "+0.100 (-0.100 to +0.300)"
    numbers = {25_557_032: "25.56 M", 4_089_184_256: "4.09 G", 1_820_000_000: "1.82 G", 1500: "1.50 k", 999: "999 "}
    assert {number: giga(number) for number in numbers} == numbers


def test_figures_show_tables_alone_or_after_the_columns(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    figures = Figures("x", {}, [{"a": 1.0, "b": 2.0}], tables={"second": [{"c": 3}]})
    figures.show("first", Console())
    assert "first" not in capsys.readouterr().out
    figures.show("first", Console(), ("a",))
    shown = capsys.readouterr().out
    assert "first" in shown
    assert "b" not in shown.split("second")[0]


def test_data_by_object_has_no_split(stranger: Path) -> None:
    with pytest.raises(fovea.BadChoice, match="this set is opened already"):
        fovea.measure("redness:share-of-red", nn.Linear(1, 1), open_data("data"), split="test")
