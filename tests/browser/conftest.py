"""A Chromium, dashboards for it, and pages that are watched: no error on them, no request to anybody else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.browser.access import watch_canvases
from tests.browser.serving import TOKEN, Running, record, running, two_nodes
from tests.conftest import require
from tests.contracts.tree import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WAIT_MS = 20_000
SIGNED_IN: dict[int, Any] = {}  # by server: signing in once is enough to be tested in each of its tests


@pytest.fixture(scope="package")  # its driver keeps a loop in this thread, where other tests want their own
def chromium() -> Iterator[Browser]:
    require("browser", [] if CHROMIUM else ["no chromium: make setup, or apt-get install chromium"])
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record("incident", tmp_path_factory.mktemp("recordings") / "incident.db")


@pytest.fixture(scope="session")
def both(incident: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A dashboard of two nodes."""
    folder = tmp_path_factory.mktemp("both")
    with running(two_nodes(folder, incident), folder) as found:
        yield found
        assert found.alive()


@pytest.fixture(scope="session")
def server(incident: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One dashboard for all tests that only look."""
    with running(incident, tmp_path_factory.mktemp("home")) as found:
        yield found
        assert found.alive()


@pytest.fixture(scope="session")
def axe() -> str:
    found = sorted(ROOT.glob("build/py*/frontend/modules/node_modules/axe-core/axe.min.js"))
    require("browser", [] if found else ["no axe-core: make build"])
    return found[-1].read_text(encoding="utf-8")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    made = tmp_path / "home"
    made.mkdir(mode=0o700)
    return made


class Watched:
    """What pages of one test did besides showing something."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.hosts: set[str | None] = set()
        self.expected = ""  # part of messages that are no failure

    def watch(self, page: Page) -> None:
        page.on("console", lambda message: self._said(message.type, message.text))
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname))

    def _said(self, kind: str, text: str) -> None:
        if kind in ("error", "warning") and not (self.expected and self.expected in text):
            self.errors.append(f"{kind}: {text}")


@pytest.fixture
def watched() -> Iterator[Watched]:
    found = Watched()
    yield found
    assert not found.errors
    assert found.hosts <= {"localhost", None}, "a request left the host"


Open = Callable[..., Page]
Start = Callable[..., Running]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Dashboards of one test's own."""
    with ExitStack() as stack:

        def started(db: Path, *flags: str, **more: Any) -> Running:
            home = Path(stack.enter_context(TemporaryDirectory(dir=tmp_path)))
            return stack.enter_context(running(db, home, *flags, **more))

        yield started


@pytest.fixture
def browse(chromium: Browser, watched: Watched, start: Start) -> Iterator[Open]:  # closed before servers are
    """A page of a dashboard, signed in unless told not to."""
    contexts: list[BrowserContext] = []

    def opened(server: Running, path: str = "/", sign_in: bool = True, **options: Any) -> Page:
        defaults = {"ignore_https_errors": True, "viewport": {"width": 1300, "height": 850}}
        signed_in = SIGNED_IN.get(server.process.pid) if sign_in else None
        context = chromium.new_context(**(defaults | options), storage_state=signed_in)
        context.set_default_timeout(WAIT_MS)
        contexts.append(context)
        watch_canvases(context)
        page = context.new_page()
        watched.watch(page)
        if sign_in and signed_in is None:
            page.goto(server.url(f"/login#token={TOKEN}"))
            page.wait_for_url(server.url("/"))
            SIGNED_IN[server.process.pid] = context.storage_state()
        if path != "/" or page.url != server.url("/"):
            page.goto(server.url(path))
        return page

    yield opened
    for context in contexts:
        context.close()
