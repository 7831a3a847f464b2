"""Servers started as users start them: `ingero dashboard`, `ingero mcp --http`."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

TOKEN = "an-example-token-of-the-tests-0123456789"


def environment(home: Path, **more: str) -> dict[str, str]:
    """A user with nothing configured."""
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("INGERO_", "SUDO_", "XDG_"))
    }
    return kept | {"HOME": str(home)} | more


@dataclass(frozen=True)
class Running:
    """A server."""

    link: str  # as printed
    home: Path
    process: subprocess.Popen[bytes]
    said: list[str]
    more: Iterator[str]  # what it says from now on

    @property
    def secure(self) -> bool:
        return self.link.startswith("https")

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)/", self.link)
        assert found
        return int(found[1])

    @property
    def trusted(self) -> Path:
        return self.home / ".ingero/server/certificate.pem"

    @property
    def own_token(self) -> str:
        """The one made at the first start."""
        return (self.home / ".ingero/server/token").read_text().strip()

    def alive(self) -> bool:
        return self.process.poll() is None

    def tls(self, client: Path | None = None) -> ssl.SSLContext:
        """Trusts the server's own certificate; with a client's own in one PEM file."""
        made = ssl.create_default_context(cafile=str(self.trusted))
        if client is not None:
            made.load_cert_chain(client)
        return made


R = TypeVar("R", bound=Running)


@contextmanager
def started(
    kind: type[R],
    arguments: Sequence[str],
    home: Path,
    environ: Mapping[str, str],
    before: str = "",
    on_terminal: bool = False,
    inside: Sequence[str] = (),
) -> Iterator[R]:
    """A command that serves; `before` is Python run ahead of it in its process, `inside` what runs it."""
    script = (
        f"import sys; {before}\nfrom ingero.serve.cli.main import main; sys.exit(main({list(arguments)!r}))"
    )
    read, write = os.openpty() if on_terminal else os.pipe()
    process = subprocess.Popen(
        [*inside, sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=write,
        env=environment(home, **environ),
        cwd=home,
    )
    os.close(write)
    lines: list[str] = []
    told = _lines(read)
    try:
        for line in told:
            lines.append(line)
            if found := re.match(rf"ingero {arguments[0]}: (\S+)", line):
                yield kind(found[1], home, process, lines, told)
                break
        else:
            raise AssertionError("\n".join(lines))
    finally:
        process.send_signal(signal.SIGTERM)
        lines += told  # until it closes its end
        process.wait(timeout=20)
        os.close(read)


def _lines(handle: int) -> Iterator[str]:
    rest = b""
    while part := _read(handle):
        *whole, rest = (rest + part).split(b"\n")
        yield from (line.decode().rstrip() for line in whole)
    if rest:
        yield rest.decode().rstrip()


def _read(handle: int) -> bytes:
    try:
        return os.read(handle, 65536)
    except OSError:  # of a terminal, once nobody holds its other end
        return b""
