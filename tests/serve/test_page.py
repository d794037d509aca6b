"""The living page in a real browser, against a real service: what it shows, what it asks for, and by which means."""

import json
import re
import shutil
import time
import urllib.request
from collections.abc import Callable, Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

pytest.importorskip("playwright.sync_api")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium")
VIEWS = ("look", "explain", "compare", "localize", "zoom", "text", "sanity")
DESKTOP, PHONE = {"width": 1360, "height": 900}, {"width": 360, "height": 740}
LONG = 90_000  # milliseconds that the slowest answer may take on a busy machine
PAINTED = """canvas => { const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
    return [canvas.width, canvas.height, Array.from(pixels.filter((_, place) => place % 4 === 3))]; }"""


class Opened:
    """The page: what it said, what it asked for."""

    def __init__(self, browser: Any, service: str, query: str = "", **options: Any) -> None:
        self.service = service
        self.context = browser.new_context(**{"viewport": DESKTOP} | options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(LONG)
        self.refused = False  # the service is expected to refuse, which the console tells
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self._hear(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(f"{service}/{query}")

    def _hear(self, words: str) -> None:
        if not (self.refused and "Failed to load resource" in words):
            self.said.append(words)

    def answered(self, words: str = "") -> None:
        """Once it is done with what it was asked."""
        status = self.page.locator("#status:not(.busy) [role=status]:not(:empty)")
        (status.filter(has_text=words) if words else status).wait_for()

    def until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + LONG / 1000
        while not holds():
            assert time.monotonic() < end
            self.page.wait_for_timeout(50)

    def opacities(self) -> NDArray[np.float64]:
        """H,W of the map that lies over the picture."""
        width, height, values = self.page.locator("#photo .layer canvas").first.evaluate(PAINTED)
        return np.array(values, dtype=float).reshape(height, width)

    def boxes(self) -> NDArray[np.float64]:
        """x0 y0 x1 y1 of those over the picture, in shares of it."""
        code = """() => [...document.querySelectorAll("#photo :is(.box, .part):not([hidden])")].map(box => {
            const [at, frame] = [box, box.closest(".picture")].map(element => element.getBoundingClientRect());
            const [x, y] = [frame.left, frame.top];
            return [(at.left - x) / frame.width, (at.top - y) / frame.height,
                (at.right - x) / frame.width, (at.bottom - y) / frame.height]; })"""
        return np.array(self.page.evaluate(code)).reshape(-1, 4)

    def slide(self, name: str, value: str) -> None:
        self.page.locator(f"input[name={name}]").fill(value)


@pytest.fixture
def opened(browser: Any, service: str) -> Iterator[Any]:
    pages: list[Opened] = []

    def open_page(query: str = "", **options: Any) -> Opened:
        pages.append(Opened(browser, service, query, **options))
        return pages[-1]

    yield open_page
    for page in pages:
        page.context.close()
        assert page.said == []
        assert all(url.startswith((page.service, "blob:", "data:")) for url in page.asked)


@pytest.fixture(scope="module")
def coffee(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pictures") / "cup of coffee.jpg"
    Image.open(str(files("skimage.data").joinpath("coffee.png"))).convert("RGB").save(path, quality=92)
    return path


def posted(service: str, verb: str, **fields: Any) -> Any:
    body = json.dumps(fields).encode()
    request = urllib.request.Request(f"{service}/v1/{verb}", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


def shot(page: Any, name: str) -> None:
    """Kept to look at."""
    page.screenshot(path=Path(__file__).parents[2] / "out" / "serve" / f"{name}.png", full_page=True)


def test_a_picture_is_uploaded_and_its_heatmap_lies_where_it_should(opened: Any, service: str, coffee: Path) -> None:
    shown = opened("?view=explain")
    shown.page.set_input_files("#file", coffee)
    shown.answered("Heatmap of espresso")
    assert sum(url.endswith("/v1/pictures") for url in shown.asked) == 1
    assert sum(url.endswith("/v1/explain") for url in shown.asked) == 1
    opacity = shown.opacities()
    assert opacity.max() > 120
    assert opacity.shape[1] / opacity.shape[0] == pytest.approx(1.5, abs=0.01)
    rows, columns = np.indices(opacity.shape)
    height, width = opacity.shape
    middle = [(places * opacity).sum() / opacity.sum() for places in (columns / width, rows / height)]
    row = posted(service, "explain", picture_id="example:coffee")["results"][0]
    x0, y0, x1, y1 = row["maps"][0]["boxes"][0]
    assert x0 / 600 < middle[0] < x1 / 600
    assert y0 / 400 < middle[1] < y1 / 400
    assert np.abs(shown.boxes() - [[x0 / 600, y0 / 400, x1 / 600, y1 / 400]]).max() < 0.02  # JPEG moves it a little
    assert "espresso" in shown.page.locator(".layer").first.get_attribute("aria-label")


def test_a_dropped_and_a_pasted_picture(opened: Any, coffee: Path) -> None:
    shown = opened("?view=explain")
    code = """([kind, values]) => { const data = new DataTransfer();
        data.items.add(new File([new Uint8Array(values)], "dropped.jpg", { type: "image/jpeg" }));
        document.dispatchEvent(kind === "drop" ? new DragEvent(kind, { dataTransfer: data, cancelable: true })
            : new ClipboardEvent(kind, { clipboardData: data })); }"""
    for kind in ("drop", "paste"):
        shown.page.evaluate(code, [kind, list(coffee.read_bytes())])
        shown.answered("Heatmap of espresso")
        shown.page.get_by_role("combobox", name="Class", exact=True).fill("cup")
        shown.page.keyboard.press("Enter")
        shown.answered("Heatmap of cup")
        shown.page.locator("button.guess").first.click()  # a class by its bar
        shown.answered("Heatmap of espresso")
    assert sum(url.endswith("/v1/pictures") for url in shown.asked) == 2


def test_another_class_has_another_map_and_layers_change_without_a_request(opened: Any) -> None:
    shown = opened("?view=explain&example=coffee")
    shown.answered()
    first = shown.opacities()
    field = shown.page.get_by_role("combobox", name="Class", exact=True)
    field.fill("candl")
    shown.page.get_by_role("option", name="candle", exact=True).click()
    shown.answered("Heatmap of candle")
    assert np.abs(shown.opacities() - first).max() > 50
    asked = len(shown.asked)
    shown.slide("opacity", "30")
    assert shown.page.locator("#photo canvas").evaluate("canvas => getComputedStyle(canvas).opacity") == "0.3"
    shown.page.get_by_label("Blend").select_option("screen")
    assert shown.page.locator("#photo canvas").evaluate("canvas => getComputedStyle(canvas).mixBlendMode") == "screen"
    shown.page.get_by_label("Boxes").uncheck()
    assert not shown.page.locator("#photo .box").is_visible()
    assert len(shown.asked) == asked
    shown.until(lambda: "opacity=30" in shown.page.url)


def test_lips_sliders_change_the_patches_and_never_pile_up(opened: Any) -> None:
    shown = opened("?view=localize&example=coffee")
    shown.answered()
    usual = len(shown.boxes())
    assert shown.page.get_by_label("Most patches (K)").input_value() == str(usual)
    flying, most = 0, 0

    def begun(request: Any) -> None:
        nonlocal flying, most
        flying += request.url.endswith("/v1/localize")
        most = max(most, flying)

    def ended(request: Any) -> None:
        nonlocal flying
        flying -= request.url.endswith("/v1/localize")

    shown.page.on("request", begun)
    shown.page.on("requestfinished", ended)
    for share in np.linspace(0.1, 1, 10):
        shown.slide("share", f"{share:.2f}")
    for overlap in np.linspace(0.5, 0.9, 9):
        shown.slide("overlap", f"{overlap:.2f}")
    for count in range(1, 9):
        shown.slide("count", str(count))
    shown.until(lambda: len(shown.boxes()) == 8)
    assert most == 1
    shown.slide("count", "1")
    shown.until(lambda: len(shown.boxes()) == 1)
    assert shown.page.locator("#below [role=tab]").count() == 1


def test_on_a_phone_patches_are_seen_while_a_slider_moves(opened: Any) -> None:
    shown = opened("?view=localize&example=coffee", viewport=PHONE)
    shown.answered()
    slider = shown.page.get_by_label("Share of cells looked at (P)")
    slider.scroll_into_view_if_needed()
    slider.focus()
    picture, moved = shown.page.locator(".picture").bounding_box(), slider.bounding_box()
    assert picture["y"] >= 0
    assert picture["y"] + picture["height"] < moved["y"]
    assert moved["y"] + moved["height"] <= PHONE["height"]


def test_a_slider_that_is_moved_before_the_first_answer_stays_where_it_is(opened: Any) -> None:
    shown, first = opened("?view=localize"), list[Any]()

    def hold(route: Any) -> None:
        first.append(route) if not first else route.continue_()

    shown.page.route("**/v1/localize", hold)
    shown.page.locator("select[name=example]").select_option("coffee")
    shown.until(lambda: bool(first))
    shown.slide("count", "2")
    first[0].continue_()
    shown.until(lambda: len(shown.boxes()) == 2)
    assert shown.page.locator("input[name=count]").input_value() == "2"


def test_patches_lie_where_the_service_says(opened: Any, service: str) -> None:
    shown = opened("?view=localize&example=coffee&net=anchornet-imagenette&branch=63&count=4")
    shown.answered()
    fields = {"net": "anchornet-imagenette", "branch": 63, "count": 4, "overlap": 0.5, "share": 0.05}
    row = posted(service, "localize", picture_id="example:coffee", **fields)["results"][0]
    boxes = np.array([patch["box"] for patch in row["patches"]]) / [600, 400, 600, 400]
    assert len(boxes) == 4
    assert np.abs(shown.boxes() - boxes).max() < 1e-3
    assert shown.page.get_by_label("Branch").locator("option").count() == 4


def test_the_budget_changes_what_is_read(opened: Any) -> None:
    shown = opened("?view=zoom&example=motorcycle&glimpses=1")
    shown.answered("after 1 glimpses")
    read = shown.page.locator("#answer table").inner_text()
    assert len(shown.boxes()) == 1
    shown.slide("glimpses", "6")
    shown.answered("after 6 glimpses")
    assert len(shown.boxes()) == 6
    assert shown.page.locator("#below [role=tab]").count() == 7  # with the overview
    assert shown.page.locator("#answer table").inner_text() != read
    size = shown.page.locator(".closer img").evaluate("image => [image.naturalWidth, image.naturalHeight]")
    assert max(size) == 128  # as it was read


def test_typing_marks_a_span(opened: Any) -> None:
    shown = opened("?view=text")
    shown.answered("really not so much bad as bland")
    shown.page.get_by_label("A sentence of a film review").fill("")
    shown.answered("Type a sentence")
    shown.page.keyboard.type("I say 🎬: a funny , moving and wonderful film from start to end")
    shown.until(lambda: shown.page.locator("#answer .words").inner_text().startswith("positive"))
    shown.until(lambda: shown.page.locator(".sentence").inner_text().rstrip().endswith("start to end"))  # all of it
    assert "🎬" in shown.page.locator(".sentence").inner_text()
    marked = shown.page.locator(".sentence mark").inner_text()
    assert "wonderful" in marked or "moving" in marked
    assert shown.page.locator("#answer tbody tr").count() == 3  # one per branch


def test_a_look_shows_what_is_enough_and_what_is_needed(opened: Any, service: str) -> None:
    shown = opened("?example=coffee")
    shown.page.locator("#photo canvas").wait_for()  # a first heatmap, before the rest
    shown.answered("all of its evidence")
    assert "is enough" in shown.page.locator("#answer .words").inner_text()
    row = posted(service, "look", picture_id="example:coffee")["results"][0]
    for name, drawn in (("enough", "M0 0H600V400H0Z"), ("needed", "")):
        shown.page.locator(f"#choice label:has([value={name}])").click()
        path = shown.page.locator("#photo .cover path").get_attribute("d")
        expected = "".join(f"M{x0:g} {y0:g}H{x1:g}V{y1:g}H{x0:g}Z" for x0, y0, x1, y1 in row[name]["boxes"])
        assert path == drawn + expected
    shown.page.locator("#choice label:has([value=contrast])").click()
    assert "rather than" in shown.page.locator("#photo .layer").get_attribute("aria-label")
    assert shown.page.locator("#answer tr", has_text="random last layer").count() == 1


def test_two_maps_are_wiped_by_pointer_and_by_keys(opened: Any) -> None:
    shown = opened("?view=explain&example=coffee&against=yes&method2=gradcam&class2=candle")
    shown.answered("Two maps")
    wipe = shown.page.get_by_role("slider", name=re.compile("wipe between l2caf: espresso .* and gradcam: candle"))
    clip = "layer => parseFloat(layer.style.clipPath.split(' ').pop())"
    second = shown.page.locator(".wiping .layer").nth(1)
    assert second.evaluate(clip) == 50
    wipe.press("ArrowRight")
    assert second.evaluate(clip) == 51
    frame = shown.page.locator(".picture").bounding_box()
    shown.page.mouse.click(frame["x"] + frame["width"] / 4, frame["y"] + 20)
    assert second.evaluate(clip) == pytest.approx(25, abs=1)
    line = shown.page.locator(".line").bounding_box()
    share = (line["x"] + line["width"] / 2 - frame["x"]) / frame["width"]
    assert share == pytest.approx(second.evaluate(clip) / 100, abs=0.005)
    shown.page.get_by_label("Blend").select_option("multiply")
    assert second.evaluate("layer => getComputedStyle(layer).mixBlendMode") == "multiply"
    field = shown.page.get_by_role("combobox", name="Class", exact=True)
    field.fill("top 5")
    shown.page.keyboard.press("Enter")
    shown.answered("l2caf: espresso")  # one of the five is wiped against the other class
    assert "gradcam: candle" in shown.page.locator(".side-tag.right").inner_text()


def test_a_bad_file_is_told_in_words_and_the_picture_stays(opened: Any, tmp_path: Path) -> None:
    shown = opened("?view=explain&example=coffee")
    shown.answered("espresso")
    shown.refused = True
    (tmp_path / "notes.jpg").write_text("these are no pixels")
    shown.page.set_input_files("#file", tmp_path / "notes.jpg")
    alert = shown.page.get_by_role("alert")
    alert.wait_for()
    assert "notes.jpg" in alert.inner_text()
    assert shown.page.locator("#photo canvas").is_visible()
    shown.page.get_by_label("Method", exact=True).select_option("rollout")  # for transformers
    shown.until(lambda: "self-attention" in alert.inner_text())
    assert shown.page.locator("#photo canvas").count() == 0  # the map before is not of this method


@pytest.mark.parametrize("view", ["compare", "sanity"])
def test_what_went_wrong_leaves_no_older_result(opened: Any, view: str) -> None:
    shown = opened(f"?view={view}&example=coffee&methods=gradcam")
    shown.answered()
    drawn = shown.page.locator("#photo figure")
    assert drawn.count() >= 1
    shown.refused = True
    shown.page.route("**/v1/*", lambda route: route.fulfill(status=422, json={"detail": "it does not work"}))
    if view == "sanity":
        shown.page.get_by_label("Method", exact=True).select_option("gradcam")
    else:
        shown.page.get_by_label("layercam", exact=True).check()
    shown.page.get_by_role("alert").filter(has_text="it does not work").wait_for()
    assert drawn.count() == 0
    assert shown.page.locator("#photo .picture").count() == 1


def test_without_a_text_there_is_no_answer(opened: Any) -> None:
    shown = opened("?view=text")
    shown.answered("bland")
    shown.page.get_by_label("A sentence of a film review").fill("")
    shown.answered("Type a sentence")
    assert not shown.page.locator("#answer").is_visible()
    assert not shown.page.locator("#downloads").is_visible()
    assert shown.page.locator(".sentence").inner_text() == ""


def test_an_error_stays_until_one_does_something_else(opened: Any, tmp_path: Path) -> None:
    """What was at work when it came does not take it away."""
    shown, looking = opened(), list[Any]()
    shown.page.route("**/v1/look", lambda route: looking.append(route))
    shown.page.locator("select[name=example]").select_option("coffee")
    shown.until(lambda: bool(looking))
    shown.refused = True
    (tmp_path / "notes.jpg").write_text("these are no pixels")
    shown.page.set_input_files("#file", tmp_path / "notes.jpg")
    alert = shown.page.get_by_role("alert").filter(has_text="notes.jpg")
    alert.wait_for()
    looking[0].continue_()
    shown.answered("all of its evidence")
    assert alert.is_visible()
    shown.page.get_by_role("tab", name="Explain").click()
    shown.answered("Heatmap of espresso")
    assert not alert.is_visible()


def test_a_slow_upload_holds_nothing_up(opened: Any, coffee: Path) -> None:
    shown, coming = opened("?view=explain"), list[Any]()
    shown.page.locator(".example").nth(3).wait_for()
    shown.page.route("**/v1/pictures", lambda route: coming.append(route))
    shown.page.set_input_files("#file", coffee)
    shown.until(lambda: bool(coming))
    shown.page.locator("select[name=example]").select_option("cat")
    shown.answered("Heatmap of")
    assert shown.page.locator("#photo img").get_attribute("alt") == "cat"
    coming[0].abort()
    shown.refused = True


def test_what_took_too_long_is_not_asked_for_again(opened: Any) -> None:
    shown, asked = opened("?view=explain"), list[str]()
    shown.refused = True
    shown.page.locator(".example").nth(3).wait_for()
    shown.page.evaluate("() => { const now = performance.now.bind(performance); let more = 0;"
                        " performance.now = () => now() + (more += 6000); }")  # fmt: skip

    def late(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(status=503, headers={"Retry-After": "1"}, json={"detail": "it took longer than 60 s"})

    shown.page.route("**/v1/explain", late)
    shown.page.locator("select[name=example]").select_option("cat")
    shown.page.get_by_role("alert").filter(has_text="longer than 60 s").wait_for()
    assert len(asked) == 1


def test_methods_that_do_not_apply_leave_the_others(opened: Any) -> None:
    shown = opened("?view=compare&example=coffee&methods=l2caf,rollout")
    shown.answered("1 map of espresso")
    assert "rollout does not apply" in shown.page.locator("body").inner_text()


def test_a_busy_service_is_waited_for_and_a_lost_picture_is_sent_again(opened: Any, coffee: Path) -> None:
    shown = opened("?view=explain")
    answers = [(503, {"Retry-After": "1"}), (404, {})]
    shown.refused = True

    def refuse(route: Any) -> None:
        if not answers:
            return route.continue_()
        status, headers = answers.pop(0)
        return route.fulfill(status=status, headers=headers, json={"detail": "not now"})

    shown.page.route("**/v1/explain", refuse)
    shown.page.set_input_files("#file", coffee)
    shown.page.locator("#status", has_text="busy; trying again in 1 s").wait_for()
    shown.answered("Heatmap of espresso")
    assert sum(url.endswith("/v1/pictures") for url in shown.asked) == 2


def test_twelve_megapixels_of_a_phone(opened: Any, coffee: Path, tmp_path: Path) -> None:
    image = Image.open(coffee).resize((4000, 3000))
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by a quarter
    image.save(tmp_path / "phone.jpg", quality=90, exif=exif)
    shown = opened("?view=look")
    shown.page.locator(".example").first.wait_for()
    start = time.perf_counter()
    shown.page.set_input_files("#file", tmp_path / "phone.jpg")
    shown.page.locator("#photo img").wait_for()
    own = time.perf_counter() - start
    shown.page.locator("#photo canvas").wait_for()
    print(f"12 megapixels: shown after {own:.2f} s, first heatmap after {time.perf_counter() - start:.2f} s")
    height, width = shown.opacities().shape
    assert height > width
    frame = shown.page.locator(".picture").bounding_box()
    assert frame["height"] / frame["width"] == pytest.approx(4 / 3, abs=0.01)
    shown.answered()


def within_reach(page: Any, view: str, scheme: str) -> None:
    """By axe-core's rules; and a narrow page does not scroll sideways."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shot(page, f"{view}-desktop-{scheme}")
    found = axe.run(page).response["violations"]
    bad = [rule for rule in found if rule["impact"] in ("serious", "critical")]
    assert [(rule["id"], [node["html"] for node in rule["nodes"]]) for rule in bad] == []
    page.set_viewport_size(PHONE)
    shot(page, f"{view}-phone-{scheme}")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_out_of_reach(opened: Any, view: str, scheme: str) -> None:
    shown = opened(f"?view={view}&example=coffee", color_scheme=scheme)
    shown.answered()
    within_reach(shown.page, view, scheme)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_empty_page(opened: Any, scheme: str) -> None:
    shown = opened("?view=explain&method=gradcam", color_scheme=scheme)
    shown.page.locator(".example").nth(3).wait_for()
    assert "drop the picture to see it" in shown.page.locator("#hint").inner_text()
    within_reach(shown.page, "empty", scheme)


def test_by_keyboard_alone(opened: Any) -> None:
    shown = opened()
    page, keys = shown.page, shown.page.keyboard
    page.locator(".example").nth(3).wait_for()
    focused = "document.activeElement.textContent.trim() || document.activeElement.name"

    def tab_to(words: str) -> None:
        for _ in range(40):
            keys.press("Tab")
            if page.evaluate(focused) == words:
                return
        raise AssertionError(f"{words} is not reached")

    keys.press("Tab")
    assert page.evaluate(focused) == "Skip to the picture"
    tab_to("coffee")
    keys.press("Enter")
    shown.answered("all of its evidence")
    assert page.evaluate("document.activeElement.id") == "panel"  # the examples are gone
    keys.press("Shift+Tab")
    assert page.evaluate(focused) == "Look"
    keys.press("ArrowRight")
    shown.answered("Heatmap of espresso")
    assert page.get_by_role("tab", selected=True).inner_text() == "Explain"
    tab_to("class")
    keys.press("ArrowDown")
    page.get_by_role("listbox").wait_for()
    keys.type("candle")
    page.get_by_role("option", name="candle", exact=True).wait_for()
    shown.until(lambda: page.get_by_role("combobox", name="Class", exact=True).get_attribute("aria-activedescendant"))
    keys.press("Enter")
    shown.answered("Heatmap of candle")
    keys.press("ArrowDown")
    keys.press("Escape")
    assert page.get_by_role("combobox", name="Class", exact=True).input_value() == "candle"
    assert page.get_by_role("listbox").count() == 0
    page.locator("button.guess[title='show cup']").focus()  # a bar
    keys.press("Enter")
    shown.answered("Heatmap of cup")
    assert page.evaluate("document.activeElement.title") == "show cup"


def test_a_link_brings_the_settings_back(opened: Any) -> None:
    query = (
        "?view=localize&net=anchornet-imagenette&class=church&count=2&overlap=0.3&share=0.2&opacity=40&blend=multiply"
    )
    shown = opened(f"{query}&example=rocket")
    shown.answered("2 patches for church")
    assert shown.page.get_by_label("Network").input_value() == "anchornet-imagenette"
    assert shown.page.get_by_role("combobox", name="Class", exact=True).input_value() == "church"
    values = [shown.page.locator(f"#controls [name={name}]").input_value() for name in ("count", "overlap", "share")]
    assert values == ["2", "0.3", "0.2"]
    assert shown.page.locator("#stage").get_attribute("data-blend") == "multiply"
    shown.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown.page.get_by_role("button", name="Copy link").click()
    shown.answered("The link is copied")
    copied = shown.page.evaluate("navigator.clipboard.readText()")
    assert copied == shown.page.url
    assert set(query[1:].split("&")) | {"example=rocket"} == set(copied.partition("?")[2].split("&"))


def test_downloads(opened: Any, tmp_path: Path) -> None:
    shown = opened("?view=explain&example=coffee")
    shown.answered()
    for name, begins in (("PNG", b"\x89PNG"), ("JSON", b"{"), ("HTML", b"<!doctype html>")):
        with shown.page.expect_download() as download:
            shown.page.get_by_role("button", name=name).click()
        assert download.value.suggested_filename == f"coffee-explain.{name.lower()}"
        download.value.save_as(tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(begins)
    assert json.loads((tmp_path / "JSON").read_text())["label"] == "espresso"


@pytest.fixture(scope="module")
def guarded(started: Any, coffee: Path) -> str:
    """A service with a token, an index, and little room for a picture."""
    import fovea

    index = coffee.parent / "pictures.fovea"
    for name in ("chelsea.png", "rocket.jpg"):
        shutil.copy(str(files("skimage.data").joinpath(name)), coffee.parent)
    fovea.index("efficientnet_lite0", coffee.parent, out=index)
    running = started(
        "--net", "efficientnet_lite0", "--max-pixels", "500000", "--index", str(index), "--token", "secret"
    )
    return str(running.url)


def test_a_token_and_an_index(browser: Any, guarded: str, coffee: Path) -> None:
    shown = Opened(browser, guarded, "?view=search#token=secret")
    shown.page.locator(".example").nth(3).wait_for()
    assert "secret" not in shown.page.url
    shown.page.set_input_files("#file", coffee)
    shown.answered("neighbors")
    assert "cup of coffee" in shown.page.locator("#answer tbody tr").first.inner_text()
    shown.page.locator("#photo figure img").first.wait_for()
    within_reach(shown.page, "search", "light")
    shown.page.set_viewport_size(DESKTOP)
    shown.page.reload()
    shown.page.locator(".example").nth(3).wait_for()
    assert shown.said == []
    shown.context.close()
    locked = Opened(browser, guarded)
    locked.page.get_by_role("alert").filter(has_text="token").wait_for()
    locked.page.evaluate("location.hash = 'token=secret'")  # the address that was printed, pasted into the same tab
    locked.page.locator(".example").nth(3).wait_for()
    assert not locked.page.get_by_role("alert").is_visible()
    locked.context.close()


def test_texts_alone(browser: Any, started: Any, coffee: Path) -> None:
    """A network that takes no pictures: whoever drops one is told so, and can go on."""
    shown = Opened(browser, started("--net", "anchornet_text-mr").url)
    shown.answered("bland")
    shown.page.set_input_files("#file", coffee)
    shown.page.get_by_role("alert").filter(has_text="No network here takes pictures").wait_for()
    assert shown.page.get_by_role("tab", selected=True).inner_text() == "Text"
    shown.page.get_by_label("A sentence of a film review").fill("a warm and funny film")
    shown.until(lambda: shown.page.locator("#answer .words").inner_text().startswith("positive"))
    assert shown.said == []
    shown.context.close()


def test_a_big_file_is_zoomed_into(browser: Any, guarded: str, coffee: Path, tmp_path: Path) -> None:
    tifffile = pytest.importorskip("tifffile")
    pixels = np.asarray(Image.open(coffee).resize((1500, 1000)))
    tifffile.imwrite(tmp_path / "large.tif", pixels, tile=(256, 256), photometric="rgb")
    shown = Opened(browser, guarded, "?view=explain#token=secret")
    shown.page.locator(".example").nth(3).wait_for()
    shown.page.set_input_files("#file", tmp_path / "large.tif")
    shown.answered("Heatmap of espresso")
    viewer = "document.querySelector('.picture').viewer"
    shown.until(lambda: shown.page.evaluate(f"{viewer}?.world.getItemAt(0)?.getFullyLoaded() ?? false"))
    layer, frame = (
        shown.page.locator(name).first.bounding_box() for name in ("#photo .layer", "#photo .openseadragon-canvas")
    )
    assert layer["width"] / layer["height"] == pytest.approx(1.5, abs=0.02)
    assert max(layer["width"] / frame["width"], layer["height"] / frame["height"]) == pytest.approx(1, abs=0.02)
    assert any("/tiles/" in url for url in shown.asked)
    shot(shown.page, "deep-desktop-light")
    shown.page.get_by_label("Wipe against another map").check()
    wipe = shown.page.locator("input.wipe")
    wipe.press("ArrowRight")  # which the viewer around it would take for itself
    assert wipe.input_value() == "51"
    shown.page.get_by_role("tab", name="Localize").click()
    shown.answered("patches for")
    assert len(shown.page.locator("#photo .part").all()) > 0
    assert shown.said == []
    shown.context.close()


def test_the_page_is_light() -> None:
    own = [file for file in files("fovea.serve").joinpath("page").iterdir() if file.is_file()]
    shared = files("fovea.results").joinpath("painting.js")
    assert sum(len(file.read_bytes()) for file in (*own, shared)) < 600_000
