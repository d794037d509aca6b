"""What the service answers is what the verb gives in process, in every form that can be asked for."""

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

import fovea
from fovea.serve import Limits, Networks, ServeOptions, application, loaded
from fovea.serve.verbs import VERBS

NETS = ("efficientnet_lite0", "anchornet-imagenette", "tnet-gtsdb", "anchornet_text-mr", "embedding-cub100")
COFFEE = Path(str(files("skimage.data") / "coffee.png"))
TEXT = "a warm , funny film"


@pytest.fixture(scope="module")
def networks() -> Networks:
    return loaded(ServeOptions(NETS))


@pytest.fixture(scope="module")
def asking(networks: Networks) -> Iterator[TestClient]:
    options = ServeOptions(NETS)
    with TestClient(application(options, networks), base_url="http://127.0.0.1:8000") as client:
        yield client


def ask(asking: TestClient, verb: str, file: Path = COFFEE, **fields: Any) -> Any:
    given = [
        (key, value) for key, values in fields.items() for value in (values if isinstance(values, list) else [values])
    ]
    form: dict[str, Any] = {}
    for key, value in given:
        form.setdefault(key, []).append(str(value))
    sent = {} if "text" in fields else {"files": {"picture": (file.name, file.read_bytes())}}
    answer = asking.post(f"/v1/{verb}", data=form, **sent) if sent else asking.post(f"/v1/{verb}", json=fields)
    assert answer.status_code == 200, answer.text
    return answer


def rows_of(asking: TestClient, verb: str, **fields: Any) -> Any:
    content = ask(asking, verb, **fields).json()
    assert content.keys() == {"what", "settings", "results", "skipped"}
    (row,) = content["results"]
    assert content["what"] == verb
    return row


def same(row: Any, other: Any, changing: tuple[str, ...] = ("name", "picture", "ms")) -> None:
    """Equal but for what is called otherwise or takes another time; numbers to five figures."""
    if isinstance(row, dict):
        assert row.keys() == other.keys()
        for key in row.keys() - set(changing):
            same(row[key], other[key])
    elif isinstance(row, list):
        assert len(row) == len(other)
        for one, two in zip(row, other, strict=True):
            same(one, two)
    elif isinstance(row, float):
        assert row == pytest.approx(other, rel=1e-4, abs=1e-5)
    else:
        assert row == other


IN_PROCESS: dict[str, tuple[dict[str, Any], Any]] = {
    "explain": ({"method": ["gradcam", "l2caf"], "target": ["cup", "espresso"]}, None),
    "localize": ({"count": 3, "overlap": 0.3, "share": 0.1, "target": "cup"}, fovea.localize),
    "zoom": ({"glimpses": 2}, fovea.zoom),
    "look": ({"forwards": 30, "trust": False}, fovea.look),
}


@pytest.mark.parametrize("verb", IN_PROCESS)
def test_rows_are_those_of_the_verb(verb: str, asking: TestClient, networks: Networks) -> None:
    words, run = IN_PROCESS[verb]
    net = networks.found["tnet-gtsdb" if verb == "zoom" else NETS[0]]
    row = rows_of(asking, verb, net=net.name, **words)
    assert row.pop("name") == "coffee.png"
    if run is None:
        maps = fovea.explain(net, COFFEE, **words)
        wanted = maps["gradcam"][0].to_dict()
        wanted["maps"] = wanted["maps"] + maps["l2caf"][0].to_dict()["maps"]
    else:
        wanted = run(net, COFFEE, **words)[0].to_dict()
    same(json.loads(json.dumps(wanted)), row)


def test_predictions_and_a_text(asking: TestClient, networks: Networks) -> None:
    row = rows_of(asking, "predict", top=3)
    (wanted,) = networks.found[NETS[0]].predict(COFFEE, 3)
    same(wanted.to_dict(), row)
    row = rows_of(asking, "localize", text=TEXT)
    (spans,) = fovea.localize(networks.found["anchornet_text-mr"], TEXT)
    same(spans.to_dict(), {key: value for key, value in row.items() if key != "name"})


def test_an_array_holds_the_maps(asking: TestClient, networks: Networks) -> None:
    words: dict[str, Any] = {"method": ["gradcam", "l2caf"], "target": ["cup", "espresso"]}
    values = np.load(BytesIO(ask(asking, "explain", output="npy", **words).content))
    maps = fovea.explain(networks.found[NETS[0]], COFFEE, **words)
    wanted = np.concatenate([maps[name].numpy()[0] for name in words["method"]])
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, wanted, atol=1e-5)
    localized = np.load(BytesIO(ask(asking, "localize", output="npy").content))
    np.testing.assert_allclose(localized[0], fovea.localize(networks.found[NETS[0]], COFFEE)[0].heatmap, atol=1e-5)


def test_maps_of_different_sizes_are_no_array(asking: TestClient) -> None:
    words = {"picture_id": "example:coffee", "output": "npy", "method": ["l2caf", "input-x-gradient"]}
    answer = asking.post("/v1/explain", json=words)
    assert answer.status_code == 422
    assert "6 x 9, 192 x 288 cells" in answer.json()["detail"]


def test_networks_that_call_themselves_alike_are_not_taken_for_each_other(tmp_path: Path) -> None:
    """As those that 'fovea calibrate' makes of one another; also not when they are asked at the same moment."""
    net = fovea.load("timm/test_resnet", pretrained=False, classes=3)
    net.name = "mine"
    for name, temperature in (("mine", None), ("mine-sure", 9.0)):
        net.temperature = temperature
        net.save(tmp_path / f"{name}.safetensors")
    options = ServeOptions(tuple(str(tmp_path / f"{name}.safetensors") for name in ("mine", "mine-sure")))
    options = replace(options, limits=Limits(window=0.3))
    with TestClient(application(options, loaded(options)), base_url="http://127.0.0.1:8000") as client:

        def predicted(name: str) -> Any:
            return client.post("/v1/predict", json={"picture_id": "example:cat", "net": name}).json()

        alone = [predicted(name) for name in ("mine", "mine-sure")]
        assert [answer["settings"]["net"] for answer in alone] == ["mine", "mine-sure"]
        assert alone[0]["results"] != alone[1]["results"]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(predicted, ["mine", "mine-sure"] * 2))
        same([answer["results"] for answer in together], [answer["results"] for answer in alone * 2])


@pytest.mark.parametrize("verb", [name for name in VERBS if name != "search"])
def test_every_form_of_every_verb(verb: str, asking: TestClient) -> None:
    few: dict[str, Any] = {"forwards": 20, "trust": False} if verb == "look" else {}
    for output in VERBS[verb].outputs:
        answer = ask(asking, verb, output=output, **few)
        kind = answer.headers["content-type"].partition(";")[0]
        if output == "png":
            assert kind == "image/png"
            assert min(Image.open(BytesIO(answer.content)).size) > 100
        elif output == "npy":
            assert np.load(BytesIO(answer.content)).ndim == 3
        elif output == "html":
            assert kind == "text/html"
            assert answer.text.startswith("<!doctype html>")
            assert "http://" not in answer.text.partition("<main")[2].partition("<script")[0]
        else:
            assert kind == "application/json"
            panels = answer.json().get("view", {}).get("panels", [])
            sources = [panel["src"] for panel in panels]
            assert (
                all(src.startswith("data:image/jpeg;base64,") for src in sources)
                if output == "view"
                else not any(sources)
            )


def test_maps_for_the_page_are_those_of_pages_of_results(asking: TestClient, networks: Networks) -> None:
    content = ask(asking, "explain", output="maps").json()
    (drawn,) = content["view"]["maps"]
    height, width = drawn["grid"]
    values = np.frombuffer(base64.b64decode(drawn["values"]), np.uint8).reshape(height, width)
    heatmap = fovea.explain(networks.found[NETS[0]], COFFEE)[0]
    cells = heatmap.map().clip(0)
    assert np.abs(values / 255 - (cells - cells.min()) / np.ptp(cells)).max() < 0.02
    box = np.array(drawn["box"]) * [600, 400, 600, 400]
    np.testing.assert_allclose(box, heatmap.boxes[0], atol=0.1)
    assert content["ms"] > 0


def test_forms_and_json_ask_the_same(asking: TestClient) -> None:
    picture = base64.b64encode(COFFEE.read_bytes()).decode()
    by_json = asking.post(
        "/v1/explain", json={"picture": picture, "name": "coffee.png", "method": ["cam"], "target": ["cup"]}
    )
    by_form = ask(asking, "explain", method="cam", target="cup")
    assert by_json.json() == by_form.json()
    lines = "\n".join(picture[start : start + 76] for start in range(0, len(picture), 76))
    for spelled in (lines, f"data:image/png;base64,{picture}"):
        assert asking.post("/v1/predict", json={"picture": spelled}).status_code == 200
    assert asking.post("/v1/predict", json={"picture": picture[:-3] + "!?="}).status_code == 422


def test_a_picture_is_sent_once_and_asked_about_again(asking: TestClient) -> None:
    kept = asking.post("/v1/pictures", files={"picture": ("../../cup.png", COFFEE.read_bytes())})
    assert kept.status_code == 201
    facts = kept.json()
    key = facts.pop("id")
    assert facts == {"name": "cup.png", "width": 600, "height": 400, "bytes": COFFEE.stat().st_size, "deep": False}
    answers = [asking.post("/v1/predict", json={"picture_id": key}).json() for _ in range(2)]
    assert answers[0] == answers[1]
    assert answers[0]["results"][0]["name"] == "cup.png"
    assert Image.open(BytesIO(asking.get(f"/v1/pictures/{key}/preview").content)).size == (600, 400)
    assert Image.open(BytesIO(asking.get(f"/v1/pictures/{key}/tiles/10/1/1").content)).size == (256, 144)
    assert asking.delete(f"/v1/pictures/{key}").status_code == 204
    assert asking.post("/v1/predict", json={"picture_id": key}).status_code == 404


def test_what_there_is(asking: TestClient, networks: Networks) -> None:
    about = asking.get("/v1/models").json()
    assert [model["name"] for model in about["models"]] == list(NETS)
    verbs = {model["name"]: model["verbs"] for model in about["models"]}
    assert verbs["anchornet_text-mr"] == ["localize"]
    assert verbs["embedding-cub100"] == ["explain"]
    assert verbs["tnet-gtsdb"] == ["look", "zoom", "predict"]
    assert about["usual"]["net"]["text"] == "anchornet_text-mr"
    assert about["usual"]["net"]["zoom"] == "tnet-gtsdb"
    assert about["index"] is None
    labels = asking.get("/v1/labels", params={"net": NETS[0]}).json()["labels"]
    assert labels == list(networks.found[NETS[0]].labels or ())


@pytest.mark.parametrize(
    ("fields", "status", "words"),
    [
        ({"net": "efficientnet_lite9"}, 422, "net"),
        ({"net": "tnet-gtsdb"}, 422, "net"),
        ({"method": ["gradcm"]}, 422, "gradcam"),
        ({"method": ["os:system"]}, 422, "method"),
        ({"method": ["rise:masks=500"]}, 422, "method"),
        ({"target": ["espreso"]}, 422, "espresso"),
        ({"target": ["pair"]}, 422, "two pictures"),
        ({"layer": "nowhere"}, 422, "layer"),
        ({"colour": "red"}, 422, "colour"),
        ({"picture": "AAAA"}, 422, "both"),
        ({"picture_id": "example:nothing"}, 404, "coffee"),
        ({"picture_id": None}, 422, "no picture"),
    ],
)  # fmt: skip
def test_a_wrong_word_is_refused_in_words(asking: TestClient, fields: dict[str, Any], status: int, words: str) -> None:
    answer = asking.post("/v1/explain", json={"picture_id": "example:coffee", **fields})
    assert (answer.status_code, words in answer.json()["detail"]) == (status, True), answer.text


def test_search_without_an_index_says_how_to_have_one(asking: TestClient) -> None:
    answer = asking.post("/v1/search", json={"picture_id": "example:coffee"})
    assert answer.status_code == 404
    assert "--index" in answer.json()["detail"]


def test_search_with_an_index(tmp_path: Path, networks: Networks) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in ("coffee.png", "chelsea.png", "rocket.jpg"):
        (folder / name).write_bytes((COFFEE.parent / name).read_bytes())
    fovea.index("efficientnet_lite0", folder, tmp_path / "photos.fovea")
    index = fovea.open_index(tmp_path / "photos.fovea")
    one = ServeOptions(NETS[:1])
    app = application(one, Networks({NETS[0]: networks.found[NETS[0]]}, index), index)
    with TestClient(app, base_url="http://127.0.0.1:8000") as asking:
        row = rows_of(asking, "search", count=2)
        assert row["neighbors"][0]["name"] == "coffee.png"
        assert row["neighbors"][0]["similarity"] == pytest.approx(1, abs=1e-3)
        assert str(tmp_path) not in json.dumps(row)
        assert ask(asking, "search", output="view").json()["view"]["panels"]
        assert ask(asking, "search", output="html").text.startswith("<!doctype html>")
        assert asking.get("/v1/models").json()["index"] == {
            "name": "photos.fovea", "pictures": 3, "net": "efficientnet_lite0",
        }  # fmt: skip


def test_methods_that_do_not_apply_are_left_out_where_that_is_asked_for(asking: TestClient) -> None:
    words = {"picture_id": "example:coffee", "method": ["l2caf", "rollout"]}
    assert asking.post("/v1/explain", json=words).status_code == 422
    content = asking.post("/v1/explain", json=words | {"applicable": True}).json()
    assert [row["method"] for row in content["results"][0]["maps"]] == ["l2caf"]
    assert "self-attention" in content["refused"]["rollout"]
    assert asking.post("/v1/explain", json=words | {"method": ["rollout"], "applicable": True}).status_code == 422


def test_a_text_and_a_picture_are_not_asked_about_at_once(asking: TestClient) -> None:
    answer = asking.post("/v1/localize", json={"text": TEXT, "picture_id": "example:coffee"})
    assert (answer.status_code, "both" in answer.json()["detail"]) == (422, True)
