"""The client of a real service gives what the verbs give in process.

One picture at a time is exactly the same. Of several at once some may go through the network together there, in other
batches than here, which changes the last bits of sums."""

from collections.abc import Callable
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
import torch
from PIL import Image

import fovea
from fovea.heatmaps import ByMethod, HeatMaps
from fovea.remote import QUESTIONS, Client
from fovea.remote.calling import LocalizeWords, ZoomWords
from fovea.remote.questions import Asking, Localizing, Zooming
from fovea.results import View
from remote.conftest import NETS, TOKEN

CUB, ANCHOR, TNET, TEXT = NETS
VERBS: dict[str, tuple[Callable[[Client, Any], Any], Callable[[Any], Any]]] = {
    "explain": (lambda far, it: far.explain(it), lambda it: fovea.explain(CUB, it)),
    "explain more": (
        lambda far, it: far.explain(it, CUB, method="gradcam", target=["top1", 7], fit="squash"),
        lambda it: fovea.explain(CUB, it, method="gradcam", target=["top1", 7], fit="squash"),
    ),
    "look": (lambda far, it: far.look(it, forwards=40), lambda it: fovea.look(CUB, it, forwards=40)),
    "localize": (lambda far, it: far.localize(it, CUB, count=2), lambda it: fovea.localize(CUB, it, count=2)),
    "branches": (lambda far, it: far.localize(it, ANCHOR), lambda it: fovea.localize(ANCHOR, it)),
    "for a class": (lambda far, it: far.localize(it, CUB, target=3), lambda it: fovea.localize(CUB, it, target="3")),
    "zoom": (lambda far, it: far.zoom(it, TNET), lambda it: fovea.zoom(TNET, it)),
    "zoom deeper": (lambda far, it: far.zoom(it, TNET, glimpses=1), lambda it: fovea.zoom(TNET, it, glimpses=1)),
}


def rows(results: Any) -> list[dict[str, Any]]:
    """But for the time that it took."""
    found = [result.to_dict() for result in results]
    for row in found:
        row.pop("ms", None)
        if isinstance(row.get("cost"), dict):
            row["cost"].pop("ms")
    return found


def nearly(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(nearly(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(nearly, a, b))
    return a == pytest.approx(b, rel=1e-4, abs=1e-6) if isinstance(a, float) else a == b


def drawn(view: View) -> dict[str, Any]:
    sizes = [picture.size for picture in view.pictures()]
    told = view.to_dict(sizes, [""] * len(sizes), [""] * len(sizes))
    told["table"] = [line for line in told["table"] if not any(" ms" in word for word in line)]
    return told


@pytest.mark.parametrize("verb", VERBS)
def test_one_picture_is_the_same(verb: str, client: Client, files: list[str]) -> None:
    far, here = VERBS[verb]
    found, wanted = far(client, files[0]), here(files[0])
    assert rows(found) == rows(wanted)
    assert (type(found), type(found[0])) == (type(wanted), type(wanted[0]))
    assert (found.what, dict(found.settings)) == (wanted.what, dict(wanted.settings))
    assert [result.name for result in found] == [files[0]]
    assert np.array_equal(found[0].boxes, wanted[0].boxes)
    assert drawn(found[0].view()) == drawn(wanted[0].view())
    if "look" not in verb:  # whose words tell the milliseconds
        assert found[0].draw().tobytes() == wanted[0].draw().tobytes()
    if isinstance(found, HeatMaps):
        assert torch.equal(found.values, wanted.values)


@pytest.mark.parametrize("verb", VERBS)
def test_several_at_once_come_in_order(verb: str, client: Client, files: list[str]) -> None:
    far, here = VERBS[verb]
    found, wanted = far(client, files), here(files)
    assert [result.name for result in found] == files
    assert nearly(rows(found), rows(wanted))
    if isinstance(found, HeatMaps):
        assert torch.allclose(found.values, wanted.values, atol=1e-6)


def test_predict(client: Client, files: list[str]) -> None:
    found, wanted = client.predict(files[0], CUB, 3), fovea.load(CUB).predict(files[0], 3)
    assert (tuple(found), found.note, found.skipped) == (tuple(wanted), wanted.note, ())
    assert nearly(rows(client.predict(files)), rows(fovea.load(CUB).predict(files)))


def test_several_methods(client: Client, files: list[str]) -> None:
    methods = ["l2caf", "eigencam", "gradcam"]
    found, wanted = client.explain(files, method=methods), fovea.explain(CUB, files, method=methods)
    assert isinstance(found, ByMethod)
    assert list(found) == list(wanted) == methods
    for name, maps in wanted.items():
        assert torch.allclose(found[name].values, maps.values, atol=1e-6)
        assert dict(found[name].settings) == dict(maps.settings)
    assert isinstance(client.explain(files[0], method=["cam"]), ByMethod)


def test_texts(client: Client) -> None:
    given = ["a film that is merely bland", "two hours of noise, and not one scene that anybody will remember"]
    found, wanted = client.localize(given, TEXT), fovea.localize(TEXT, given)
    assert nearly(rows(found), rows(wanted))
    assert (found.what, found.settings) == (wanted.what, wanted.settings)
    assert [result.name for result in found] == given
    assert rows(client.localize(given[0], TEXT, branch=5)) == rows(fovea.localize(TEXT, given[0], branch=5))


def test_texts_that_have_no_words(client: Client) -> None:
    with pytest.warns(UserWarning, match=r"1 text\(s\) skipped"):
        found = client.localize(["a bland film", " "], TEXT)
    with pytest.warns(UserWarning, match=r"1 text\(s\) skipped"):
        wanted = fovea.localize(TEXT, ["a bland film", " "])
    assert [result.name for result in found] == ["a bland film"]
    assert found.skipped == wanted.skipped
    with pytest.raises(fovea.BadText):
        client.localize(" ", TEXT)
    with pytest.raises(fovea.BadChoice, match="takes texts"):
        client.localize([3], TEXT)


def test_search(client: Client, files: list[str], index: Path) -> None:
    """Of pictures that are no files of the index, which a service could not know by their names."""
    given = [Image.open(file).transpose(Image.Transpose.ROTATE_180) for file in files]
    found, wanted = client.search(given, 2), fovea.open_index(index).search(given, 2)
    for a, b in zip(found, wanted, strict=True):
        told, row = a.to_dict(), b.to_dict()
        assert told.pop("seconds") >= 0
        row.pop("seconds")
        assert nearly(told, row)
        assert (a.name, a.label, a.probability) == (b.name, b.label, b.probability)
        assert nearly(a.boxes, b.boxes)
        assert a.draw().width > 100
    assert [len(result.neighbors) for result in found] == [2, 2, 2]


@pytest.mark.parametrize("kind", ["array", "picture", "gray", "turned"])
def test_pictures_in_memory(kind: str, client: Client, files: list[str]) -> None:
    image = Image.open(files[0])
    turned = image.copy()
    turned.getexif()[0x0112] = 6
    given = {"array": np.asarray(image), "picture": image, "gray": image.convert("LA"), "turned": turned}[kind]
    found, wanted = client.explain(given), fovea.explain(CUB, given)
    assert torch.equal(found.values, wanted.values)
    assert rows(found) == rows(wanted)
    assert (found[0].name, found[0].draw().tobytes()) == (wanted[0].name, wanted[0].draw().tobytes())


@pytest.mark.parametrize("verb", ["explain", "look", "localize", "zoom", "predict"])
def test_what_cannot_be_read_is_told_with_the_others(verb: str, client: Client, folder: Path) -> None:
    net = TNET if verb == "zoom" else CUB
    given = [str(folder), str(folder / "none.png"), str(folder / "bad.png")]
    here = fovea.load(net).predict if verb == "predict" else lambda it: getattr(fovea, verb)(net, it)
    with pytest.warns(UserWarning, match=r"3 picture\(s\) skipped") as told:
        found = getattr(client, verb)(given, net)
    assert told[0].filename == __file__
    with pytest.warns(UserWarning, match="skipped"):
        wanted = here(given)
    assert [result.name for result in found] == [result.name for result in wanted]
    assert found.skipped == wanted.skipped
    for nothing in (given[1], given[2], []):
        with pytest.raises(fovea.BadPicture) as far:
            getattr(client, verb)(nothing, net)
        with pytest.raises(fovea.BadPicture) as near:
            here(nothing)
        assert str(far.value) == str(near.value)


def test_step_by_step(client: Client, folder: Path) -> None:
    asked = client.ask("explain", folder, CUB, method=["cam"])
    steps = list(asked)
    assert [(len(step.results), len(step.skipped), step.done, step.total) for step in steps] == [
        (1, 0, 1, 4),
        (1, 0, 2, 4),
        (1, 0, 3, 4),
        (0, 1, 4, 4),
    ]
    assert asked.settings["methods"] == ["cam"]
    assert Path(steps[1].results[0].name).name == "1.png"


def test_models(client: Client) -> None:
    assert [model["name"] for model in client.models()["models"]] == list(NETS)


WRONG: list[tuple[str, Callable[[Client, str], Any], str]] = [
    ("net", lambda far, it: far.explain(it, "resnet99"), "resnet99"),
    ("net of another kind", lambda far, it: far.explain(it, 3), "net is the name of one"),  # type: ignore[arg-type]
    ("verb", lambda far, it: far.zoom(it, CUB), CUB),
    ("method", lambda far, it: far.explain(it, method="gradcan"), "gradcam"),
    ("module", lambda far, it: far.explain(it, method="os:system"), "os:system"),
    ("function", lambda far, it: far.explain(it, method=print), "by name"),  # type: ignore[arg-type]
    ("target", lambda far, it: far.explain(it, target="sparow"), "sparow"),
    ("pair", lambda far, it: far.explain([it, it], target="pair"), "pair"),
    ("fit", lambda far, it: far.look(it, fit="bent"), "bent"),
    ("count", lambda far, it: far.localize(it, count=-3), "-3"),
    ("not a number", lambda far, it: far.localize(it, share=float("nan")), "share"),
    ("unknown word", lambda far, it: far.zoom(it, glimses=3), "glimses"),
    ("pictures", lambda far, it: far.predict(3), "a picture is a path"),
]


@pytest.mark.parametrize(("what", "ask", "words"), WRONG, ids=[row[0] for row in WRONG])
def test_wrong_values_are_refused_in_words(
    what: str, ask: Callable[[Client, str], Any], words: str, client: Client, files: list[str]
) -> None:
    with pytest.raises(fovea.BadChoice) as refused:
        ask(client, files[0])
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)


def test_the_token(url: str, client: Client, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (None, "another"):
        with pytest.raises(fovea.FoveaError, match="token"):
            fovea.client(url, wrong).predict(files[0])
    wanted = tuple(client.predict(files[0]))
    with fovea.client(f"{url}/#token={TOKEN.replace(' ', '%20')}") as named:
        assert tuple(named.predict(files[0])) == wanted
    monkeypatch.setenv("FOVEA_TOKEN", TOKEN)
    assert tuple(fovea.client(url).predict(files[0])) == wanted
    assert TOKEN not in repr(client)
    assert TOKEN not in repr(vars(client.service))


def test_the_words_of_the_client_are_those_of_the_service() -> None:
    shared = {*Asking.model_fields, "text"}
    for question, words in ((Localizing, LocalizeWords), (Zooming, ZoomWords)):
        assert set(get_type_hints(words)) == set(question.model_fields) - shared
    for verb in ("explain", "look"):
        taken = {*signature(getattr(Client, verb)).parameters} - {"self", "pictures", "net"}
        assert taken == {*QUESTIONS[verb].model_fields} - shared - {"applicable"}
