"""Asking a collector: how the fleet does, and how one node did."""

from __future__ import annotations

import http.client
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import msgspec

from ingero.errors import StoreError
from ingero.model.fleet import FleetStatus, NodeHistory
from ingero.serve.cli.fleet_options import collector

if TYPE_CHECKING:
    from ingero.config import Config

T = TypeVar("T")
TOKENS = ("INGERO_COLLECTOR_TOKEN", "INGERO_TOKEN")  # of people; nodes show another
ANSWER_BYTES = 64 << 20
PATIENCE_S = 30


class CollectorAsked:
    """One collector; a connection for each question."""

    def __init__(
        self,
        where: str,
        config: Config,
        token_file: Path | None = None,
        ca: Path | None = None,
        variables: tuple[str, ...] = TOKENS,
    ) -> None:
        from ingero.serve.metrics.otlp_destination import refuse_leak
        from ingero.serve.web.sessions import from_environment, from_file

        tokens = from_environment(os.environ, variables) or (from_file(token_file) if token_file else [])
        to = collector(where, "--collector", config)
        headers = {"authorization": f"Bearer {tokens[0]}"} if tokens else {}
        self._to = replace(to, headers=headers, ca=ca or to.ca)
        refuse_leak(self._to)

    def status(self, filters: Mapping[str, Any]) -> FleetStatus:
        return self._asked("fleet", filters, FleetStatus)

    def history(self, cluster: str, node: str, hours: float) -> NodeHistory:
        return self._asked("fleet/node", {"cluster": cluster, "node": node, "hours": hours}, NodeHistory)

    def _asked(self, path: str, words: Mapping[str, Any], kind: type[T]) -> T:
        given = urlencode({name: value for name, value in words.items() if value is not None})
        status, body = self._get(f"{self._to.path}/api/v1/{path}?{given}")
        if status != 200:
            text = body[:300].decode("utf-8", "replace").strip()
            hint = "Its token: INGERO_TOKEN or --token-file." if status == 401 else "See docs/fleet.md."
            raise StoreError(f"the collector {self._to.url} refused: HTTP {status} {text}", hint=hint)
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise StoreError(
                f"{self._to.url} is not a collector: {error}", hint="Check the address."
            ) from error

    def _get(self, path: str) -> tuple[int, bytes]:
        to, tls = self._to, self._to.tls()
        connection = (
            http.client.HTTPSConnection(to.host, to.port, timeout=PATIENCE_S, context=tls)
            if tls
            else http.client.HTTPConnection(to.host, to.port, timeout=PATIENCE_S)
        )
        try:
            connection.request("GET", path, headers=dict(to.headers))
            answer = connection.getresponse()
            return answer.status, answer.read(ANSWER_BYTES)
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(
                f"the collector {to.url} does not answer: {getattr(error, 'strerror', None) or error}",
                hint="Check that it runs at that address. For its certificate use --ca FILE.",
            ) from error
        finally:
            connection.close()
