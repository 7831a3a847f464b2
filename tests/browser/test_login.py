"""Who gets in: with the link, the token, or a certificate. Nobody else, and not under another name."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect
from playwright.sync_api import Error as BrowserError

from ingero.serve.dashboard.pages import PAGES
from tests.assistants.certificates import Authority
from tests.browser.conftest import Open, Start, Watched
from tests.browser.serving import TOKEN, Running, running


def test_a_link_with_the_token_signs_in_and_leaves_no_token_in_the_address(
    server: Running, browse: Open
) -> None:
    page = browse(server, sign_in=False)
    page.goto(server.url(f"/login#token={TOKEN}"))
    page.wait_for_url(server.url("/"))
    expect(page.get_by_role("heading", name="1 problem found")).to_be_visible()
    cookies = page.context.cookies()
    assert [(cookie["httpOnly"], cookie["secure"], cookie["sameSite"]) for cookie in cookies] == [
        (True, True, "Strict")
    ]
    assert TOKEN not in cookies[0]["value"]
    assert TOKEN not in page.url


@pytest.mark.parametrize(
    ("token", "on_terminal", "flags", "shown"),
    [
        (None, True, (), True),
        (None, False, (), False),
        (TOKEN, True, (), False),
        (TOKEN, False, (), False),
        (TOKEN, False, ("--show-token",), True),
        (None, False, ("--show-token",), True),
    ],
)
def test_the_token_is_printed_only_to_who_has_no_other_way_to_it(
    start: Start, incident: Path, token: str | None, on_terminal: bool, flags: tuple[str, ...], shown: bool
) -> None:
    server = start(incident, "--addr", ":0", *flags, token=token, on_terminal=on_terminal)
    counts = token or server.own_token
    assert server.link.endswith(f"/login#token={counts}" if shown else "/login")
    while not any(line.startswith("  token: ") for line in server.said):  # where it is, is always told
        server.said.append(next(server.more))
    assert any(counts in line for line in server.said) == shown
    assert server.ask("/api/v1/health", token=counts).status == 200


def test_a_typed_token_signs_in_and_a_wrong_one_does_not(
    server: Running, browse: Open, watched: Watched
) -> None:
    watched.expected = "401"  # Chromium says so itself
    page = browse(server, sign_in=False)
    page.wait_for_url(server.url("/login"))
    page.get_by_label("Token").fill("not-the-token-0123456789")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("That token is not valid.")
    page.get_by_label("Token").fill(TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_url(server.url("/"))


def test_signing_out_ends_it(server: Running, browse: Open) -> None:
    page = browse(server)
    expect(page.get_by_role("heading", name="1 problem found")).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(server.url("/login"))
    page.goto(server.url("/timeline"))
    page.wait_for_url(server.url("/login?next=%2Ftimeline"))


@pytest.mark.parametrize(
    "path", ["/api/v1/explain", "/api/v1/query", "/api/v1/live", "/app.js", *PAGES, "/api/v1/openapi.json"]
)
def test_without_credentials_nothing_is_told(server: Running, path: str) -> None:
    assert server.ask(path, token=None).status == 401
    assert server.ask(path, token="a-wrong-token-0123456789").status == 401


def test_a_session_that_was_not_given_out_is_refused(server: Running) -> None:
    for value in ("1", "99999999999.00", "99999999999." + 64 * "a", "x.y", ""):
        cookie = {"Cookie": f"__Host-ingero-{server.port}={value}"}
        assert server.ask("/api/v1/health", token=None, headers=cookie).status == 401


def test_a_page_of_another_site_cannot_use_the_session(server: Running) -> None:
    said = server.ask("/login", token=None, method="POST", body={"token": TOKEN})
    cookie = {"Cookie": said.headers["set-cookie"].partition(";")[0]}
    query = {"method": "POST", "body": {"sql": "SELECT 1"}, "token": None}
    assert server.ask("/api/v1/health", token=None, headers=cookie).status == 200
    assert server.ask("/api/v1/query", headers=cookie, **query).status == 401
    for origin, status in (("https://evil.example", 403), (server.url("").rstrip("/"), 200)):
        assert server.ask("/api/v1/query", headers=cookie | {"Origin": origin}, **query).status == status


def test_another_name_is_refused_unless_it_is_allowed(incident: Path, home: Path) -> None:
    names = {"evil.example": 421, "gpu.example": 200, "localhost": 200, socket.gethostname(): 200}
    with running(incident, home, "--addr", ":0", "--allowed-host", "gpu.example") as server:
        for host, status in names.items():
            said = server.ask("/api/v1/health", headers={"Host": f"{host}:{server.port}"})
            assert said.status == status, host


def test_a_client_certificate_opens_it_without_a_token(
    incident: Path, home: Path, tmp_path: Path, chromium: Browser
) -> None:
    authority, stranger = Authority(tmp_path), Authority(tmp_path, "stranger")
    flags = ("--addr", "127.0.0.1:0", "--client-ca", str(authority.file))
    with running(incident, home, *flags, token=None) as server:
        assert server.link == f"https://127.0.0.1:{server.port}/"
        mine = authority.sign("anna")
        certificates = [{"origin": server.url("").rstrip("/"), "certPath": str(mine), "keyPath": str(mine)}]
        context = chromium.new_context(ignore_https_errors=True, client_certificates=certificates)
        page = context.new_page()
        page.goto(server.url())
        expect(page.get_by_role("heading", name="1 problem found")).to_be_visible()
        expect(page.get_by_role("button", name="Sign out")).to_have_count(0)
        context.close()
        nobody = chromium.new_context(ignore_https_errors=True).new_page()
        with pytest.raises(BrowserError):
            nobody.goto(server.url())
        nobody.context.close()
        for client in (None, stranger.sign("eve")):
            with pytest.raises((ssl.SSLError, ConnectionError)):
                server.ask("/api/v1/health", token=None, client=client)
        assert server.ask("/api/v1/health", token=None, client=authority.sign("bert")).status == 200


def test_on_loopback_this_user_needs_no_token(incident: Path, start: Start, browse: Open) -> None:
    page = browse(start(incident, "--addr", "127.0.0.1:0", token=None), sign_in=False)
    expect(page.get_by_role("heading", name="1 problem found")).to_be_visible()


def test_only_tls_1_3_is_spoken(server: Running) -> None:
    old = server.tls()
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    with socket.create_connection(("localhost", server.port)) as plain, pytest.raises(ssl.SSLError):
        old.wrap_socket(plain, server_hostname="localhost")


def test_signing_in_opens_the_page_that_was_asked_for(server: Running, browse: Open) -> None:
    page = browse(server, "/latency?since=30s", sign_in=False)
    page.get_by_label("Token").fill(TOKEN)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url(server.url("/latency?since=30s"))


def test_signing_in_leads_to_no_other_site(server: Running, browse: Open) -> None:
    for elsewhere in ("https://example.com/", "//example.com/", "/\\example.com", "/login"):
        page = browse(server, f"/login?next={elsewhere}", sign_in=False)
        page.get_by_label("Token").fill(TOKEN)
        page.get_by_role("button", name="Sign in").click()
        page.wait_for_url(server.url("/"))
