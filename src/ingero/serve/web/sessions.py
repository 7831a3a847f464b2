"""A browser signs in once with a token and then shows a session: when it ends, and a signature.

Nothing is kept for it. The signature is made with the token's digest, so a session
outlives a restart of the server and ends when its token is taken away.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Iterable

from ingero.serve.web.tokens import Tokens

HOURS = 12
_MOST_BYTES = 200


class Sessions:
    """Begins and recognises sessions; `cookie` is the name of the one that holds it."""

    def __init__(self, tokens: Tokens, cookie: str) -> None:
        self._tokens, self.cookie = tokens, cookie

    def begin(self, token: bytes, now_s: float | None = None) -> str | None:
        """A new session for whoever has this token; None where it is no good."""
        if not self._tokens.accept(token):
            return None
        ends = str(int((time.time() if now_s is None else now_s) + HOURS * 3600))
        return f"{ends}.{self._tokens.signature_of(token, _meaning(ends))}"

    def accept(self, headers: Iterable[tuple[bytes, bytes]], now_s: float | None = None) -> bool:
        """One of the cookies is a session of ours that has not ended."""
        return any(self._good(value, now_s) for value in _cookies(headers, self.cookie))

    def _good(self, value: str, now_s: float | None) -> bool:
        ends, _, given = value.partition(".")
        if len(value) > _MOST_BYTES or not (ends.isascii() and ends.isdecimal()):
            return False
        known = self._tokens.signatures(_meaning(ends))
        right = sum([hmac.compare_digest(given.encode(), each.encode()) for each in known]) > 0
        return right and int(ends) > (time.time() if now_s is None else now_s)


def _meaning(ends: str) -> bytes:
    return f"ingero session until {ends}".encode()


def _cookies(headers: Iterable[tuple[bytes, bytes]], wanted: str) -> Iterable[str]:
    for name, text in headers:
        if name == b"cookie":
            for pair in text.decode("latin-1").split(";"):
                key, _, value = pair.strip().partition("=")
                if key == wanted:
                    yield value
