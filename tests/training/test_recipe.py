import re
from pathlib import Path

import pytest

import fovea
from fovea.training.recipe import Recipe, check, read

ROOT = Path(__file__).parents[2]
SMALL = {
    "about": "a test",
    "command": "fovea train it.toml",
    "epochs": 1,
    "network": {"name": "smallnet"},
    "data": {"train": "megapixel"},
}


def said(**changes: object) -> str:
    with pytest.raises(fovea.BadChoice) as error:
        check(SMALL | changes)
    return str(error.value)


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_recipes_that_come_with_fovea(path: Path) -> None:
    found = read(path)
    assert f"recipes/{path.name}" in found.command
    run = not path.read_text().startswith("# Not run")
    assert (bool(found.expected), found.took is not None) == (run, run), "a recipe states its score and its time"


@pytest.mark.parametrize("path", sorted((ROOT / "recipes").glob("*.toml")), ids=lambda path: path.stem)
def test_it_starts_from_where_another_recipe_ends(path: Path) -> None:
    """`fovea train recipes/NAME.toml` writes out/train/NAME, and with --name what its comments say."""
    found = read(path)
    starts = [str(found.network.weights), *re.findall(r'teacher = "(.*?)"', path.read_text())]
    for start in [start for start in starts if start.startswith("out/")]:
        folder, name, file = re.fullmatch(r"(.*)/(.+)/(.+)", start).groups()  # type: ignore[union-attr]
        assert (folder, file) == ("out/train", "weights.safetensors")
        assert (ROOT / f"recipes/{name}.toml").is_file() or f"--name {name} " in path.read_text()


def test_a_recipe_of_ones_own_needs_epochs_network_and_data_alone(tmp_path: Path) -> None:
    mine = tmp_path / "mybirds.toml"
    mine.write_text('epochs = 3\n[network]\nname = "smallnet"\n[data]\ntrain = "birds"\n')
    found = read(mine)
    assert (found.about, found.command, found.took, found.expected) == ("", None, None, {})
    assert found.source == "mybirds.toml"  # not where it lies


def test_a_name_is_part_of_a_files_name() -> None:
    assert check(SMALL | {"name": "mybirds-2"}).name == "mybirds-2"
    assert "letters, digits, - and _, such as 'my_birds'; got '../my birds'" in said(name="../my birds")


def test_the_best_epoch_is_chosen_by_validation_data() -> None:
    assert "give data.validation" in said(best=True)


def test_a_typo_names_the_nearest_key() -> None:
    assert "no key 'epoch'; did you mean 'epochs'" in said(epoch=3)
    assert "no key 'optimizer.momentm'; did you mean 'momentum'" in said(optimizer={"momentm": 0.9})
    assert "no key 'optimizer.groups.0.mtch'; did you mean 'match'" in said(optimizer={"groups": [{"mtch": "a*"}]})
    assert "no key 'loss.distil.temprature'; did you mean 'temperature'" in said(
        loss={"distil": {"teacher": "x", "temprature": 2.0}}
    )


def test_a_wrong_type_says_what_was_expected() -> None:
    assert "batch should be a valid integer; got 'many'" in said(batch="many")
    assert "optimizer.lr should be a valid number; got 'fast'" in said(optimizer={"lr": "fast"})
    assert "batch should be greater than or equal to 1; got 0" in said(batch=0)
    wrong = said(optimizer={"name": "sdg"})
    assert "optimizer.name should be 'sgd', 'adam'" in wrong
    assert "did you mean 'sgd'" in wrong
    assert "area is [least, most]" in said(augment={"area": [0.9, 0.1]})
    assert "at belongs to the schedule 'step'; this one is 'cosine'" in said(schedule={"at": [3.0]})
    assert "step needs at" in said(schedule={"name": "step"})
    assert "data.test should have at least 1 character" in said(data={"train": "x", "test": ""})
    assert "data.hold should be 'auto', True or False; got 'maybe'" in said(data={"train": "x", "hold": "maybe"})


def test_what_is_missing_is_named() -> None:
    with pytest.raises(fovea.BadChoice, match="network is missing"):
        check({key: value for key, value in SMALL.items() if key != "network"})


def test_changes(tmp_path: Path) -> None:
    path = tmp_path / "it.toml"
    path.write_text(
        'about = "a"\ncommand = "b"\nepochs = 2\n[network]\nname = "smallnet"\n[data]\ntrain = "megapixel"\n'
    )
    found = read(path, ["optimizer.lr=0.05", "optimizer.name=adamw", "augment.area=[0.5, 1.0]", "epochs=3", "seed=7"])
    assert isinstance(found, Recipe)
    assert (found.optimizer.lr, found.optimizer.name, found.epochs, found.seed) == (0.05, "adamw", 3, 7)
    assert found.augment.area == [0.5, 1.0]
    for change, words in (("epochs", "key=value"), ("epochs.more=1", "no keys of its own"), ("sed=1", "mean 'seed'")):
        with pytest.raises(fovea.BadChoice, match=words):
            read(path, [change])


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "digits.toml").write_text("epochs = = 3")
    with pytest.raises(fovea.BadChoice, match="not TOML"):
        read(tmp_path / "digits.toml")
    with pytest.raises(fovea.BadChoice, match=r"no recipe .*; did you mean 'digits.toml'"):
        read(tmp_path / "digit.toml")


DEEP = ".".join("a" * 3000)


@pytest.mark.parametrize(
    "text",
    [
        "a = " + "[" * 100_000, f"network.options.{DEEP} = 1", f"data.side.{DEEP} = 1", f"{DEEP} = 1",
        "epochs = " + "9" * 10_000, "network.options.x = 2020-01-01", "network.options.x = 0x" + "f" * 5000,
        "\n".join(f"key{i} = {i}" for i in range(10_000)), "optimizer.groups.x.y = 5", "loss = [1]", "took = [5]",
        'about = "\\u001b[31m"\n"\\u001b[31m" = 1', "augment.hide_sizes = [1e999]", "\0", "#" * 1_100_000,
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_whatever_a_file_holds_there_is_one_short_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(fovea.BadChoice) as said:
        read(path)
    assert len(str(said.value)) < 2000
    assert str(said.value).isprintable()


@pytest.mark.parametrize(
    "change",
    ["epochs=" + "[" * 100_000, "epochs=" + "9" * 10_000, f"network.options.{DEEP}=1", "epochs=1\nseed=5", ".=1"],
)
def test_a_change_is_one_value_whatever_it_holds(change: str) -> None:
    with pytest.raises(fovea.BadChoice) as said:
        read(ROOT / "recipes/digits.toml", [change])
    assert len(str(said.value)) < 2000
