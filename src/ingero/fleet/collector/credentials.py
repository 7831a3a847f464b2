"""For whom a sender may speak: a node for itself, a gateway for those it was named for.

Either its certificate names the node, or it shows a token made for that name from the
collector's secret: one secret serves any number of nodes, and a node's token is worth nothing
in another node's name. Either may name the node's cluster too (CLUSTER/NODE); whoever is bound to none
may say a few.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from ingero import units
from ingero.errors import UsageError

_PATTERN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,119}/)?(\*|[A-Za-z0-9][A-Za-z0-9._-]{0,252}\*?)")
PREFIX = "ingero-node"
BINDING = "ingero://"  # then CLUSTER/NODE: a URI in a certificate, beside which its other names do not count
CLUSTERS, GATEWAYS_CLUSTERS = 4, 256  # that one may name who is bound to none, since the collector started
REMEMBERED = 200_000  # speakers


class Stranger(Exception):  # noqa: N818 - no error of ours
    """Nobody we know."""


@dataclass(frozen=True)
class Speaker:
    """Names, or beginnings of names that end with `*`; before a slash the only cluster they count in."""

    names: frozenset[str]

    def may_speak_for(self, node: str, cluster: str = "") -> bool:
        return any(_covers(name, node, cluster) for name in self.names)


def _covers(name: str, node: str, cluster: str) -> bool:
    bound, _, pattern = name.rpartition("/")
    if bound and bound != cluster:
        return False
    return node.startswith(pattern[:-1]) if pattern.endswith("*") else node == pattern


class Clusters:
    """Which ones each speaker has named: a name costs the collector something, so nobody has any number."""

    def __init__(self) -> None:
        self._known: OrderedDict[Speaker, set[str]] = OrderedDict()

    def admit(self, speaker: Speaker, named: set[str]) -> bool:
        known = self._known.pop(speaker, set())
        many = any(name.endswith("*") for name in speaker.names)
        admitted = len(known | named) <= (GATEWAYS_CLUSTERS if many else CLUSTERS)
        self._known[speaker] = known | named if admitted else known
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
        return admitted


ANYBODY = Speaker(frozenset({"*"}))


def token_for(secret: bytes, pattern: str) -> str:
    """What a node, or all whose names begin so, show."""
    if not _PATTERN.fullmatch(pattern):
        raise UsageError(
            f"not a node name: {units.clean(pattern)!r}",
            hint="Use letters, digits, dots, dashes and underscores, after CLUSTER/ if you like; a final *"
            " stands for the rest.",
        )
    return f"{PREFIX}:{pattern}:{_signature(secret, pattern)}"


def _signature(secret: bytes, pattern: str) -> str:
    return hmac.new(secret, f"{PREFIX}\0{pattern}".encode(), hashlib.sha256).hexdigest()


class Credentials:
    """`secret` None: no tokens. `gateways`: names in certificates that may speak for everybody."""

    def __init__(self, secret: bytes | None, certificates: bool, gateways: Iterable[str] = ()) -> None:
        self._secret, self._certificates, self._gateways = secret, certificates, frozenset(gateways)
        self.clusters = Clusters()

    @property
    def required(self) -> bool:
        return self._secret is not None or self._certificates

    def speaker(self, authorization: str, certified: Iterable[str]) -> Speaker:
        """Who it is; `certified` are the names in a certificate that was checked."""
        if not self.required:
            return ANYBODY
        if authorization:
            return self._by_token(authorization)
        names = frozenset(certified) if self._certificates else frozenset()
        if names & self._gateways:
            return ANYBODY
        if not names:
            raise Stranger("a certificate or a token of the node is needed")
        bound = {name.removeprefix(BINDING) for name in names if name.startswith(BINDING)}
        return Speaker(frozenset(name for name in bound or names if not name.endswith("*")))

    def _by_token(self, authorization: str) -> Speaker:
        scheme, _, token = authorization.partition(" ")
        parts = token.strip().split(":")
        if scheme.lower() == "bearer" and len(parts) == 3 and self._secret is not None:
            expected = _signature(self._secret, parts[1])
            if parts[0] == PREFIX and hmac.compare_digest(expected.encode(), parts[2].encode()):
                return Speaker(frozenset({parts[1]}))
        raise Stranger("not a token of this collector")
