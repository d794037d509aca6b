import json
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from commands import Run
from fovea.basics import BadChoice
from fovea.patches import Media, refuse_unused, sort_out
from fovea.patches.localize import localize

SENTENCE = "the film is really not so much bad as bland ."


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run("localize", monkeypatch, capsys)


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random weights of a network for each medium."""
    folder = tmp_path_factory.mktemp("localizers")
    words = tuple(SENTENCE.split())
    made = {
        "anchornet_text": {"words": words, "width": 8, "length": 20},
        "anchornet_sound": {"bands": 12, "width": 6},
        "anchornet": {"side": 112},
    }
    for name, options in made.items():
        torch.manual_seed(0)
        network = fovea.load(name, pretrained=False, classes=3, options=options)
        network.labels = ("cat", "dog", "emu")
        network.save(folder / f"{name}.safetensors")
    return {name: folder / f"{name}.safetensors" for name in made}


@pytest.fixture(scope="session")
def cat(photographs: Path) -> Path:
    return photographs / "chelsea.png"


def save_tone(path: Path, seconds: float = 1.0) -> Path:
    values = (8000 * np.sin(np.arange(int(8000 * seconds)) * 0.5)).astype("<i2")
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(values.tobytes())
    return path


def regions(folder: str = "out/localize") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "results.json").read_text())
    return found


def rows(kind: str) -> list[dict[str, Any]]:
    """The results of one medium: each row names what it is of."""
    return [row for row in regions()["results"] if kind in row]


def test_what_a_word_stands_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Image.new("RGB", (9, 9)).save("cat.png")
    Path("two words.txt").write_text("first text\n\n second text \n")
    Path("some").mkdir()
    save_tone(Path("a.wav"))
    given = ["cat.png", "*.png", "some", SENTENCE, "a.wav", "two words.txt", "bland", "Why?", "either this/or that"]
    found = sort_out(given)
    assert found == Media(
        ("cat.png", "*.png", "some"),
        (SENTENCE, "first text", "second text", "bland", "Why?", "either this/or that"),
        ("a.wav",),
    )
    missing = sort_out(["cta.png", "nowhere/cat", "b.wav", "my cat.png"]).missing
    assert [name for name, _ in missing] == ["cta.png", "nowhere/cat", "b.wav", "my cat.png"]
    assert "did you mean 'cat.png'" in missing[0][1]
    assert sort_out(["x" * 5000, "a\0b"]).texts == ("x" * 5000, "a\0b")


def test_text_files_of_other_kinds(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("caf\xe9 noir\n".encode("latin-1"))
    (tmp_path / "empty.txt").write_text("\n \n")
    (tmp_path / "binary.txt").write_bytes(b"a\0b")
    found = sort_out([str(tmp_path / name) for name in ("latin.txt", "empty.txt", "binary.txt")])
    assert found.texts == ("café noir",)
    assert ["no text" in reason or "no text file" in reason for _, reason in found.missing] == [True, True]


def test_an_option_that_would_change_nothing_is_refused() -> None:
    refuse_unused(["texts", "pictures"], {"count": 3})
    with pytest.raises(BadChoice, match="count is for pictures and sounds, not for texts"):
        refuse_unused(["texts"], {"count": 3, "target": "cat"})


def test_a_sentence(run: Run, weights: dict[str, Path]) -> None:
    code, out, err = run(SENTENCE, "Zebras all over", "--net", weights["anchornet_text"], "--files")
    assert (code, err) == (0, "")
    assert SENTENCE in out
    assert "none of the words is known ('zebras', 'all', 'over')" in out
    first, second = rows("text")
    assert [first["text"], second["text"]] == [SENTENCE, "Zebras all over"]
    assert first["span"]["words"] in out
    assert second["unknown"] == {"zebras": 1, "all": 1, "over": 1}
    assert SENTENCE.split()[-2] in Path("out/localize", first["files"]["page"]).read_text()


def test_pictures(run: Run, weights: dict[str, Path], cat: Path) -> None:
    net = ("--net", weights["anchornet"], "--files")
    code, out, err = run(cat, *net, "--count", 2, "--branch", 63, "--json", "all.json")
    (row,) = rows("picture")
    note = "note: anchornet knows only: cat, dog, emu (3 classes); anything else is taken for one of these, too"
    spread = " (its best probability is below 0.5 for 1 of 1)" if row["probability"] < 0.5 else ""
    assert (code, err) == (0, f"{note}{spread}\n")
    assert row["side"] == 63
    assert 1 <= len(row["patches"]) <= 2
    box = " ".join(f"{side:.0f}" for side in row["patches"][0]["box"])
    assert f"chelsea.png  {row['label']}  {row['probability']:.2f}  box {box}  {len(row['patches'])} patch" in out
    assert "of 63 x 63" in out
    assert out.splitlines()[-1] == "out/localize/index.html"
    for name in (row["files"]["overlay"], row["files"]["evidence"], *row["files"]["crops"]):
        assert Path("out/localize", name).is_file()
    assert json.loads(Path("all.json").read_text())["rows"] == [row]


def test_an_ordinary_network_says_what_its_cells_can_see(run: Run, cat: Path, tmp_path: Path) -> None:
    fovea.load("timm/test_resnet", pretrained=False).save(tmp_path / "tiny.safetensors")
    code, out, err = run(cat, "--net", "tiny.safetensors", "--side", 40)
    assert (code, "of 40 x 40" in out) == (0, True)
    assert "may see the whole picture" in err
    assert "may see the whole picture" in rows("picture")[0]["note"]


def test_several_media_at_once(run: Run, weights: dict[str, Path], cat: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One network is named; what it does not take goes to the usual ones."""
    named = {"anchornet_text-mr": "anchornet_text", "anchornet_sound-tones": "anchornet_sound"}
    monkeypatch.setattr("fovea.networks.ours", lambda: {name: {} for name in named})
    real = fovea.load

    def swap(name: str, *more: Any, **options: Any) -> fovea.Network:
        return real(weights.get(named.get(name, ""), name), *more, **options)

    monkeypatch.setattr("fovea.networks.loading.load", swap)
    save_tone(Path("tone.wav"))
    code, out, err = run(cat, SENTENCE, "tone.wav", "--net", weights["anchornet"], "--count", 1)
    assert code == 0
    assert err.count("knows only: ") == 2  # of pictures and of sounds, once each
    assert [len(rows(kind)) for kind in ("picture", "text", "sound")] == [1, 1, 1]
    assert "localize: 3 done, 0 skipped" in out
    assert Path("out/localize", rows("sound")[0]["files"]["view"]["figure"]).is_file()


def test_sounds(run: Run, weights: dict[str, Path], tmp_path: Path) -> None:
    save_tone(tmp_path / "tone.wav")
    save_tone(tmp_path / "short.wav", 0.01)
    code, out, err = run("tone.wav", "short.wav", "--net", weights["anchornet_sound"])
    assert code == 0
    assert "short.wav: a sound has at least" in err
    (row,) = rows("sound")
    (start, stop) = row["spans"][0]["seconds"]
    assert f"{start:.3f} to {stop:.3f} s" in out
    found = localize(fovea.load(weights["anchornet_sound"]), tmp_path / "tone.wav")
    assert (found[0].label, found[0].to_dict()["spans"]) == (row["label"], row["spans"])
    assert found.save(tmp_path / "sounds")[0]["files"] == row["files"]
    with pytest.raises(BadChoice, match="target is for pictures and texts"):
        localize(fovea.load(weights["anchornet_sound"]), tmp_path / "tone.wav", target="cat")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("x y", "--count", 0), "--count is 1 to 1,000,000; got 0"),
        (("x y", "--overlap", 0), "above 0 and at most 1"),
        (("x y", "--share", 1.5), "--share is 0 to 1; got 1.5"),
        (("x y", "--side", 9), "side is for pictures"),
        (("x y", "--data", "digits"), "go with --why"),
        ((), "nothing was given"),
        (("--why",), "--why needs pictures"),
        (("x y", "--why"), "about pictures"),
        (("--why", "--data", "digits", "--share", 0.5), "no effect"),
    ],
)
def test_wrong_usage_is_told_before_any_work(run: Run, arguments: tuple[object, ...], told: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert told in " ".join(err.split())
    assert not Path("out").exists()


def test_nothing_could_be_done(run: Run, weights: dict[str, Path]) -> None:
    Image.new("RGB", (9, 9)).save("cat.png")
    code, out, err = run("cta.png", "--net", weights["anchornet"])
    assert (code, out) == (1, "")
    assert "did you mean 'cat.png'" in err
    Path("bad.png").write_bytes(b"no picture")
    code, out, _ = run("bad.png", "--net", weights["anchornet"])
    assert (code, "0 done" in out) == (1, True)
    assert run("", "--net", weights["anchornet_text"])[0] == 1


def test_a_network_for_another_medium(run: Run, weights: dict[str, Path], cat: Path) -> None:
    code, _, err = run(cat, "--net", weights["anchornet_text"])
    assert (code, "takes texts, and pictures were given" in err) == (2, True)


def test_no_weights_for_a_medium_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fovea.networks.ours", dict)
    code, _, err = run(save_tone(Path("tone.wav")))
    assert (code, "no weights for sounds" in err) == (2, True)


def test_why(run: Run, weights: dict[str, Path], cat: Path) -> None:
    for label in ("cat", "dog", "emu"):
        Path("pets/test", label).mkdir(parents=True)
        for i in range(2):
            Image.open(cat).rotate(90 * i + len(label)).save(f"pets/test/{label}/{label}{i}.png")
    net = ("--net", weights["anchornet"])
    code, out, _ = run("--why", "--data", "pets", "--split", "test", "--class", "dog", *net)
    assert (code, out.splitlines()[-1]) == (0, "out/localize/index.html")
    (found,) = regions()["results"]
    assert [len(found[kind]) for kind in ("representative", "confusing")] == [2, 4]
    assert {one["class"] for one in found["confusing"]} == {"cat", "emu"}
    code, out, _ = run(cat, "--why", "--target", "cat", "--data", "pets", *net, "--json", "why.json")
    assert (code, out.splitlines()[-1]) == (0, "out/localize-2/index.html")
    (row,) = json.loads(Path("why.json").read_text())["rows"]
    assert all((one["mistaken_for"] is None) == one["right"] for one in row["branches"])
    code, _, err = run("--why", "--data", "pets", "--class", "dgo", *net)
    assert (code, "did you mean 'dog'" in err) == (2, True)


def test_a_sentence_needs_neither_the_hubs_nor_figures(weights: dict[str, Path], tmp_path: Path) -> None:
    code = (
        "import sys, fovea.cli\n"
        f"sys.argv = ['fovea', 'localize', {SENTENCE!r}, '--net', {str(weights['anchornet_text'])!r}]\n"
        "try: fovea.cli.main()\n"
        "finally: print(*{'timm', 'torchvision', 'matplotlib', 'skimage', 'sklearn'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == ""
