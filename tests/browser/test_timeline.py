"""The timeline under wheel, drag, touch and keys: what is in view, at which level, and what a click tells."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from benchmarks.large_database import build, dense, template
from tests.browser.conftest import Open
from tests.browser.serving import Running, running
from tests.browser.test_pages import painted

LABEL, AXIS = 150, 26


def timeline(page: Page) -> Locator:
    """Its canvas, drawn."""
    canvas = page.get_by_role("application", name="Timeline")
    expect(canvas).to_have_attribute("data-loaded", re.compile("[1-9]"))
    return canvas


def view(canvas: Locator) -> tuple[int, int]:
    return int(canvas.get_attribute("data-from") or 0), int(canvas.get_attribute("data-to") or 0)


def settled(canvas: Locator, act: object) -> tuple[int, int]:
    """What is in view after something was done and its answer is drawn."""
    before = int(canvas.get_attribute("data-loaded") or 0)
    act()  # type: ignore[operator]
    expect(canvas).not_to_have_attribute("data-loaded", str(before))
    canvas.page.wait_for_timeout(150)
    return view(canvas)


def at(canvas: Locator, x: float, y: float) -> tuple[float, float]:
    box = canvas.bounding_box()
    assert box
    return box["x"] + x, box["y"] + y


@pytest.fixture
def page(server: Running, browse: Open) -> Page:
    return browse(server, "/timeline")


def test_the_whole_recording_is_shown_first(page: Page) -> None:
    canvas = timeline(page)
    low, high = view(canvas)
    assert low == 0
    assert high == pytest.approx(20e9, abs=1e9)
    assert painted(page, "canvas") > 8
    expect(page.locator("#timeline-summary")).to_contain_text("slices")


def test_the_wheel_zooms_at_the_pointer(page: Page) -> None:
    canvas = timeline(page)
    low, high = view(canvas)
    page.mouse.move(*at(canvas, LABEL + 300, 200))
    closer = settled(canvas, lambda: page.mouse.wheel(0, -300))
    assert closer[1] - closer[0] == pytest.approx((high - low) / 2.718, rel=0.05)
    part = 300 / (canvas.evaluate("canvas => canvas.clientWidth") - LABEL)
    assert closer[0] + part * (closer[1] - closer[0]) == pytest.approx(low + part * (high - low), rel=0.02)
    wider = settled(canvas, lambda: page.mouse.wheel(0, 300))
    assert wider[1] - wider[0] == pytest.approx(high - low, rel=0.05)
    moved = settled(canvas, lambda: page.mouse.wheel(200, 0))
    assert moved[0] > wider[0]


def test_dragging_moves_and_dragging_with_shift_selects(page: Page) -> None:
    canvas = timeline(page)
    settled(canvas, lambda: page.get_by_role("button", name="Zoom in").click())
    before = view(canvas)

    def drag(begin: int, end: int) -> None:
        page.mouse.move(*at(canvas, LABEL + begin, 300))
        page.mouse.down()
        page.mouse.move(*at(canvas, LABEL + end, 300), steps=4)
        page.mouse.up()

    after = settled(canvas, lambda: drag(500, 300))
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0], rel=0.01)
    page.keyboard.down("Shift")
    selected = settled(canvas, lambda: drag(200, 400))
    page.keyboard.up("Shift")
    assert after[0] < selected[0] < selected[1] < after[1]


def test_keys_do_all_of_it(page: Page) -> None:
    canvas = timeline(page)
    canvas.focus()
    start = view(canvas)
    closer = settled(canvas, lambda: page.keyboard.press("+"))
    assert closer[1] - closer[0] == pytest.approx(0.6 * (start[1] - start[0]), rel=0.01)
    later = settled(canvas, lambda: page.keyboard.press("ArrowRight"))
    assert later[0] > closer[0]
    earlier = settled(canvas, lambda: page.keyboard.press("a"))
    assert earlier[0] < later[0]
    assert settled(canvas, lambda: page.keyboard.press("-"))[1] > earlier[1]
    assert settled(canvas, lambda: page.keyboard.press("Home")) == pytest.approx(start, abs=2)
    for _ in range(8):
        page.keyboard.press("ArrowDown")
        if "calls:" in (page.locator("#timeline-said").text_content() or ""):
            break
    page.keyboard.press(".")
    expect(page.locator("#timeline-said")).to_contain_text("calls:")
    page.keyboard.press("Enter")
    expect(page.get_by_role("complementary", name="Details")).to_contain_text("Stack")
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Details")).to_be_hidden()


def test_buttons_zoom_and_move(page: Page) -> None:
    canvas = timeline(page)
    start = view(canvas)
    closer = settled(canvas, lambda: page.get_by_role("button", name="Zoom in").click())
    assert closer[1] - closer[0] < start[1] - start[0]
    later = settled(canvas, lambda: page.get_by_role("button", name="Later").click())
    assert later[0] > closer[0]
    assert settled(canvas, lambda: page.get_by_role("button", name="Earlier").click())[0] < later[0]
    settled(canvas, lambda: page.get_by_role("button", name="Zoom out").click())
    assert settled(canvas, lambda: page.get_by_role("button", name="Whole recording").click()) == start
    expect(page).to_have_url(re.compile("/timeline$"))


def test_two_fingers_zoom(server: Running, browse: Open) -> None:
    page = browse(server, "/timeline", has_touch=True, viewport={"width": 400, "height": 800})
    canvas = timeline(page)
    start = view(canvas)
    x, y = at(canvas, 200, 250)
    session = page.context.new_cdp_session(page)

    def touch(kind: str, gap: int) -> None:
        points = [{"x": x - gap, "y": y, "id": 1}, {"x": x + gap, "y": y, "id": 2}] if gap else []
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    def pinch() -> None:
        touch("touchStart", 40)
        for gap in range(45, 125, 5):
            touch("touchMove", gap)
        touch("touchEnd", 0)

    closer = settled(canvas, pinch)
    assert 0.2 < (closer[1] - closer[0]) / (start[1] - start[0]) < 0.6


def open_calls(page: Page, canvas: Locator) -> dict[str, float]:
    """Zoomed to where calls are wide; where the first wide one is."""
    found = page.evaluate(
        "async () => { const r = await (await fetch('/api/v1/recordings')).json(); return r.window.from_ns; }"
    )
    page.goto(f"{page.url.partition('?')[0]}?from={found + 5_000_000_000}&to={found + 5_100_000_000}")
    timeline(page)
    return found  # type: ignore[no-any-return]


def test_hovering_tells_and_a_click_opens_the_stack(page: Page) -> None:
    canvas = timeline(page)
    open_calls(page, canvas)
    canvas = timeline(page)
    tip = page.get_by_role("tooltip")
    x, y = find(page, canvas, tip, "cudaStreamSynchronize")
    expect(tip).to_contain_text("ms")
    page.mouse.click(x, y)
    details = page.get_by_role("complementary", name="Details")
    expect(details).to_contain_text("train_step() at /workspace/train.py:78")
    expect(details.get_by_role("list", name="Stack, innermost first")).to_contain_text("main train.py:96")
    details.get_by_role("button", name="Close details").click()
    expect(details).to_be_hidden()


def find(page: Page, canvas: Locator, tip: Locator, text: str) -> tuple[float, float]:
    """Where the pointer must be for the tooltip to name something."""
    box = canvas.bounding_box()
    assert box
    for y in range(AXIS + 60, int(box["height"]), 7):
        for x in (350, 500, 650, 800):
            page.mouse.move(box["x"] + x, box["y"] + y)
            if tip.is_visible() and text in (tip.text_content() or ""):
                return box["x"] + x, box["y"] + y
    raise AssertionError(f"nothing says {text}")


def test_what_is_in_view_is_in_the_address(page: Page, server: Running, browse: Open) -> None:
    canvas = timeline(page)
    shown = settled(canvas, lambda: page.get_by_role("button", name="Zoom in").click())
    expect(page).to_have_url(re.compile(r"from=\d{19}&to=\d{19}"))
    other = browse(server, page.url.partition(str(server.port))[2])
    assert view(timeline(other)) == pytest.approx(shown, abs=300)
    page.get_by_role("link", name="Latency").click()
    expect(page).to_have_url(re.compile(r"/latency\?from=\d{19}&to=\d{19}"))


def test_a_process_can_be_folded_away(page: Page) -> None:
    canvas = timeline(page)
    expect(canvas).to_have_attribute("data-findings", "1")
    page.wait_for_timeout(200)
    before = canvas.bounding_box()
    page.mouse.click(*at(canvas, 60, AXIS + 12))
    page.wait_for_timeout(200)
    after = canvas.bounding_box()
    assert before
    assert after
    assert after["height"] < before["height"]


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """More rows than are shown one by one."""
    folder = tmp_path_factory.mktemp("long")
    windows = [dense(window) for window in template(time.monotonic_ns())]
    build(folder / "long.db", windows, lambda count: count >= 80)
    (folder / "home").mkdir()
    with running(folder / "long.db", folder / "home") as server:
        yield server


def test_a_long_recording_is_shown_by_the_second_and_closer_by_the_call(
    long_recording: Running, browse: Open
) -> None:
    page = browse(long_recording, "/timeline")
    canvas = timeline(page)
    expect(canvas).to_have_attribute("data-level", "seconds")
    page.mouse.move(*at(canvas, 600, 200))
    for _ in range(12):
        settled(canvas, lambda: page.mouse.wheel(0, -300))
        if canvas.get_attribute("data-level") == "calls":
            break
    expect(canvas).to_have_attribute("data-level", "calls")
    low, high = view(canvas)
    assert high - low < 60e9


def test_far_out_and_close_up_count_the_same_calls(long_recording: Running) -> None:
    """Whatever is drawn as one says how many it stands for."""
    begin = long_recording.ask("/api/v1/recordings").value["window"]["from_ns"]
    stretch = f"from={begin + 2_000_000_000}&to={begin + 4_000_000_000}"
    sql = (
        "SELECT COUNT(*) AS n FROM events WHERE source IN (1, 4, 8, 9) AND duration IS NOT NULL AND "
        f"timestamp < {begin + 4_000_000_000} AND timestamp + duration >= {begin + 2_000_000_000}"
    )
    rows = long_recording.ask("/api/v1/query", method="POST", body={"sql": sql}).value["rows"]
    for width in (60, 400, 4000):
        tracks = long_recording.ask(f"/api/v1/timeline?{stretch}&width={width}").value["tracks"]
        assert sum(sum(each["count"]) for each in tracks if each["kind"] == "calls") == rows[0]["n"], width
