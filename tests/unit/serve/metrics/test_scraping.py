"""Beside the metrics stands whether the agent is alive, and nothing else."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from ingero.model.metrics import SeriesPoint, Snapshot
from ingero.serve.metrics.scraping import ALIVE, LAST_LOOK, STANDS_S, scraped_app


def asked(path: str, last_s: float | None) -> tuple[int, bytes]:
    points = {} if last_s is None else {LAST_LOOK: [SeriesPoint((), last_s, 0)]}
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    app = scraped_app(lambda: Snapshot(1, 0, "n", points))
    asyncio.run(app({"type": "http", "path": path, "method": "GET", "headers": []}, None, send))  # type: ignore[arg-type]
    return sent[0]["status"], sent[1]["body"]


@pytest.mark.parametrize(("age_s", "status"), [(1, 200), (STANDS_S + 5, 503), (None, 503)])
def test_it_is_alive_while_it_looks_at_the_kernel(age_s: float | None, status: int) -> None:
    found = asked(ALIVE, None if age_s is None else time.time() - age_s)
    assert found == (status, b"alive\n" if status == 200 else b"stands\n")
