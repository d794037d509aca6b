"""The page that needs no server, in a real browser, from file://: what it makes of pictures is what Python makes."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import fovea
from fovea.basics import BadChoice, BadNetwork
from fovea.graphs.page import write_page
from fovea.pictures import LONGEST, Prepare
from fovea.pictures.decoding import read_bytes

onnx = pytest.importorskip("onnx")
pytest.importorskip("playwright.sync_api")
in_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}
LONG = 90_000  # milliseconds that the slowest answer may take on a busy machine
SIZES = {"dynamic": True, "longest": LONGEST}
COLORS = ("red", "green", "blue")
ANSWER = """() => { const { heatmap, logits, shares, grid, explained, map, prepared } = fovea;
    return { heatmap: [...heatmap], logits: [...logits], shares: [...shares], grid, explained, map,
        prepared: [...prepared.pixels], shape: prepared.shape }; }"""
DROPPED = """([kind, name, values]) => { const data = new DataTransfer();
    data.items.add(new File([new Uint8Array(values)], name));
    document.dispatchEvent(kind === "drop" ? new DragEvent(kind, { dataTransfer: data, cancelable: true })
        : new ClipboardEvent(kind, { clipboardData: data })); }"""


class Opened:
    """A page from a file: what it said, what it asked for."""

    def __init__(self, browser: Any, file: Path, **options: Any) -> None:
        self.file = file
        self.context = browser.new_context(**{"viewport": DESKTOP, "offline": True} | options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LONG)
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def answered(self, words: str) -> Any:
        self.page.locator("#status:not(.busy)", has_text=words).wait_for()
        return self.page.evaluate(ANSWER)

    def give(self, file: Path) -> Any:
        self.page.set_input_files("#file", file)
        return self.answered(f"{file.name}: heatmap of")

    def refused(self) -> str:
        self.page.locator("#alert:visible").wait_for()
        return str(self.page.locator("#alert").inner_text())


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Opened]]:
    pages: list[Opened] = []

    def open_page(file: Path, **options: Any) -> Opened:
        pages.append(Opened(browser, file, **options))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()
        assert page.said == []
        assert page.asked == [page.file.as_uri()]  # the page itself, and nothing after it


def cells(answer: Any) -> NDArray[np.float64]:
    return np.array(answer["heatmap"]).reshape(answer["grid"])


def made(path: Path, prepare: Prepare, **facts: Any) -> Path:
    """A graph whose class c has the prepared picture's channel c for a map, and the mean of that for a logit."""
    node, floats, whole = onnx.helper.make_node, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    nodes = [
        node("Cast", ["pixels"], ["bytes"], to=floats),
        node("Div", ["bytes", "most"], ["shares"]),
        node("ReduceMean", ["shares", "sides"], ["logits"], keepdims=0),
        node("ArgMax", ["logits"], ["best"], axis=1, keepdims=0),
        node("Less", ["target", "zero"], ["free"]),
        node("Where", ["free", "best", "target"], ["explained"]),
        node("Gather", ["shares", "explained"], ["picked"], axis=3),
        node("Squeeze", ["picked", "last"], ["heatmap"]),
    ]
    numbers = {"most": np.float32([255]), "sides": np.int64([1, 2]), "zero": np.int64([0]), "last": np.int64([3])}
    values = [onnx.numpy_helper.from_array(row, name) for name, row in numbers.items()]
    value = onnx.helper.make_tensor_value_info
    pixels = value("pixels", onnx.TensorProto.UINT8, ["n", "h", "w", len(prepare.mean)])
    shapes = {"logits": ["n", "c"], "heatmap": ["n", "h", "w"]}
    outputs = [value(name, floats, shape) for name, shape in shapes.items()] + [value("explained", whole, ["n"])]
    graph = onnx.helper.make_graph(nodes, "made", [pixels, value("target", whole, ["n"])], outputs, values)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)], ir_version=10)
    about = {"version": 1, "net": "made", "method": "channels", "labels": COLORS, "temperature": None, "several": False}
    about |= {"input": asdict(prepare) | SIZES} | facts
    onnx.helper.set_model_props(model, {"fovea": json.dumps(about)})
    onnx.save(model, path)
    return path


def made_page(folder: Path, prepare: Prepare | None = None, **facts: Any) -> Path:
    graph = made(folder / "made.onnx", prepare or Prepare((48, 64)), **facts)
    return write_page(graph, folder / "made.html")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory, photographs: Path) -> Path:
    """Photographs of many kinds."""
    folder = tmp_path_factory.mktemp("given")
    coffee, cat, astronaut = (
        Image.open(photographs / f"{name}.png").convert("RGB") for name in ("coffee", "chelsea", "astronaut")
    )
    coffee.save(folder / "coffee.png")
    coffee.resize((1801, 1199)).save(folder / "larger.jpg", quality=80)
    coffee.convert("L").save(folder / "gray.jpg")
    cat.transpose(Image.Transpose.ROTATE_90).save(folder / "tall.jpg", quality=92, subsampling=0)
    turned = Image.Exif()
    turned[0x0112] = 6
    cat.transpose(Image.Transpose.ROTATE_90).save(folder / "turned.jpg", quality=92, exif=turned)
    astronaut.crop((0, 0, 512, 90)).save(folder / "long.png")
    astronaut.resize((40, 30)).save(folder / "small.png")
    astronaut.crop((100, 0, 300, 320)).save(folder / "narrow.png")  # its height is resized first
    astronaut.putalpha(Image.fromarray((np.indices((512, 512)).sum(0) // 4).astype(np.uint8)))
    astronaut.save(folder / "through.png")
    return folder


@pytest.fixture(scope="module")
def lite0_page(lite0_graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_page(lite0_graph, tmp_path_factory.mktemp("page") / "a page.html")


@in_browser
def test_maps_boxes_and_probabilities_are_pythons(opened: Any, lite0_page: Path, given: Path, lite0: Any) -> None:
    shown = opened(lite0_page)
    files = sorted(given.iterdir())
    maps = fovea.explain(lite0, files, method="l2caf", batch=1)
    assert len(maps) == 9
    assert len({heatmap.grid for heatmap in maps}) > 2  # pictures of several proportions
    for file, heatmap in zip(files, maps, strict=True):
        answer = shown.give(file)
        assert cells(answer).shape == heatmap.map().shape, file.name
        assert np.abs(cells(answer) - heatmap.map()).max() < 1e-3, file.name
        shares = np.array(answer["shares"])
        expected = dict(heatmap.shown.predictions)
        best = [lite0.labels[place] for place in np.argsort(-shares)[:5]]
        assert set(best) == set(expected), file.name
        assert [shares.max(), *sorted(shares)[-5:]] == pytest.approx(
            [heatmap.probability, *sorted(expected.values())], abs=1e-3
        )
        rows = shown.page.locator("#guesses .guess > span:first-child").all_inner_texts()
        assert rows == [label.replace("_", " ") for label in best]
        width, height = heatmap.shown.placement.picture
        box = np.multiply(answer["map"]["box"], (width, height, width, height))
        assert np.abs(box - heatmap.boxes[0]).max() <= max(width, height) / 720 + 1, file.name


@in_browser
def test_the_map_of_another_class(opened: Any, lite0_page: Path, given: Path, lite0: Any) -> None:
    shown, file = opened(lite0_page), given / "coffee.png"
    first = shown.give(file)
    rows = shown.page.locator("#guesses button")
    assert [row.get_attribute("aria-pressed") for row in rows.all()] == ["true", *["false"] * 4]
    second = rows.nth(1).locator("span").first.inner_text()
    rows.nth(1).focus()
    shown.page.keyboard.press("Enter")
    answer = shown.answered(f"heatmap of {second}")
    place = int(rows.nth(1).get_attribute("data-class"))
    wanted = fovea.explain(lite0, file, method="l2caf", target=place)[0].map()
    assert np.abs(cells(answer) - wanted).max() < 1e-3
    assert np.abs(cells(answer) - cells(first)).max() > 1e-2
    assert [row.get_attribute("aria-pressed") for row in rows.all()] == ["false", "true", *["false"] * 3]
    name = shown.page.get_by_role("combobox", name="Map of another class")
    name.fill("Tabby")
    name.press("Enter")
    answer = shown.answered("heatmap of tabby")
    wanted = fovea.explain(lite0, file, method="l2caf", target="tabby")[0].map()
    assert np.abs(cells(answer) - wanted).max() < 1e-3
    name.fill("tabbies")
    name.press("Enter")
    assert "no class tabbies" in shown.refused()


PREPARED = {
    "crop": Prepare((48, 64)),
    "crop of all": Prepare((64, 64), crop=1.0, interpolation="bilinear"),
    "squash": Prepare((40, 72), crop=None, interpolation="lanczos"),
    "nearest": Prepare((33, 47), crop=None, interpolation="nearest"),
    "padded": Prepare((64, 48), mean=(0.5, 0.25, 0.125), crop=None, whole=True),
    "steps": Prepare((64, 64), crop=None, whole=True, step=8, interpolation="bilinear"),
}


@in_browser
def test_pictures_are_prepared_to_the_byte(opened: Any, given: Path, tmp_path: Path) -> None:
    shown = opened(made_page(tmp_path))
    shown.give(given / "small.png")
    for name, prepare in PREPARED.items():
        shown.page.evaluate("how => { fovea.about.input = how }", asdict(prepare) | SIZES)
        for file in (given / kind for kind in ("larger.jpg", "long.png", "narrow.png", "through.png", "turned.jpg")):
            answer = shown.give(file)
            wanted = prepare.pixels(read_bytes(file.read_bytes(), file.name)).permute(1, 2, 0).numpy()
            assert np.array_equal(np.reshape(answer["prepared"], answer["shape"]), wanted), (name, file.name)
            channel = np.rint(255 * cells(answer))  # of the best class
            assert np.array_equal(channel, wanted[..., answer["explained"]]), (name, file.name)


@in_browser
def test_gray_networks_get_gray(opened: Any, given: Path, tmp_path: Path) -> None:
    prepare = Prepare((32, 32), mean=(0.5,), std=(0.5,))
    answer = opened(made_page(tmp_path, prepare, labels=["all"], several=True)).give(given / "coffee.png")
    wanted = prepare.pixels(Image.open(given / "coffee.png"))[0].numpy()
    assert np.array_equal(np.rint(255 * cells(answer)), wanted)


@in_browser
@pytest.mark.parametrize("several", [False, True])
def test_probabilities_are_calibrated(opened: Any, given: Path, tmp_path: Path, several: bool) -> None:
    answer = opened(made_page(tmp_path, temperature=0.1, several=several)).give(given / "coffee.png")
    logits = np.array(answer["logits"]) / 0.1
    powers = np.exp(logits)
    wanted = 1 / (1 + np.exp(-logits)) if several else powers / powers.sum()
    assert np.array(answer["shares"]) == pytest.approx(wanted, abs=1e-6)
    assert np.ptp(wanted) > 0.05


@in_browser
def test_a_network_without_classes(opened: Any, given: Path, tmp_path: Path) -> None:
    shown = opened(made_page(tmp_path, labels=None))
    shown.give(given / "coffee.png")
    assert "heatmap of the whole output" in shown.page.locator("#status").inner_text()
    assert shown.page.locator("#guesses *").count() == 0
    assert shown.page.locator("#others").is_hidden()


@in_browser
def test_the_map_lies_where_its_cells_are(opened: Any, tmp_path: Path) -> None:
    """A bright square in a dark picture, cropped at its sides, which are hatched."""
    picture = Image.new("RGB", (300, 100), "black")
    picture.paste("white", (130, 20, 170, 60))
    picture.save(tmp_path / "square.png")
    shown = opened(made_page(tmp_path, Prepare((50, 50), crop=1.0)))
    answer = shown.give(tmp_path / "square.png")
    assert np.abs(np.multiply(answer["map"]["box"], [300, 100, 300, 100]) - [130, 20, 170, 60]).max() <= 2
    drawn = shown.page.locator(".layer .box").bounding_box()
    photo = shown.page.locator("#photo").bounding_box()
    across = (drawn["x"] - photo["x"]) / photo["width"], (drawn["x"] + drawn["width"] - photo["x"]) / photo["width"]
    assert across == pytest.approx((130 / 300, 170 / 300), abs=0.01)
    code = "canvas => [...canvas.getContext('2d').getImageData(0, 40, 300, 1).data]"
    opacity = np.array(shown.page.locator(".layer canvas").evaluate(code))[3::4]
    assert opacity[135:165].min() > 190
    assert opacity[102:125].max() == 0  # seen, and nothing there
    assert set(opacity[:98]) == {0, 150}  # lines over what was not
    assert "hottest" in shown.page.locator(".layer").get_attribute("aria-label")
    shown.page.locator("[name=fade]").fill("20")
    assert shown.page.locator(".layer canvas").evaluate("canvas => getComputedStyle(canvas).opacity") == "0.2"
    shown.page.locator("[name=boxes]").uncheck()
    assert shown.page.locator(".layer .box").is_hidden()


@in_browser
@pytest.mark.parametrize("kind", ["drop", "paste"])
def test_a_dropped_and_a_pasted_picture(opened: Any, given: Path, tmp_path: Path, kind: str) -> None:
    shown = opened(made_page(tmp_path))
    shown.page.evaluate(DROPPED, [kind, "given.jpg", list((given / "tall.jpg").read_bytes())])  # before it is ready
    answer = shown.answered("given.jpg: heatmap of")
    wanted = Prepare((48, 64)).pixels(Image.open(given / "tall.jpg"))[answer["explained"]].numpy()
    assert np.array_equal(np.rint(255 * cells(answer)), wanted)


@in_browser
def test_of_two_pictures_at_once_the_last_is_shown(opened: Any, given: Path, tmp_path: Path) -> None:
    shown = opened(made_page(tmp_path))
    for name in ("larger.jpg", "small.png"):
        shown.page.evaluate(DROPPED, ["drop", name, list((given / name).read_bytes())])
    answer = shown.answered("small.png: heatmap of")
    wanted = Prepare((48, 64)).pixels(Image.open(given / "small.png"))[answer["explained"]].numpy()
    assert np.array_equal(np.rint(255 * cells(answer)), wanted)


@in_browser
def test_what_is_no_picture_is_refused_in_words(opened: Any, given: Path, tmp_path: Path) -> None:
    shown = opened(made_page(tmp_path))
    (tmp_path / "notes.png").write_text("no picture <img src=x onerror=alert(1)>")
    (tmp_path / "empty.jpg").write_bytes(b"")
    Image.new("RGB", (1, 5)).save(tmp_path / "thin.png")
    Image.new("1", (20_000, 5_001)).save(tmp_path / "huge.png")
    words = {"notes.png": "not a picture", "empty.jpg": "not a picture", "thin.png": "at least 2 x 2"}
    words["huge.png"] = "20,000 x 5,001 pixels: more than 100,000,000"
    for name, reason in words.items():
        shown.page.set_input_files("#file", tmp_path / name)
        shown.page.locator("#alert", has_text=name).wait_for()
        assert reason in shown.refused()
        assert shown.page.locator("#status.busy").count() == 0
    shown.give(given / "small.png")
    assert shown.page.locator("#alert").is_hidden()


@in_browser
def test_words_of_a_graph_do_nothing(opened: Any, given: Path, tmp_path: Path) -> None:
    """Nor does anything else that the page's own script does not do: it has no way out, not even to its own folder."""
    evil = "</script><script>window.bad = 1</script><img src=x onerror='window.bad = 1'>{x}"
    labels = [evil, *COLORS[1:]]
    shown = opened(made_page(tmp_path, net=evil, method=evil, labels=labels))
    shown.give(given / "coffee.png")
    assert shown.page.evaluate("window.bad") is None
    assert evil in shown.page.locator("h1").inner_text()
    rules = shown.page.locator("meta[http-equiv]").get_attribute("content")
    assert "default-src 'none'" in rules
    assert not re.search(r"\*|https?:|file:|'self'|blob:|connect-src|worker-src|script-src[^;]*'unsafe-inline'", rules)
    for address in ("http://127.0.0.1:9/", shown.file.as_uri()):
        assert shown.page.evaluate("url => fetch(url).then(() => 'out', () => 'kept')", address) == "kept"
    assert all("Content Security Policy" in words or "Fetch" in words for words in shown.said)
    shown.said.clear()
    shown.asked[1:] = []


@in_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_is_out_of_reach(opened: Any, lite0_page: Path, given: Path, scheme: str) -> None:
    """By axe-core's rules; and a narrow page does not scroll sideways."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shown = opened(lite0_page, color_scheme=scheme)
    for state in ("empty", "answered"):
        if state == "answered":
            shown.give(given / "coffee.png")
        shown.page.set_viewport_size(DESKTOP)
        shot(shown.page, f"{state}-desktop-{scheme}")
        found = axe.run(shown.page).response["violations"]
        bad = [rule for rule in found if rule["impact"] in ("serious", "critical")]
        assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in bad] == []
        shown.page.set_viewport_size(PHONE)
        shot(shown.page, f"{state}-phone-{scheme}")
        assert shown.page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    shown.page.keyboard.press("Tab")
    assert shown.page.evaluate("document.activeElement.id") == "file"


def shot(page: Any, name: str) -> None:
    """Kept to look at."""
    page.screenshot(path=Path(__file__).parents[2] / "out" / "export" / f"{name}.png", full_page=True)


def test_what_a_page_cannot_run_is_refused(tmp_path: Path) -> None:
    graph = made(tmp_path / "made.onnx", Prepare((48, 64)))
    model = onnx.load(graph)
    del model.metadata_props[:]
    onnx.save(model, tmp_path / "plain.onnx")
    with pytest.raises(BadNetwork, match="no graph that 'fovea export' wrote"):
        write_page(tmp_path / "plain.onnx", tmp_path / "page.html")
    model = onnx.load(graph)
    model.graph.input[0].name = "tensors"
    onnx.save(model, tmp_path / "tensors.onnx")
    with pytest.raises(BadChoice, match="fovea's own transform"):
        write_page(tmp_path / "tensors.onnx", tmp_path / "page.html")
    onnx.save(onnx.load(graph), tmp_path / "apart.onnx", save_as_external_data=True, size_threshold=0)
    with pytest.raises(BadNetwork, match="in a file beside it"):
        write_page(tmp_path / "apart.onnx", tmp_path / "page.html")
    assert not (tmp_path / "page.html").exists()


def test_a_page_is_the_same_every_time(tmp_path: Path) -> None:
    graph = made(tmp_path / "made.onnx", replace(Prepare((48, 64)), step=8))
    pages = [write_page(graph, tmp_path / name).read_bytes() for name in ("first.html", "second.html")]
    assert pages[0] == pages[1]
    assert b"Permission is hereby granted" in pages[0]  # the runtime's license goes with it
