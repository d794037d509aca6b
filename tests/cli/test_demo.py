import re
from pathlib import Path

import pytest

import fovea
from fovea.cli.demo import make
from fovea.data import PHOTOGRAPHS, SENTENCES


def test_one_page_with_everything_in_it(lite0: fovea.Network, tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    page = make(tmp_path / "demo", lambda *now: steps.append(now))
    text = page.read_text(encoding="utf-8")
    assert page.name == "index.html"
    assert steps[-1][0] == steps[-1][1]
    assert not re.findall(r'(?:src|href)="(?!data:)', text), "the page must not fetch anything"
    assert text.count("<article") == len(PHOTOGRAPHS) + 3  # canvases
    assert text.count('"method":"share"') == 2 * len(PHOTOGRAPHS)  # the answer and the runner-up
    assert text.count(" rather than ") >= 2 * len(PHOTOGRAPHS)
    assert text.count("Enough: ") == len(PHOTOGRAPHS)
    assert text.count("<mark>") == len(SENTENCES)
    for words in (
        "tiger cat",
        "espresso",
        "of the picture is enough",
        "with a random last layer",
        "glimpse 4, level 3, in ",
        "in bare forwards",
    ):
        assert words in text


def test_it_takes_no_page_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fovea, "load", None)  # it is said before the work
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(fovea.BadChoice, match="holds results, whose page would be lost"):
        make(tmp_path)
    (tmp_path / "results.json").rename(tmp_path / "index.html")
    with pytest.raises(fovea.BadChoice, match=r"index.html is not fovea's"):
        make(tmp_path)
