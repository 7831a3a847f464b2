"""Bearer tokens: from the environment, from a file, or one made at the first start. Never from a flag,
which everybody on the machine could read in the process list.

A file may hold several, one per line, so that a token can be replaced without a gap.
Only digests are kept, and all of them are compared, each in constant time.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ingero.errors import UsageError
from ingero.serve.web.private_files import Folder, read_private, write_whole

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
