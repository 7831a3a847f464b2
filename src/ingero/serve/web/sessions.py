"""Who has signed in: bearer tokens, and the sessions a browser gets for one."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ingero.errors import UsageError
from ingero.serve.web.private_files import Folder, read_private, write_whole

# Bearer tokens: from the environment, from a file, or one made at the first start. Never from a flag,
# which everybody on the machine could read in the process list.
#
# A file may hold several, one per line, so that a token can be replaced without a gap.
# Only digests are kept, and all of them are compared, each in constant time.

SHORTEST = 16
OWN_FILE = "token"


class Tokens:
    """Knows the right ones without keeping them."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = [_digest(token.encode()) for token in tokens]

    def accept(self, given: bytes) -> bool:
        digest = _digest(given)
        # No short cut: how many were compared must not show.
        return sum([hmac.compare_digest(digest, known) for known in self._digests]) > 0

    def signature_of(self, token: bytes, text: bytes) -> str:
        """What only who has the token, or knows its digest, can write under a text."""
        return hmac.new(_digest(token), text, hashlib.sha256).hexdigest()

    def signatures(self, text: bytes) -> list[str]:
        """That of every token that counts."""
        return [hmac.new(digest, text, hashlib.sha256).hexdigest() for digest in self._digests]


def _digest(token: bytes) -> bytes:
    return hashlib.sha256(token).digest()


def from_environment(environ: Mapping[str, str], names: Sequence[str]) -> list[str]:
    """The first of these variables that is set."""
    for name in names:
        if environ.get(name):
            return [_long_enough(environ[name].strip(), name)]
    return []


def from_file(path: Path) -> list[str]:
    """Its lines; empty ones and those that begin with # do not count."""
    lines = [
        line.strip() for line in read_private(path, "token file").decode("utf-8", "replace").splitlines()
    ]
    found = [_long_enough(line, str(path)) for line in lines if line and not line.startswith("#")]
    if not found:
        raise UsageError(f"the token file {path} holds no token", hint="Write one line into it.")
    return found


def own_token(folder: Folder) -> Path:
    """The file with the token we made; made when there is none."""
    path = folder.path / OWN_FILE
    return path if path.exists() else write_whole(folder, OWN_FILE, f"{secrets.token_urlsafe(32)}\n".encode())


def _long_enough(token: str, where: str) -> str:
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UsageError(
            f"the token in {where} is too easy to guess or not plain text",
            hint=f"Use at least {SHORTEST} letters and digits, for example from: openssl rand -hex 32",
        )
    return token


# A browser signs in once with a token and then shows a session: when it ends, and a signature.
#
# Nothing is kept for it. The signature is made with the token's digest, so a session
# outlives a restart of the server and ends when its token is taken away.


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
