"""Who is at the other end of a connection on this machine.

The kernel lists every socket with the user it belongs to; the other end of ours is
the one with our addresses the other way round.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from pathlib import Path

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
TABLES = (Path("/proc/self/net/tcp"), Path("/proc/self/net/tcp6"))
_UID = 7  # column


def address_of(text: str) -> Address | None:
    """An IP address; IPv4 written as IPv6 is IPv4."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return getattr(found, "ipv4_mapped", None) or found


def is_ours(
    client: tuple[str, int] | None, server: tuple[str, int | None] | None, owner: int | None = None
) -> bool:
    """The other end belongs to whoever started us, or to root; False where that cannot be told."""
    if client is None or server is None or server[1] is None:
        return False
    uid = user_of((client[0], client[1]), (server[0], server[1]))
    return uid is not None and uid in (0, os.geteuid() if owner is None else owner)


def user_of(local: tuple[str, int], remote: tuple[str, int]) -> int | None:
    """The user who holds the socket with these ends."""
    ends = [_spellings(*local), _spellings(*remote)]
    for table in TABLES:
        try:
            lines = table.read_text("ascii", "replace").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            cells = line.split()
            if len(cells) > _UID and cells[1] in ends[0] and cells[2] in ends[1]:
                return int(cells[_UID])
    return None


def _spellings(host: str, port: int) -> set[str]:
    """As the kernel's tables write an end: words of the address in the machine's byte order."""
    address = address_of(host)
    if address is None:
        return set()
    forms = [address.packed]
    if address.version == 4:
        forms.append(bytes(10) + b"\xff\xff" + address.packed)
    return {f"{_swapped(form)}:{port:04X}" for form in forms}


def _swapped(packed: bytes) -> str:
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
