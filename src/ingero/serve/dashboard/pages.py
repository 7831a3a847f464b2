"""The pages: one HTML document for all of them, and the files it needs, read once at the start.

They are bundled when the package is built. A package built without them still answers
the API and says on its pages what is missing.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable
from importlib import resources

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

PAGES = ("/", "/timeline", "/time", "/latency", "/flame", "/gpus", "/cost", "/graphs", "/sql")
LOGIN_FILES = ("/login", "/login.js", "/style.css", "/icon.svg")
MISSING = "This ingero was built without the dashboard's pages; the API is under /api/v1.\n"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none';"
    " require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = ((b"content-security-policy", POLICY.encode()),)
Endpoint = Callable[[Request], Awaitable[Response]]


def files() -> dict[str, bytes]:
    """By name; empty where the package was built without them."""
    folder = resources.files("ingero.serve.dashboard") / "static"
    if not folder.is_dir():
        return {}
    return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}


def page(static: dict[str, bytes], name: str) -> Endpoint:
    """A file under its name; without the pages, what is missing."""
    body, kind = static.get(name), mimetypes.guess_type(name)[0] or "application/octet-stream"

    async def answer(_: Request) -> Response:
        if body is None:
            return PlainTextResponse(MISSING, 404)
        return Response(body, media_type=kind)

    return answer
