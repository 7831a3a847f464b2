"""Every page and every control on it, in a browser, against what the answers say."""

from __future__ import annotations

import csv
import re
import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Page, expect

from benchmarks.corpus.kept import FOLDER, database
from ingero.serve.answers.cost import CostAnswer
from ingero.serve.cli.cost import Told
from ingero.serve.dashboard.pages import PAGES
from tests.browser.conftest import Open, Start, Watched
from tests.browser.serving import Running, with_a_gpu

TITLES = {
    "/": "1 problem found", "/time": "Where time goes", "/latency": "Latency", "/flame": "Flame graph",
    "/gpus": "GPUs", "/graphs": "Graphs & collectives", "/sql": "SQL",
}  # fmt: skip


def test_the_first_page_tells_what_the_diagnosis_says(server: Running, browse: Open) -> None:
    report = server.ask("/api/v1/explain").value
    finding = report["findings"][0]
    page = browse(server)
    card = page.get_by_role("article")
    expect(card).to_have_count(1)
    for text in (finding["title"], finding["severity"], finding["kind"], "stress-ng-cpu × 5", "for 8 s"):
        expect(card).to_contain_text(text)
    source = finding["source"]
    expect(card).to_contain_text(f"{source['function']}() at train.py:{source['line']}")
    for fix in finding["fix"]:
        expect(card).to_contain_text(fix["command"])
    for proof in finding["causes"][0]["evidence"]:
        expect(card).to_contain_text(proof["text"])
    side = page.get_by_role("complementary", name="Trust")
    expect(side).to_contain_text("Own overhead")
    expect(side).to_contain_text("nothing")
    side.get_by_text("Not covered").click()
    expect(side).to_contain_text(report["not_watched"][0]["why"].partition(" is not recorded: ")[2])
    card.get_by_text("Stack").click()
    expect(card.get_by_role("list", name="Stack, innermost first")).to_contain_text("augment")


def test_what_limits_each_job_is_said_on_the_first_page(server: Running, browse: Open) -> None:
    (bound,) = server.ask("/api/v1/explain").value["bound"]
    panel = browse(server).get_by_role("region", name="Bound by")
    expect(panel).to_contain_text(f"{bound['comm']} ({bound['pid']}) is bound by")
    expect(panel).to_contain_text(bound["text"])


def test_what_was_watched_less_is_said_in_words(tmp_path: Path, start: Start, browse: Open) -> None:
    """A job of a real card, whose launches the budget thinned."""
    with database(FOLDER / "card" / "decode-medium.json") as recording:
        db = Path(shutil.copy(recording, tmp_path / "card.db"))
    side = browse(start(db)).get_by_role("complementary", name="Trust")
    side.get_by_text("Reduced to stay within 2 %").click()
    expect(side).to_contain_text("timing of launches: 1 call in")
    expect(side).not_to_contain_text("[object")


def test_a_finding_leads_to_the_timeline_and_its_proof_to_sql(server: Running, browse: Open) -> None:
    page = browse(server)
    page.get_by_role("link", name="check").first.click()
    expect(page.get_by_role("heading", name="SQL")).to_be_visible()
    expect(page.get_by_role("textbox", name="SQL")).to_have_value(re.compile("thread_time"))
    expect(page.get_by_role("region", name="Result").get_by_role("row")).to_have_count(2)
    page.go_back()
    page.get_by_role("link", name="Show on the timeline").click()
    expect(page).to_have_url(re.compile(r"/timeline\?from=\d{19}&to=\d{19}"))
    expect(page.get_by_role("combobox", name="Time range")).to_have_value("part")


def test_a_healthy_stretch_has_no_problem_and_the_evidence_for_it(server: Running, browse: Open) -> None:
    begin = server.ask("/api/v1/recordings").value["window"]["from_ns"]
    page = browse(server, f"/?from={begin + 1_000_000_000}&to={begin + 7_000_000_000}")
    expect(page.get_by_role("heading", name="No problem found")).to_be_visible()
    expect(page.get_by_text("calls of 1 GPU process")).to_be_visible()
    expect(page.get_by_text("No record was dropped.")).to_be_visible()
    expect(page.locator(".evidence .legend li").first).to_contain_text("waiting for the GPU")


def test_a_recording_without_cuda_calls_has_no_verdict(
    incident: Path, tmp_path: Path, start: Start, browse: Open
) -> None:
    db = Path(shutil.copy(incident, tmp_path / "plain.db"))
    with sqlite3.connect(db) as connection:
        for table in ("event", "operation_second", "operation_minute", "thread_second", "finding"):
            connection.execute(f"DELETE FROM {table}")
    connection.close()
    page = browse(start(db))
    expect(page.get_by_role("heading", name="No CUDA process was seen")).to_be_visible()
    expect(page.locator("main")).not_to_contain_text("No problem found")
    expect(page.locator("main")).not_to_contain_text("0 calls of 0")


def test_every_page_is_reached_from_every_other_by_keyboard(server: Running, browse: Open) -> None:
    page = browse(server)
    links = page.get_by_role("navigation", name="Pages").get_by_role("link")
    for number, path in enumerate(PAGES):
        links.nth(number).focus()
        page.keyboard.press("Enter")
        expect(page).to_have_url(server.url(path))
        expect(links.nth(number)).to_have_attribute("aria-current", "page")
        if path in TITLES:
            expect(page.get_by_role("heading", name=TITLES[path], level=1)).to_be_visible()


def test_time_is_accounted_to_the_last_percent(server: Running, browse: Open) -> None:
    page = browse(server, "/time")
    for row in server.ask("/api/v1/accounting").value["processes"]:
        assert sum(row["time"].values()) == row["threads_ns"]
    bar = page.get_by_role("img", name=re.compile(r"waiting for the GPU 4[01]\.\d %")).first
    expect(bar).to_be_visible()
    shares = bar.locator("span").evaluate_all(
        "parts => parts.map(part => part.getBoundingClientRect().width)"
    )
    wide = bar.evaluate("bar => bar.getBoundingClientRect().width")
    assert sum(shares) == pytest.approx(wide, abs=8)
    page.get_by_role("button", name="by container").click()
    expect(page.get_by_role("heading", name="ml/nightly-retraining-0")).to_be_visible()
    expect(page).to_have_url(re.compile("by=container"))
    page.get_by_role("button", name="by process").click()
    page.get_by_text("1 thread").first.click()
    expect(page.get_by_text("feeds a GPU")).to_be_visible()


def test_latencies_are_mapped_and_can_be_filtered(server: Running, browse: Open) -> None:
    operations = server.ask("/api/v1/heatmap").value["operations"]
    page = browse(server, "/latency")
    maps = page.locator(".map")
    expect(maps).to_have_count(len(operations))
    expect(page.get_by_role("img", name=re.compile("cudaStreamSynchronize: 553 calls"))).to_be_visible()
    assert painted(page, ".map canvas") > 1
    page.get_by_role("searchbox", name="Filter operations").fill("nccl")
    expect(maps).to_have_count(1)
    canvas = maps.locator("canvas")
    box = canvas.bounding_box()
    assert box
    page.mouse.move(box["x"] + 200, box["y"] + 97)
    canvas.click(position={"x": 200, "y": 97})
    expect(page).to_have_url(re.compile(r"/timeline\?from="))


def painted(page: Page, canvas: str) -> int:
    """How many colours there are on a canvas."""
    found = page.locator(canvas).first.evaluate(
        "canvas => { const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;"
        " const seen = new Set(); for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i+1] << 8 |"
        " d[i+2]); return seen.size; }"
    )
    return int(found)


def test_the_flame_graph_zooms_searches_and_weighs_four_things(server: Running, browse: Open) -> None:
    page = browse(server, "/flame")
    graph = page.get_by_role("group", name="Flame graph")
    frame = graph.get_by_role("button", name=re.compile(r"^train_step \(train.py:78\)"))
    expect(frame).to_be_visible()
    whole = graph.get_by_role("button", name=re.compile("^all:")).bounding_box()
    narrow = graph.get_by_role("button", name=re.compile(r"^train_step")).nth(1)
    before = narrow.bounding_box()
    narrow.click()
    expect(graph.get_by_role("button", name=re.compile(r"^train_step"))).to_have_count(1)
    after = graph.get_by_role("button", name=re.compile(r"^train_step")).bounding_box()
    assert whole
    assert before
    assert after
    assert before["width"] < after["width"] == pytest.approx(whole["width"], abs=1)
    page.get_by_role("button", name="Whole graph").click()
    expect(frame).to_be_visible()
    page.get_by_role("searchbox", name="Search frames").fill("cudaStreamSynchronize")
    expect(page.get_by_role("status").filter(has_text="matches")).to_have_text(
        re.compile(r"^9[56]\.\d % of it matches$")
    )
    expect(page.locator(".box.match")).not_to_have_count(0)
    for what in ("allocations", "waits", "samples"):
        page.get_by_role("combobox", name="What is weighed").select_option(what)
        expect(page).to_have_url(re.compile(f"what={what}"))
        expect(graph.get_by_role("button", name=re.compile("python3"))).to_be_visible()


def test_a_flame_graph_of_waits_without_stacks_says_why_there_is_none(
    incident: Path, tmp_path: Path, start: Start, browse: Open
) -> None:
    """As where other programs have the cores: a thread that lost its core did not ask to wait."""
    db = Path(shutil.copy(incident, tmp_path / "bare.db"))
    with sqlite3.connect(db) as connection:
        connection.execute("UPDATE event SET stack_hash = NULL")
    connection.close()
    page = browse(start(db), "/flame?what=waits")
    graph = page.get_by_role("group", name="Flame graph")
    expect(graph).to_contain_text("Waits for a core have no stack")
    expect(graph.get_by_role("button")).to_have_count(0)


def test_every_bar_of_time_has_a_key(server: Running, browse: Open) -> None:
    page = browse(server, "/time")
    sections = page.locator(".accounted:has(.bar-time)")
    expect(sections.filter(has_text="feeds no GPU")).not_to_have_count(0)
    for section in sections.all():
        expect(section.locator(".legend.key li").first).to_be_visible()


def test_gpus_that_were_not_watched_are_said_to_be(server: Running, browse: Open) -> None:
    page = browse(server, "/gpus")
    expect(page.get_by_role("heading", name="Not covered")).to_be_visible()
    expect(page.get_by_text("are not in this recording")).to_be_visible()


def test_a_gpu_is_shown_with_its_counters_and_on_the_timeline(
    incident: Path, tmp_path: Path, start: Start, browse: Open
) -> None:
    server = start(with_a_gpu(Path(shutil.copy(incident, tmp_path / "gpu.db"))))
    page = browse(server, "/gpus")
    expect(page.get_by_role("heading", name="GPU 0")).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("^power: mean 4.. W, highest 665 W"))).to_be_visible()
    expect(page.get_by_text("Clock held down: sw power cap 50.0 % of the time")).to_be_visible()
    expect(page.get_by_role("region", name="Processes on it")).to_contain_text("python3 (4821)58 GiB")
    assert painted(page, ".chart canvas") > 2
    tracks = server.ask("/api/v1/timeline").value["tracks"]
    busy = next(each for each in tracks if each["title"] == "GPU 0: GPU busy")
    assert busy["values"][0] == 0.95
    assert busy["values"][10] == 0.2


def test_graphs_and_collectives_are_listed(server: Running, browse: Open) -> None:
    page = browse(server, "/graphs")
    expect(page.get_by_role("region", name="Calls by process")).to_contain_text("554")
    expect(page.get_by_role("region", name=re.compile("ncclAllReduce, communicator"))).to_contain_text(
        "17.3 GiB"
    )


def test_sql_is_run_shown_and_downloaded(server: Running, browse: Open) -> None:
    page = browse(server, "/sql")
    box = page.get_by_role("textbox", name="SQL")
    result = page.get_by_role("region", name="Result")
    expect(result.get_by_role("row")).to_have_count(21)
    box.fill("SELECT 9007199254740993 AS big, 'a,\"b' AS quoted, '=1+1' AS formula, NULL AS missing")
    page.keyboard.press("Control+Enter")
    expect(result).to_contain_text("9007199254740993")
    expect(result).to_contain_text("NULL")
    with page.expect_download() as download:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.reader(Path(download.value.path()).read_text().splitlines()))
    assert rows == [["big", "quoted", "formula", "missing"], ["9007199254740993", 'a,"b', "'=1+1", ""]]
    page.get_by_role("button", name="Findings").click()
    expect(result).to_contain_text("cpu-contention")
    page.get_by_role("spinbutton", name="Most rows").fill("5")
    page.get_by_role("button", name="Longest calls").click()
    expect(result.get_by_role("row")).to_have_count(6)
    expect(page.get_by_text("5 rows, and more")).to_be_visible()
    views = page.get_by_role("complementary", name="Views and columns")
    views.get_by_text("thread_time", exact=True).click()
    box.fill("SELECT ")
    views.get_by_role("button", name="bucket", exact=True).click()
    expect(box).to_have_value("SELECT bucket")


def test_sql_that_writes_is_refused_with_a_reason(server: Running, browse: Open, watched: Watched) -> None:
    watched.expected = "400"
    page = browse(server, "/sql")
    page.get_by_role("textbox", name="SQL").fill("DELETE FROM event")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("alert")).to_contain_text("only reading is allowed")


def test_the_time_range_is_shared_by_all_pages_and_in_the_address(server: Running, browse: Open) -> None:
    page = browse(server)
    page.get_by_role("combobox", name="Time range").select_option("30s")
    expect(page).to_have_url(server.url("/?since=30s"))
    page.get_by_role("link", name="Latency").click()
    expect(page).to_have_url(server.url("/latency?since=30s"))
    page.get_by_role("combobox", name="Time range").select_option("part")
    expect(page.get_by_label("From", exact=True)).to_be_visible()
    until = page.get_by_label("To", exact=True).input_value()
    page.get_by_label("From", exact=True).fill(
        until[:-2] + f"{int(until[-2:]) - 2 if int(until[-2:]) > 1 else 0:02d}"
    )
    expect(page).to_have_url(re.compile(r"/latency\?from=\d+&to=\d+"))
    page.get_by_role("combobox", name="Time range").select_option("")
    expect(page).to_have_url(server.url("/latency"))


def test_light_and_dark_follow_the_system_and_the_switch(server: Running, browse: Open) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    light = browse(server, color_scheme="light")
    dark = browse(server, color_scheme="dark")
    expect(dark.get_by_role("article")).to_be_visible()
    assert light.evaluate(ground) != dark.evaluate(ground)
    dark.get_by_role("button", name="Switch to light colours").click()
    assert light.evaluate(ground) == dark.evaluate(ground)
    dark.reload()
    assert light.evaluate(ground) == dark.evaluate(ground)
    dark.get_by_role("button", name="Switch to dark colours").click()
    assert light.evaluate(ground) != dark.evaluate(ground)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_fits_a_phone_and_everything_on_it_has_a_name(
    server: Running, browse: Open, path: str
) -> None:
    page = browse(server, path, viewport={"width": 380, "height": 800}, has_touch=True)
    page.wait_for_timeout(400)
    assert page.evaluate("document.documentElement.scrollWidth") <= 380
    nameless = page.locator("button, a, input, select, textarea, canvas").evaluate_all(
        "all => all.filter(each => !(each.getAttribute('aria-label') || each.textContent.trim()"
        " || each.labels?.length || each.querySelector('img[alt]'))).map(each => each.outerHTML)"
    )
    assert not nameless


def test_what_gpus_cost_is_what_the_command_says_and_sums_up(server: Running, browse: Open) -> None:
    page = browse(server, "/cost")
    expect(page.get_by_role("heading", name="Cost", level=1)).to_be_visible()
    page.get_by_label("Price of a GPU for an hour").fill("3600")
    page.get_by_label("Price of a GPU for an hour").press("Enter")
    answer = server.ask("/api/v1/cost?price=3600").value
    total, same = answer["total"], msgspec.convert(answer, CostAnswer)
    assert total["held_ns"] == sum(total[f"{part}_ns"] for part in ("busy", "lost", "idle", "unknown"))
    expect(page.locator("#cost-lines")).to_contain_text(f"${total['money']:.2f}")
    expect(page.locator("#cost-sum")).to_have_text(" ".join(Told(same.total, same).terms()))  # to the digit
    for each in total["lost"]:
        expect(page.locator("#cost-lost")).to_contain_text(each["kind"])
    assert total["lost"]
    page.locator("#cost-by").select_option("process")
    expect(page.locator("#cost-lines")).to_contain_text("python3 (")


def test_what_a_page_may_load_is_stated_strictly(server: Running) -> None:
    for path in ("/", "/app.js", "/api/v1/health", "/login"):
        policy = server.ask(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "require-trusted-types-for 'script'" in policy


def test_one_node_of_several_can_be_picked(both: Running, browse: Open) -> None:
    number = len(both.ask("/api/v1/explain").value["findings"])
    assert number > 1
    page = browse(both)
    nodes = page.get_by_role("combobox", name="Node")
    expect(nodes.get_by_role("option")).to_have_text(["all 2 nodes", "demo", "demo-2"])
    expect(page.get_by_role("heading", name=f"{number} problems found")).to_be_visible()
    nodes.select_option("demo")
    expect(page).to_have_url(both.url("/?node=demo"))
    expect(page.get_by_role("heading", name="1 problem found")).to_be_visible()
    page.get_by_role("link", name="Timeline", exact=True).click()
    expect(page).to_have_url(both.url("/timeline?node=demo"))
