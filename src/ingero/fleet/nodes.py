"""Which nodes are asked: from a flag, the configuration, a file, or a name with many addresses.

A name that stands for several addresses of one family, such as a headless service of Kubernetes,
is as many nodes; one that has an IPv4 and an IPv6 address is one node. Whether two
addresses lead to the same server only that server knows: asking.py looks at it.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ingero import units
from ingero.errors import UsageError

USUAL_PORT = 8080  # of `ingero dashboard`
MOST_NODES = 10_000
MOST_FILE_BYTES = 1 << 20
_ADDRESS = re.compile(r"(?:(https?)://)?(\[[0-9a-fA-F:.]+(?:%\w+)?\]|[^\s:/\[\]@,]+)(?::(\d{1,5}))?/?")

Resolve = Callable[[str, int], list[str]]


@dataclass(frozen=True, slots=True)
class Node:
    """One server to ask."""

    host: str  # whose name the certificate must have
    port: int
    secure: bool = True
    address: str | None = None  # the one of several that the name stands for

    @property
    def name(self) -> str:
        """As people write it."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" + (f" ({self.address})" if self.address else "")

    @property
    def url(self) -> str:
        """Where to connect."""
        host = self.address or self.host
        scheme = "https" if self.secure else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def host_header(self) -> str:
        return f"{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"

    @property
    def on_this_machine(self) -> bool:
        host = self.address or self.host
        try:
            return ipaddress.ip_address(host).is_loopback
        except ValueError:
            return host == "localhost"


def parse_nodes(texts: Iterable[str], plain: bool = False) -> list[Node]:
    """`a:8080,b`, `https://c:8443`, `@FILE`; each once, in the order given."""
    found: dict[tuple[str, int], Node] = {}
    for text in texts:
        for word in text.split(","):
            for each in _words(word.strip()):
                node = _parse(each, plain)
                found.setdefault((node.host.lower(), node.port), node)
    return _require_few(list(found.values()))


def _words(word: str) -> Sequence[str]:
    if not word.startswith("@"):
        return (word,) if word else ()
    path = Path(word[1:]).expanduser()
    try:
        with path.open("rb") as file:
            data = file.read(MOST_FILE_BYTES + 1)
        text = data.decode("utf-8")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(
            f"cannot read the nodes in {path}: {why}", hint="One HOST:PORT per line; # begins a comment."
        ) from error
    if len(data) > MOST_FILE_BYTES:
        raise UsageError(f"{path} is larger than 1 MiB", hint="One HOST:PORT per line.")
    lines = (line.partition("#")[0].strip() for line in text.splitlines())
    return [line for line in lines if line]


def _parse(text: str, plain: bool) -> Node:
    match = _ADDRESS.fullmatch(text)
    port = int(match[3]) if match and match[3] else USUAL_PORT
    if match is None or not 0 < port < 65536:
        raise UsageError(
            f"not the address of a node: {units.clean(text, 80)!r}", hint="Write HOST:PORT, or @FILE."
        )
    if match[1] == "http" and not plain:
        raise UsageError(
            f"{units.clean(text, 80)} would be asked without TLS", hint="Write https://, or add --no-tls."
        )
    secure = match[1] == "https" or not plain
    return Node(match[2].strip("[]"), port, secure)


def _require_few(nodes: list[Node]) -> list[Node]:
    if len(nodes) > MOST_NODES:
        raise UsageError(
            f"{len(nodes):,} nodes are more than can be asked at once",
            hint=f"At most {MOST_NODES:,}; for more, `ingero fleet serve` collects what nodes send.",
        )
    return nodes


def addresses_of(host: str, port: int) -> list[str]:
    """All addresses of a name, as the machine's resolver orders them, of the family it prefers."""
    rows = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    preferred = rows[0][0] if rows else None
    return list(dict.fromkeys(str(row[4][0]) for row in rows if row[0] == preferred))


def expanded(node: Node, resolve: Resolve = addresses_of) -> list[Node]:
    """One node for each address of a name with several; itself where there is one, or none is known."""
    try:
        ipaddress.ip_address(node.host.partition("%")[0])
        return [node]
    except ValueError:
        pass
    try:
        found = resolve(node.host, node.port)
    except (OSError, UnicodeError):
        return [node]  # whoever connects says what is wrong
    if len(found) < 2:
        return [node]
    return _require_few([replace(node, address=each) for each in found])
