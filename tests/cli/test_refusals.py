"""What can be refused is refused before torch is imported: every command, with whatever of this it takes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from commands import all_commands
from fovea.basics import BadChoice
from fovea.cli import app, glossary, refusals

WRONG = {  # an option, what is typed, what is said; exit status 1: nothing could be done, 2: wrong usage
    "--net": ("resnet5000", "no network 'resnet5000'; did you mean 'timm/resnet50'", 2),
    "--localizer": ("anchornet-cub", "did you mean 'anchornet-cub100'", 2),
    "--full": ("timm/resnet5000", "timm has no network 'resnet5000'; did you mean 'resnet50'", 2),
    "--rival": ("torchvision/resnet", "torchvision has no network 'resnet'", 2),
    "--against": ("nothere.safetensors", "no weights file 'nothere.safetensors'", 2),
    "--surrogate": ("no", "no network 'no'", 2),
    "--texture-net": ("no", "no network 'no'", 2),
    "--weights": ("nothere.pth", "no weights file 'nothere.pth'", 2),
    "--data": ("nothere", "no data 'nothere'", 2),
    "--method": ("gradcan", "no method 'gradcan'; did you mean 'gradcam'", 2),
    "--device": ("cuda", "there is no GPU", 2),
    "--source": ("l2cof:efficientnet_lite0", "no patch source 'l2cof'; did you mean 'l2caf'", 2),
    "--target": ("tabyb", "no class 'tabyb' among the network's 1000; did you mean 'tabby'", 2),
    "--index": ("nothere.fovea", "no index 'nothere.fovea'", 2),
    "--picture": ("nothere.png", "no file or folder 'nothere.png'", 1),
    "--fit": ("stretch", "'stretch'", 2),
    "--out": ("/dev/null/x", "--out /dev/null/x cannot be written to", 2),
    "--json": ("/dev/null/x", "--json /dev/null/x cannot be written to", 2),
    "--limit": ("none", "--limit takes a whole number", 2),
}
NEEDED = {"--data": "pictures", "--source": "whole", "--net": "efficientnet_lite0", "--against": "efficientnet_lite0",
          "--localizer": "anchornet-cub100", "--full": "efficientnet_lite0", "--out": "out.safetensors"}  # fmt: skip
ARGUMENTS = {  # each with what is said of it, and the exit status
    **dict.fromkeys(("pictures", "picture", "given"), ("nothere.jpg", "no file or folder 'nothere.jpg'", 1)),
    "recipe": ("nothere.toml", "no recipe 'nothere.toml'", 2),
    "data": ("nothere", "no data 'nothere'", 2),
}
WITHOUT = """
import json, sys
sys.modules["torch"] = None  # to import it raises, and so it does for what needs it
import contextlib, io, time
from fovea.cli import app, refusals
from fovea.cli.ending import run
refusals.GPUS = ()
rows = []
for words in json.load(sys.stdin):
    out, err, start = io.StringIO(), io.StringIO(), time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run(app, words)
    rows.append([status, out.getvalue(), err.getvalue(), time.process_time() - start])
json.dump(rows, sys.stdout)
"""


def cases() -> dict[str, tuple[list[str], str, int]]:
    """Every command with each wrong option that it takes, and all that it needs beside it."""
    found: dict[str, tuple[list[str], str, int]] = {}
    for name, command in all_commands(typer.main.get_command(app)):
        options = {word: parameter for parameter in command.params for word in parameter.opts}
        arguments = [p.name for p in command.params if p.param_type_name == "argument"]
        there = {"pictures": "pictures/a.png", "given": "pictures/a.png", "recipe": "r.toml", "data": "pictures"}
        for argument in arguments:
            if argument in ARGUMENTS:
                wrong, words, status = ARGUMENTS[argument]
                needed = [*(["made.tif"] if "to" in arguments else []), *_needed(options, but="")]
                found[f"{name} {argument}"] = [*name.split(), wrong, *needed], words, status
        for option, (value, words, status) in WRONG.items():
            if option in options:
                here = [there[argument] for argument in arguments if argument in there and option != "--data"]
                typed = [*name.split(), *here, option, value, *_needed(options, but=option, given=bool(here))]
                found[f"{name} {option}"] = typed, words, status
    return found


def _needed(options: dict[str, Any], but: str, given: bool = False) -> list[str]:
    needed = [word for word in NEEDED if word in options and options[word].required and word != but]
    if but == "--target" and "--net" in options:
        needed.append("--net")
    return [word for option in needed for word in (option, NEEDED[option])]


NAMES = [name for name, _ in all_commands(typer.main.get_command(app))]
CASES = cases()  # now, before other tests declare measures of their own


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    folder = tmp_path_factory.mktemp("refused")
    (folder / "pictures").mkdir()
    Image.new("RGB", (8, 8)).save(folder / "pictures" / "a.png")
    given = json.dumps([words for words, _, _ in CASES.values()])
    done = subprocess.run([sys.executable, "-c", WITHOUT], input=given, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stderr
    return dict(zip(CASES, json.loads(done.stdout), strict=True))


@pytest.mark.parametrize("case", CASES)
def test_it_is_refused_without_torch(case: str, answers: dict[str, list[Any]]) -> None:
    _, words, wanted = CASES[case]
    status, out, err, _ = answers[case]
    assert words in " ".join(err.split()), err
    assert (status, out) == (wanted, "")


def test_every_command_is_walked_and_none_takes_its_time(answers: dict[str, list[Any]]) -> None:
    walked = {case.rpartition(" ")[0] for case in answers}
    assert {*NAMES} - walked <= {"models", "methods"}
    seconds = sorted(answer[-1] for answer in answers.values())
    assert seconds[len(seconds) // 2] < 0.5  # of the processor, whatever else it does


def test_a_gpu_that_may_be_there_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "GPUS", ("null",))
    refusals.refuse({"device": "cuda"})
    monkeypatch.setattr(refusals, "GPUS", ("no such device",))
    with pytest.raises(BadChoice, match="no GPU"):
        refusals.refuse({"device": "cuda"})


def test_one_picture_that_is_there_is_enough(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    refusals.refuse({"pictures": ("nothere.jpg", str(tmp_path / "*.png"))})


def test_numbers_and_words_that_are_no_class_pass() -> None:
    refusals.refuse({"net": ("efficientnet_lite0",), "target": ("top5", "output", "281", "Tabby")})
    with pytest.raises(BadChoice, match="class 1000 does not exist"):
        refusals.refuse({"net": ("efficientnet_lite0",), "target": ("1000",)})


def test_options_of_methods_pass_and_wrong_ones_are_told() -> None:
    asked = glossary.OPTIONS["method"].values("method", ["gradcam,rise:masks=20,cells=3,all", "occlusion:window=9"])
    assert asked == ("gradcam", "rise:masks=20,cells=3", "all", "occlusion:window=9")
    refusals.refuse({"method": asked})
    with pytest.raises(BadChoice, match="no option 'maks'; did you mean 'masks'"):
        refusals.refuse({"method": ["rise:maks=20"]})
