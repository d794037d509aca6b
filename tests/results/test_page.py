"""The page of results in a real browser, from a file: what it shows, what it asks for, and what names can do to it."""

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import fovea
from fovea.pictures import Placement
from fovea.results import Overlay, Panel, Part, Results, Shows, View, drawing, views

pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
SIZE = (160, 120)
HOSTILE = ('"><img src=x onerror=alert(1)>.jpg', "</script><script>alert(2)</script>", "'; alert(3); '<b>&amp;")


class Opened:
    """A page in the browser: what it said, what it asked for, whether it was made to do what it should not."""

    def __init__(self, browser: Any, file: Path) -> None:
        self.page = browser.new_page(viewport={"width": 1200, "height": 800})
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.said.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def painted(self, count: int = 1) -> None:
        ready = "n => [...document.querySelectorAll('canvas')].filter(canvas => canvas.width > 0).length >= n"
        self.page.wait_for_function(ready, arg=count)

    def names(self) -> list[str]:
        shown: list[str] = self.page.locator("article:not([hidden]) h3").all_text_contents()
        return shown

    def pixels(self, place: int = 0) -> NDArray[np.uint8]:
        """H,W,4 of a painted map."""
        code = """(canvas) => [canvas.width, canvas.height,
            Array.from(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data)]"""
        width, height, values = self.page.locator("canvas").nth(place).evaluate(code)
        return np.array(values, dtype=np.uint8).reshape(height, width, 4)


@pytest.fixture
def opened(browser: Any) -> Iterator[Any]:
    pages: list[Opened] = []

    def open_page(file: Path) -> Opened:
        pages.append(Opened(browser, file))
        return pages[-1]

    yield open_page
    for page in pages:
        page.page.close()


@dataclass(frozen=True, repr=False)
class Made(Shows):
    """A photograph of one color with two maps of 3 x 4 cells."""

    name: str
    label: str = "ox"
    probability: float | None = 0.5
    boxes: Any = ()
    cells: NDArray[np.float32] = field(default_factory=lambda: np.eye(3, 4, dtype=np.float32))

    def draw(self) -> Image.Image:
        return Image.new("RGB", SIZE, (200, 40, 40))

    def view(self) -> View:
        place = Placement(SIZE, (32, 24), (5.0, 5.0), (0.0, 0.0))
        maps = [Overlay(how, f"{self.label} 0.50", self.cells, place, (0, 0, 40, 40)) for how in ("cam", "l2caf")]
        return View((Panel(self.draw),), tuple(maps), ((self.label, 0.5), ("other", 0.25)))

    def to_dict(self) -> dict[str, Any]:
        return {"label": self.label, "probability": self.probability}


def folder(path: Path, *results: Any) -> Path:
    Results(results, what="explain", settings={"net": "made"}).save(path)
    return path / "index.html"


def test_thumbnails_and_maps_come_as_one_scrolls(opened: Any, tmp_path: Path) -> None:
    shown = opened(folder(tmp_path, *(Made(f"photo {number}.png") for number in range(150))))
    shown.painted(4)
    count, first = shown.page.locator("article").count(), set(shown.asked)
    assert count == 150
    assert sum(url.endswith(".jpg") for url in first) < 60
    assert sum(url.endswith(".js") for url in first) < 20
    shown.page.locator("article").last.scroll_into_view_if_needed()
    shown.page.wait_for_function("document.querySelectorAll('article')[149].querySelectorAll('canvas').length === 2")
    shown.page.wait_for_function("document.querySelectorAll('article')[0].querySelector('canvas').width === 0")
    assert any("149.js" in url for url in set(shown.asked) - first)
    assert shown.said == []


def test_search_and_sort(opened: Any, tmp_path: Path) -> None:
    rows = [("b 10.png", "ox", 0.9), ("b 9.png", "cat", 0.2), ("a.png", "Ox", None), ("c.png", "dog", 0.5)]
    shown = opened(folder(tmp_path, *(Made(*row) for row in rows)))
    assert shown.page.locator("output").inner_text() == "4"
    shown.page.fill("input[type=search]", "OX b")
    assert shown.names() == ["b 10.png"]
    assert shown.page.locator("output").inner_text() == "1 of 4"
    shown.page.fill("input[type=search]", "")
    expected = {
        "name": ["a.png", "b 9.png", "b 10.png", "c.png"],  # numbers by their value
        "sure": ["b 10.png", "c.png", "b 9.png", "a.png"],
        "given": [name for name, _, _ in rows],
    }
    for order, names in expected.items():
        shown.page.select_option("select", order)
        assert shown.names() == names
    shown.page.select_option("select", "label")
    assert shown.names()[:2] == ["b 9.png", "c.png"]
    assert shown.said == []


def test_the_slider_fades_the_map_and_leaves_the_photograph(opened: Any, tmp_path: Path) -> None:
    shown = opened(folder(tmp_path, Made("a.png")))
    shown.painted(2)
    shown.page.locator("input[name=boxes]").uncheck()

    def seen(at: int) -> NDArray[np.float32]:
        shown.page.locator("input[type=range]").fill(str(at))
        data = shown.page.locator(".over").first.screenshot()
        (tmp_path / "shot.png").write_bytes(data)
        return np.asarray(Image.open(tmp_path / "shot.png").convert("RGB"), dtype=np.float32)[8:-8, 8:-8]

    full, half, none = seen(100), seen(50), seen(0)
    assert np.abs(none - (200, 40, 40)).max() < 6  # the photograph, as JPEG has it
    assert np.abs(full - none).max() > 100
    assert np.abs(half - (full + none) / 2).max() < 6


def test_names_and_labels_do_nothing(opened: Any, tmp_path: Path) -> None:
    results = [Made(name, label) for name in HOSTILE for label in HOSTILE]
    for file in (folder(tmp_path / "out", *results), Results(results).page(tmp_path / "page.html")):
        shown = opened(file)
        shown.painted(2)
        shown.page.locator("article").last.scroll_into_view_if_needed()
        shown.page.wait_for_timeout(300)
        assert shown.said == []
        assert [name for name in shown.names() if name.startswith('"><img')] == [HOSTILE[0]] * 3
        assert shown.page.locator("article header b").nth(1).text_content() == HOSTILE[1]
        assert all(url.startswith("data:") or url.split("/")[-1] != "x" for url in shown.asked)
        assert shown.page.evaluate("document.querySelectorAll('img[onerror], article b b').length") == 0


def test_one_file_asks_for_nothing(opened: Any, tmp_path: Path) -> None:
    shown = opened(Results([Made("a.png"), Made("b.png")]).page(tmp_path / "page.html"))
    shown.painted(4)
    assert [url for url in shown.asked if not url.startswith("data:")] == [(tmp_path / "page.html").as_uri()]
    assert shown.said == []


class Flipped:
    """The left three quarters of a picture, mirrored, in 48 x 48."""

    def __call__(self, image: Image.Image) -> torch.Tensor:
        part = image.crop((0, 0, image.width * 3 // 4, image.height)).transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        return torch.from_numpy(np.array(part.resize((48, 48)), dtype=np.float32)).permute(2, 0, 1) / 255


class Bright(nn.Module):
    """One class sees light, the other the dark, in cells of 8 x 8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.AvgPool2d(8)
        self.fc = nn.Linear(3, 2)
        self.fc.weight.data = torch.tensor([[1.0, 1.0, 1.0], [-1.0, -1.0, -1.0]])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.fc(self.features(x).mean((2, 3)))
        return out


def test_maps_lie_where_python_puts_them(opened: Any, tmp_path: Path) -> None:
    """Of a transform that crops and flips."""
    pixels = np.zeros((90, 200, 3), dtype=np.uint8)
    pixels[10:40, 20:60] = 255
    Image.fromarray(pixels).save(tmp_path / "spot.png")
    net = fovea.wrap(Bright(), Flipped(), labels=["light", "dark"], layer="features")
    results = fovea.explain(net, tmp_path / "spot.png", method="cam", target="light")
    results.save(tmp_path / "out")
    shown = opened(tmp_path / "out" / "index.html")
    shown.painted(1)
    painted = shown.pixels().astype(np.float32)
    assert painted.shape == (90, 200, 4)
    values = results[0].pixels()
    expected = 255 * drawing.opacity(values / values.max())
    window = results[0].shown.placement.window
    assert window == pytest.approx((0, 0, 150, 90), abs=1.5)
    assert np.abs(painted[:, :148, 3] - expected[:, :148]).max() < 3
    hatched = painted[:, 152:]
    assert set(np.unique(hatched[..., 3])) == {0, 150}
    x0, y0, x1, y1 = results[0].boxes[0]
    frame, box = (shown.page.locator(which).first.bounding_box() for which in (".over", ".over .box"))
    sides = [
        (box["x"] - frame["x"]) / frame["width"] * 200,
        (box["y"] - frame["y"]) / frame["height"] * 90,
        (box["x"] - frame["x"] + box["width"]) / frame["width"] * 200,
        (box["y"] - frame["y"] + box["height"]) / frame["height"] * 90,
    ]
    assert sides == pytest.approx([x0, y0, x1, y1], abs=1.5)


def test_a_map_of_many_cells_is_bounded_and_painted(opened: Any, tmp_path: Path) -> None:
    """As of pixels."""
    cells = np.zeros((224, 224), dtype=np.float32)
    cells[40:90, 100:200] = 1
    shown = opened(folder(tmp_path, Made("a.png", cells=cells)))
    assert (tmp_path / "index_files/a.js").stat().st_size < 2 * views.CELLS
    shown.painted(2)
    opacity = shown.pixels()[..., 3]
    assert opacity.shape == (120, 160)
    rows, columns = np.nonzero(opacity > 100)
    edges = rows.min() / 120, rows.max() / 120, columns.min() / 160, columns.max() / 160
    assert edges == pytest.approx((40 / 224, 90 / 224, 100 / 224, 200 / 224), abs=0.03)


@dataclass(frozen=True, repr=False)
class Figure(Made):
    def view(self) -> View:
        parts = ("", "not so much "), ("mark", "bad <b>"), ("unread", " as bland")
        return View((Panel(self.draw), Panel(self.draw, "second")), words="seen", text=parts)


def test_figures_and_texts(opened: Any, tmp_path: Path) -> None:
    shown = opened(folder(tmp_path, Figure("a.png")))
    shown.page.wait_for_selector("article figure img")
    assert shown.page.locator("mark").inner_text() == "bad <b>"
    assert shown.page.locator("article figcaption").inner_text() == "second"
    assert shown.page.locator("article header .dim").inner_text() == "seen"
    assert shown.page.locator("input[type=range]").count() == 0
    assert shown.said == []


QUARTERS = {"overview": (0, 0, 400, 300), "1": (200, 0, 400, 150), "2": (0, 150, 200, 300), "3": (200, 0, 300, 75)}
INKS = ("#bbbbbb", "#ff0000", "#00ff00", "#0000ff")


@dataclass(frozen=True, repr=False)
class Descent(Made):
    """A red picture of 400 x 300 of which quarters were read, each of the color of its box."""

    deep: bool = False
    maps: bool = False

    def view(self) -> View:
        base = super().view()
        panels = [Panel(lambda ink=ink: Image.new("RGB", (200, 150), ink), f"about {ink}") for ink in INKS]
        levels, ahead = (1, 2, 2, 3), ("", "cat", "", "")
        rows = enumerate(zip(QUARTERS.items(), levels, INKS, ahead, strict=True), 1)
        parts = [Part(name, box, at, level, ink, 0.2 * at, then) for at, ((name, box), level, ink, then) in rows]
        table = (("", "read", "all"), ("pixels", "<b>", "9"))
        overlays = base.overlays[:1] if self.maps else ()
        return View((base.panels[0], *panels), overlays, (), (400, 300), tuple(parts), table, self.deep)


BOXES = """boxes => boxes.filter(box => !box.hidden).map(box => {
    const [at, frame] = [box, box.parentNode].map(element => element.getBoundingClientRect());
    return [(at.left - frame.left) / frame.width, (at.top - frame.top) / frame.height, at.width / frame.width]; })"""


def test_what_was_read_closely_is_shown_by_click_and_by_keys(opened: Any, tmp_path: Path) -> None:
    file = folder(tmp_path, Descent("a.png"))
    assert not list(tmp_path.glob("index_files/openseadragon*"))
    shown = opened(file)
    page = shown.page
    page.wait_for_selector(".closer img")
    expected = [[x0 / 400, y0 / 300, (x1 - x0) / 400] for x0, y0, x1, _ in list(QUARTERS.values())[1:]]
    assert np.abs(np.array(page.locator(".part").evaluate_all(BOXES)) - expected).max() < 1e-3
    assert page.locator(".closer p").inner_text() == "about #0000ff"  # the last
    page.locator(".part", has_text="2").click()
    assert page.locator(".closer p").inner_text() == "about #00ff00"
    assert page.locator(".closer img").evaluate("image => image.src").endswith("a.4.jpg")
    page.locator(".part", has_text="1").hover(position={"x": 5, "y": 100})
    assert page.locator(".steps .lit").text_content() == "0.40glimpse 1, level 2ahead: cat"
    assert page.get_by_role("tab", name=re.compile(r"0.40\s+glimpse\s+1\s*, level 2\s+ahead:\s+cat")).count() == 1
    page.mouse.move(0, 0)
    page.locator("[role=tab]").nth(2).focus()
    assert page.locator(".part.lit").inner_text() == "2"
    for key, name in (
        ("ArrowRight", "glimpse 3"),
        ("ArrowRight", "glimpse 3"),
        ("Home", "overview"),
        ("ArrowRight", "glimpse 1"),
    ):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.querySelector('b').textContent").startswith(name)
    assert page.locator("[role=tab][aria-selected=true] b").text_content() == "glimpse 1, level 2"
    assert page.locator("[role=tabpanel]").get_attribute("aria-labelledby") == page.locator("[role=tab]").nth(
        1
    ).get_attribute("id")
    assert page.locator("[role=tab][tabindex='0']").count() == 1
    assert [page.locator(".costs tr").nth(1).inner_text().split()] == [["pixels", "<b>", "9"]]
    heights = [box["height"] for box in (bar.bounding_box() for bar in page.locator(".bar i").all())]
    assert np.array(heights) / heights[0] == pytest.approx([1, 2, 3, 4], abs=0.1)
    page.set_viewport_size({"width": 390, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") == 390
    assert shown.said == []


@pytest.mark.parametrize("beside", [True, False])
def test_one_zooms_into_a_picture_of_tiles(opened: Any, tmp_path: Path, beside: bool) -> None:
    result = Descent("a.png", deep=True, maps=True)
    shown = opened(folder(tmp_path, result) if beside else Results([result]).page(tmp_path / "page.html"))
    page, world = shown.page, "document.querySelector('article').viewer?.world"
    page.wait_for_function(f"{world}?.getItemCount() === 4 && document.querySelector('.viewer canvas')")
    code = f"[0, 1, 2, 3].map(i => {world}.getItemAt(i).getBounds()).map(b => [b.x, b.y, b.width, b.height])"
    boxes = [QUARTERS[name] for name in ("overview", "1", "2", "3")]
    expected = [[x0 / 400, y0 / 400, (x1 - x0) / 400, (y1 - y0) / 400] for x0, y0, x1, y1 in boxes]
    assert np.abs(np.array(page.evaluate(code)) - expected).max() < 1e-6
    shown.painted(1)
    page.locator("input[type=range]").fill("0")
    page.locator("input[name=boxes]").uncheck()

    page.wait_for_function(f"{world}.getItemAt(3).getFullyLoaded()")
    page.evaluate(
        "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done, 100))))"
    )
    frame, shot = page.locator(".picture").bounding_box(), page.locator(".picture").screenshot()
    (tmp_path / "shot.png").write_bytes(shot)
    values = np.asarray(Image.open(tmp_path / "shot.png").convert("RGB"))
    home = page.evaluate(
        "(b => [b.x, b.y, b.width])(document.querySelector('article').viewer.viewport.getBounds(true))"
    )
    for box, ink in zip(boxes[1:], (0, 1, 2), strict=True):  # a little inside of its corner
        x, y = ((side - 5) / 400 for side in box[2:])
        at = [round((side - start) / home[2] * frame["width"]) for side, start in zip((x, y), home[:2], strict=True)]
        assert values[at[1], at[0]].argmax() == ink
    page.locator("input[name=boxes]").check()
    page.locator(".part", has_text="3").click()
    assert page.locator(".closer p").inner_text() == "about #0000ff"
    wide = "limit => document.querySelector('.part.chosen').getBoundingClientRect().width > limit"
    page.wait_for_function(wide, arg=250)  # it flies there
    page.keyboard.press("0")
    page.wait_for_function(f"!({wide})(150)")
    own = [url for url in shown.asked if not url.startswith("data:")]
    assert all(url.startswith(tmp_path.as_uri()) for url in own)
    assert any("openseadragon" in url for url in own) == beside
    assert shown.said == []


def test_maps_that_another_run_made_of_a_big_picture_lie_over_its_descent(opened: Any, tmp_path: Path) -> None:
    folder(tmp_path, Descent("a.png", deep=True, maps=True), Descent("b.png", deep=True, maps=True))
    Results([Descent("a.png", deep=True)], what="zoom").save(tmp_path)
    shown = opened(tmp_path / "index.html")
    zoom = shown.page.locator("article").first
    zoom.locator(".viewer .layer").wait_for(state="attached")
    assert zoom.locator("option").all_inner_texts() == ["no map", "cam: ox 0.50"]
    assert not zoom.locator(".layer canvas").is_visible()
    zoom.locator("select").select_option("cam: ox 0.50")
    assert zoom.locator(".layer canvas").is_visible()
    shown.page.wait_for_function(  # once it is laid out
        """() => { const [view, map] = [".viewer", ".viewer .layer"].map(name =>
            document.querySelector(name).getBoundingClientRect());
        const share = Math.max(map.width / view.width, map.height / view.height);
        return Math.abs(map.width / map.height - 4 / 3) < 0.01 && Math.abs(share - 1) < 0.02 }"""
    )
    assert shown.said == []


def test_without_a_script_there_are_photographs_and_labels(browser: Any, tmp_path: Path) -> None:
    file = folder(tmp_path, Made("a.png"), Made("b.png", "cat"))
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.locator("article h3").all_inner_texts() == ["a.png", "b.png"]
    assert page.locator("article header b").all_inner_texts() == ["ox", "cat"]
    assert page.locator("article img").count() == 2
    assert not page.locator("form").is_visible()
    context.close()
