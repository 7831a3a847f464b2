"""Names that traced programs give themselves are text, on every page."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from playwright.sync_api import expect

from ingero.serve.dashboard.pages import PAGES
from tests.browser.conftest import Open
from tests.browser.serving import Running, running
from tests.browser.test_timeline import find, timeline

MARKUP = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>\'"&amp;${1}'


@pytest.fixture(scope="module")
def hostile(incident: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording in which every name is markup."""
    db = tmp_path_factory.mktemp("hostile") / "hostile.db"
    shutil.copy(incident, db)
    connection = sqlite3.connect(db)
    for table, column in (
        ("string", "text"), ("frame_text", "text"), ("op", "name"), ("kernel", "name"), ("node", "name"),
        ("process", "comm"), ("process", "cmdline"), ("container", "pod"), ("container", "namespace"),
    ):  # fmt: skip
        connection.execute(f"UPDATE {table} SET {column} = {column} || ?", (MARKUP,))
    connection.commit()
    connection.close()
    return db


@pytest.fixture(scope="module")
def shown(hostile: Path, tmp_path_factory: pytest.TempPathFactory) -> object:
    with running(hostile, tmp_path_factory.mktemp("home")) as server:
        yield server


@pytest.mark.parametrize("path", PAGES)
def test_names_are_shown_and_never_run(shown: Running, browse: Open, path: str) -> None:
    page = browse(shown, path)
    page.wait_for_timeout(300)
    if path not in ("/timeline", "/gpus"):
        expect(page.locator("main")).to_contain_text("<img src=x")
    if path == "/timeline":
        find(page, timeline(page), page.get_by_role("tooltip"), "<img src=x")
    if path in ("/", "/time"):
        for each in page.locator("summary").all():
            each.click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("main img, main script").count() == 0
