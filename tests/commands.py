"""fovea's commands, run in this process."""

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fovea import cli


def all_commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    for name in group.list_commands(None):
        found = group.get_command(None, name)
        if hasattr(found, "list_commands"):
            yield from all_commands(found, f"{name} ")
        else:
            yield before + name, found


def ran(line: str | list[str]) -> Result:
    """A command that succeeds: what it printed."""
    done = CliRunner().invoke(cli.app, line.split() if isinstance(line, str) else line)
    assert done.exit_code == 0, (done.output, done.exception)
    return done


class Run:
    """A command: its exit status, and what it printed."""

    def __init__(self, command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.command, self.monkeypatch, self.capsys = command, monkeypatch, capsys

    def __call__(self, *arguments: object) -> tuple[int, str, str]:
        self.monkeypatch.setattr(sys, "argv", ["fovea", self.command, *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        said = self.capsys.readouterr()
        return int(stopped.value.code or 0), said.out, said.err
