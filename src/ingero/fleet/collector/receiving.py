"""What nodes send: OTLP over HTTP, as protobuf or JSON. Taken when it is in the store, not before.

Who may send is decided here, batch by batch: a sender may speak for itself only. A request with one
batch in somebody else's name is refused whole, and said to the log.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from ingero import units
from ingero.errors import StoreError
from ingero.fleet.collector.commit import Busy, Committer
from ingero.fleet.collector.credentials import Credentials, Stranger
from ingero.fleet.collector.otlp import Malformed, Received, read, unpacked
from ingero.model.fleet import ADVICE_HEADER, Advice, Health

log = logging.getLogger(__name__)
PATHS = {"/v1/metrics": "metrics", "/v1/logs": "logs"}
JSON, PROTOBUF = "application/json", "application/x-protobuf"
RETRY_S = 5
ADVICE_BYTES = 4096
_ANSWERS = {
    "metrics": bytes(ExportMetricsServiceResponse().SerializeToString()),
    "logs": bytes(ExportLogsServiceResponse().SerializeToString()),
}
Endpoint = Callable[[Request], Awaitable[Response]]
READING = (
    2  # bodies unpacked and parsed at a time, in threads: each may be 16 MB, and answers go on meanwhile
)
AdviceOf = Callable[[], Mapping[tuple[str, str], list[Advice]]]


def receiver(
    signal: str,
    credentials: Credentials,
    committer: Committer,
    advice: AdviceOf,
    counts: Counter[str],
    turn: asyncio.Semaphore,
) -> Endpoint:
    """The endpoint of one signal; `turn`: to read a body."""

    async def receive(request: Request) -> Response:
        response, name = await _received(request, signal, credentials, committer, advice, turn)
        counts[name] += 1
        return response

    return receive


async def _received(
    request: Request,
    signal: str,
    credentials: Credentials,
    committer: Committer,
    advice: AdviceOf,
    turn: asyncio.Semaphore,
) -> tuple[Response, str]:
    try:
        names = getattr(request.state, "certified", ())
        speaker = credentials.speaker(request.headers.get("authorization", ""), names)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in (JSON, PROTOBUF):
            return PlainTextResponse(f"send {PROTOBUF} or {JSON}\n", 415), "malformed"
        packed, encoding = await request.body(), request.headers.get("content-encoding", "").lower()
        async with turn:
            received = await asyncio.to_thread(_read, signal, packed, encoding, kind == JSON)
    except Stranger as error:
        return PlainTextResponse(f"{error}\n", 401, {"www-authenticate": 'Bearer realm="ingero"'}), "stranger"
    except Malformed as error:
        return PlainTextResponse(f"{error}\n", 400), "malformed"
    if received.refused:
        log.warning("%s: left out: %s", request.client, units.clean("; ".join(received.refused), 300))
    false = sorted(
        {each.node for each in received.batches if not speaker.may_speak_for(each.node, each.cluster)}
    )
    if false:
        log.warning("%s may not speak for %s", request.client, units.clean(", ".join(false), 200))
        return PlainTextResponse("a node may speak for itself only\n", 403), "false-name"
    if not credentials.clusters.admit(speaker, {each.cluster for each in received.batches}):
        log.warning("%s names more clusters than one speaker has", request.client)
        return PlainTextResponse("too many clusters for one speaker\n", 403), "false-name"
    try:
        await asyncio.wrap_future(committer.submit(signal, received.batches))
    except Busy:
        return _later("too much waits to be stored"), "busy"
    except Exception as error:  # whatever it is: what is refused for good would be lost
        if not isinstance(error, StoreError):
            log.error("what nodes sent was not stored", exc_info=error)
        return _later("the store does not take it"), "store-failed"
    return _taken(signal, kind, received, advice()), "taken"


def _read(signal: str, packed: bytes, encoding: str, is_json: bool) -> Received:
    return read(signal, unpacked(packed, encoding), is_json, time.time_ns())


def _later(why: str) -> Response:
    return PlainTextResponse(f"{why}\n", 503, {"retry-after": str(RETRY_S)})


def _taken(
    signal: str, kind: str, received: Received, advice: Mapping[tuple[str, str], list[Advice]]
) -> Response:
    headers = {ADVICE_HEADER: told} if (told := _advice(received.batches, advice)) else {}
    body = b"{}" if kind == JSON else _ANSWERS[signal]
    return Response(body, headers=headers, media_type=kind)


def _advice(batches: list[Health], advice: Mapping[tuple[str, str], list[Advice]]) -> str:
    """Of one node; whoever sends for several cannot hand it on."""
    whose = {(each.cluster, each.node) for each in batches}
    if len(whose) != 1:
        return ""
    found = sorted(advice.get(whose.pop(), []), key=lambda each: not each.straggles)
    while found and len(text := msgspec.json.encode(found)) > ADVICE_BYTES:
        found = found[: len(found) // 2]
    return text.decode("ascii", "replace") if found else ""
