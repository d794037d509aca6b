"""--server: the same lines, page and results.json as without."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from commands import ran
from fovea import cli
from fovea.cli.common import shortened_command
from remote.conftest import NETS, TOKEN, StandIn

CUB, ANCHOR, TNET, TEXT = NETS
COMMANDS = {
    "explain": ["--net", CUB, "--method", "cam,gradcam", "--target", "top1", "--target", "7"],
    "look": ["--net", CUB, "--forwards", "30"],
    "localize": ["--net", ANCHOR, "--count", "2"],
    "zoom": ["--net", TNET, "--glimpses", "2"],
}


def without_times(row: Any) -> Any:
    if isinstance(row, dict):
        return {key: without_times(value) for key, value in row.items() if key not in ("ms", "seconds")}
    if isinstance(row, list):
        return [without_times(item) for item in row]
    return round(row, 5) if isinstance(row, float) else row


def same(a: Path, b: Path) -> None:
    found, wanted = (json.loads((folder / "results.json").read_text()) for folder in (a, b))
    assert without_times(found) == without_times(wanted)
    assert sorted(file.name for file in a.rglob("*")) == sorted(file.name for file in b.rglob("*"))


@pytest.mark.parametrize("command", COMMANDS)
def test_the_same_as_in_process(command: str, url: str, folder: Path, tmp_path: Path) -> None:
    line = [command, str(folder), *COMMANDS[command], "--files", "--out"]
    here = ran([*line, str(tmp_path / "here")])
    far = ran([*line, str(tmp_path / "far"), "--server", url, "--token", TOKEN])
    lines = far.output.replace("/far/", "/here/").splitlines()  # columns may be narrower, picture by picture
    assert [line.split() for line in lines] == [line.split() for line in here.output.splitlines()]
    same(tmp_path / "far", tmp_path / "here")


def test_texts(url: str, tmp_path: Path) -> None:
    line = ["localize", "a film that is merely bland", "--out"]
    here = ran([*line, str(tmp_path / "here")])
    far = ran([*line, str(tmp_path / "far"), "--server", url, "--token", TOKEN])
    assert far.output.replace("/far/", "/here/") == here.output
    same(tmp_path / "far", tmp_path / "here")


def test_predict(url: str, files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEA_TOKEN", TOKEN)
    line = ["predict", files[0], "--net", CUB, "--top", "3"]
    assert ran([*line, "--server", url, "--json", str(tmp_path / "a.json")]).output == ran(line).output
    assert len(json.loads((tmp_path / "a.json").read_text())["rows"]) == 1


def test_the_services_network_where_none_is_named(url: str, files: list[str], tmp_path: Path) -> None:
    said = ran(["zoom", files[0], "--server", f"{url}/#token=a%20secret", "--out", str(tmp_path / "out")]).output
    assert said.startswith(f"by {TNET}\n")
    ran(["explain", files[0], "--server", url, "--token", TOKEN, "--out", str(tmp_path / "out")])
    runs = json.loads((tmp_path / "out/results.json").read_text())
    assert CUB in json.dumps(runs)


def refused(line: list[str]) -> Result:
    return CliRunner().invoke(cli.app, line)


WRONG: dict[str, Callable[[str, str], list[str]]] = {
    "--device": lambda url, it: ["explain", it, "--server", url, "--device", "cpu"],
    "--untrained": lambda url, it: ["zoom", it, "--server", url, "--untrained"],
    "--batch": lambda url, it: ["look", it, "--server", url, "--batch", "3"],
    "--weights": lambda url, it: ["predict", it, "--server", url, "--weights", it],
    "--why": lambda url, it: ["localize", it, "--server", url, "--why"],
    "--all": lambda url, it: ["localize", it, "--server", url, "--all"],
    "--max-pixels": lambda url, it: ["explain", it, "--server", url, "--max-pixels", "9"],
}


@pytest.mark.parametrize("option", WRONG)
def test_what_is_the_services_own_is_refused_before_anything_is_sent(
    option: str, stand_in: StandIn, files: list[str]
) -> None:
    done = refused(WRONG[option](stand_in.url, files[0]))
    assert done.exit_code
    assert f"{option} does not go with --server" in str(done.exception)
    assert not stand_in.asked


def test_clips_sounds_and_both_media(stand_in: StandIn, files: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.mp4").write_bytes(b"x")
    (tmp_path / "a.wav").write_bytes(b"x")
    for line, words in (
        (["explain", str(tmp_path / "a.mp4")], "is a clip"),
        (["localize", str(tmp_path / "a.wav")], "takes pictures or texts"),
        (["localize", files[0], "a bland film"], "takes pictures or texts"),
    ):
        assert words in str(refused([*line, "--server", stand_in.url, "--out", str(tmp_path / "out")]).exception)
    assert not stand_in.asked


def test_a_token_without_a_service(files: list[str]) -> None:
    assert "--server URL" in str(refused(["predict", files[0], "--token", "x"]).exception)


def test_what_is_written_tells_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["--token", "secret"], ["--token=secret"], ["--server", "http://a:1/#token=secret"]):
        monkeypatch.setattr("sys.argv", ["fovea", "predict", "a.png", *words, "--top", "3"])
        assert "secret" not in shortened_command()
        assert shortened_command().endswith("--top 3")
