"""Every command: its options are the glossary's, with one type and one default, and its help needs no torch."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from fovea.basics import ANY, BOUNDS, BadChoice
from fovea.cli import app
from fovea.cli.commands import PANELS, Asked, Command, command
from fovea.cli.glossary import OPTIONS, spelled
from fovea.measures.registry import find
from fovea.pictures.fits import FIT

SPELLED = {spelled(name): (name, option) for name, option in OPTIONS.items()}


def walk(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in group.list_commands(None):
        found = group.get_command(None, name)
        if hasattr(found, "list_commands"):
            yield from walk(found, (*path, name))
        else:
            yield (*path, name), found


COMMANDS = {" ".join(path): found for path, found in walk(typer.main.get_command(app))}


@pytest.mark.parametrize("name", COMMANDS)
def test_options_are_the_glossarys(name: str) -> None:
    made = COMMANDS[name]
    assert isinstance(made, Command)
    assert made.help
    for parameter in made.params:
        assert getattr(parameter, "help", None), parameter.name
        if parameter.param_type_name != "option" or parameter.name == "help":
            continue
        _, option = SPELLED[parameter.opts[0]]
        assert parameter.multiple == option.many
        assert parameter.default is None, f"{parameter.opts[0]}: the usual value belongs to the declaration"
        assert parameter.is_flag == (option.type is bool)
        plain = str if option.type in ANY else option.type  # numbers are read by their bounds
        assert kind(parameter) == (list[str] if option.many else Literal[option.choices] if option.choices else plain)
        assert option.type not in ANY or parameter.name in BOUNDS


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_that_it_takes(name: str) -> None:
    assert COMMANDS[name].examples
    for line in COMMANDS[name].examples:
        words, path = shlex.split(line.partition("fovea ")[2]), name.split()
        assert words[: len(path)] == path
        COMMANDS[name].make_context(name, words[len(path) :])  # which refuses what it does not know


def test_every_command_stands_in_one_panel() -> None:
    placed = [name for names in PANELS.values() for name in names]
    assert sorted(placed) == sorted({name.split()[0] for name in COMMANDS})


@pytest.mark.parametrize("columns", ["80", "120"])
@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_helps_fit_the_terminal(name: str, columns: str) -> None:
    done = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": columns})
    above, _, examples = done.output.partition("\nExamples:\n")
    assert max(map(len, above.splitlines())) <= int(columns)
    assert "<" not in above, "a Python type, which says nothing to a user"
    assert not name or examples.strip()


def declares(name: str) -> set[str]:
    return {spelling for parameter in COMMANDS[name].params for spelling in parameter.opts}


def test_whatever_runs_a_network_takes_a_device() -> None:
    without = {name for name in COMMANDS if "--device" not in declares(name)}
    assert without == {"models", "methods", "results", "pyramid", "bench lip", "export"}  # which run none, or trace one


def test_pictures_are_fitted_as_asked_and_alike() -> None:
    """Search takes them as the index tells; a zoom and two streams have windows of their own."""
    verbs = {name for name in COMMANDS if " " not in name and "pictures" in declares(name) | {"pictures"}}
    taking = {"audit", "explain", "localize", "look", "sanity", "patches", "predict", "prototypes", "index", "export"}
    assert {name for name in verbs if "--fit" in declares(name)} == taking
    measures = [name.split()[1] for name in COMMANDS if name.startswith("measure ")]
    assert {name for name in measures if find(name).fit} == {
        name for name in measures if "--fit" in declares(f"measure {name}")
    }


@pytest.mark.parametrize("device", ["gpu", "cuda:x", "auto:1", "cpu:"])
def test_a_device_is_spelled_as_torch_spells_it(device: str) -> None:
    done = CliRunner().invoke(app, ["predict", "cat.jpg", "--device", device])
    assert isinstance(done.exception, BadChoice)
    assert f"--device: a device is auto, cpu, cuda, mps, xpu, or a numbered one, as cuda:1; got '{device}'" in str(
        done.exception
    )


def test_help_of_every_command_needs_no_torch() -> None:
    code = (
        "import sys, contextlib, io, fovea.cli\n"
        f"for words in {sorted(COMMANDS)}:\n"
        "    for wrong in ([], ['--wrong']):\n"
        "        sys.argv = ['fovea', *words.split(), *wrong, '--help'][: None if not wrong else -1]\n"
        "        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:\n"
        "            fovea.cli.main()\n"
        "        assert wrong or 'Usage: fovea ' + words in out.getvalue(), words\n"
        "        assert 'torch' not in sys.modules, words\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.count("No such option: --wrong") == len(COMMANDS)


def kind(parameter: Any) -> Any:
    """The type that an option is read as."""
    return parameter.type_descriptor.annotation


def run(app: typer.Typer, *words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, words)
    return done.exit_code, done.output + (str(done.exception) if isinstance(done.exception, BadChoice) else "")


@pytest.fixture
def own() -> tuple[typer.Typer, list[Asked]]:
    """An app with one command, and what it was asked."""
    app, seen = typer.Typer(), list[Asked]()

    @command(
        "look",
        arguments=("pictures?",),
        options=("net", "method", "glimpses", "batch", "fit", "untrained", "time", "class_", "json"),
        usual={"net": ("tnet-digits",), "batch": 32},
        help={"method": "Of maps."},
        app=app,
    )
    def look(asked: Asked) -> None:
        """Look."""
        seen.append(asked)

    return app, seen


def test_what_is_left_out_is_as_usual(own: tuple[typer.Typer, list[Asked]]) -> None:
    app, seen = own
    assert run(app)[0] == 0
    (asked,) = seen
    assert (asked.one("net"), asked.batch, asked.fit, asked.untrained, asked.time) == (
        "tnet-digits",
        32,
        FIT,
        False,
        True,
    )
    assert (asked.pictures, asked.method, asked.typed, asked.fit_asked) == (None, None, frozenset(), None)


def test_lists_are_repeated_or_separated_by_commas(
    own: tuple[typer.Typer, list[Asked]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, seen = own
    monkeypatch.chdir(tmp_path)
    Path("a.jpg").touch()
    words = "a.jpg b.jpg --method cam,gradcam --method l2caf --glimpses 0,2 --class a,b --no-time --untrained"
    assert run(app, *words.split())[0] == 0
    (asked,) = seen
    assert asked.pictures == ("a.jpg", "b.jpg")
    assert asked.method == ("cam", "gradcam", "l2caf")
    assert asked.glimpses == (0, 2)
    assert asked.class_ == ("a,b",)
    assert (asked.time, asked.untrained) == (False, True)
    assert asked.typed == {"pictures", "method", "glimpses", "class_", "time", "untrained"}
    with pytest.raises(BadChoice, match="--method takes one value here, and 3 are given"):
        asked.one("method")


def test_old_spellings_warn(own: tuple[typer.Typer, list[Asked]], capsys: pytest.CaptureFixture[str]) -> None:
    app, seen = own
    assert run(app, "--methods", "cam,l2caf", "--squash", "--locations=3")[0] == 0
    (asked,) = seen
    assert (asked.method, asked.fit, asked.glimpses) == (("cam", "l2caf"), "squash", (3,))


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--glimpses", "1,x"], "--glimpses takes a whole number; got 'x'"),
        (["--glimpses=-1"], "--glimpses is 0 to 1,000; got -1"),
        (["--batch", "0"], "batch"),
        (["--fit", "wide"], "crop"),
        (["--json", "/"], "/ is a folder; name a file"),
        (["--pictures", "3"], "pictures"),
    ],
)
def test_what_is_wrong_is_told(own: tuple[typer.Typer, list[Asked]], words: list[str], told: str) -> None:
    app, seen = own
    status, said = run(app, *words)
    assert status != 0
    assert told in said
    assert not seen


def test_out_is_a_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(BadChoice, match="is a file; name a folder"):
        Asked({"out": file}, frozenset()).folder()
    assert Asked({"out": tmp_path}, frozenset()).folder() == tmp_path
