"""One question to many nodes at once; every node's answer, or why there is none.

Each node gets a conversation of its own over one connection: some exchanges of clocks,
the question, exchanges again. How many go on at once, how long one may take and how much
may come back are bounded; a node that breaks a bound is one that did not answer, and the
others' answers stand. The client library is imported when somebody is asked.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ingero.errors import UsageError
from ingero.fleet import failures
from ingero.fleet.clocks import LEAST_EXCHANGES, Drift, Exchange, Offset, better, drift_between, offset_of
from ingero.fleet.failures import Failure, NodeFailed, Problem
from ingero.fleet.nodes import Node, Resolve, addresses_of, expanded

if TYPE_CHECKING:
    import httpx2

PREFIX = "/api/v1"
WARM_UP = 1  # the first exchange has the way through TCP and TLS in it
ERROR_BYTES = 64 << 10  # of what a node says about an error
HELLO_BYTES = 1 << 20  # of what it says of itself: it may have recordings of a thousand nodes
_RESOLVING = 8  # names looked up at once


@dataclass(frozen=True)
class Trust:
    """Whom we believe, and who we are."""

    tls: ssl.SSLContext
    token: str | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Limits:
    """What asking may cost."""

    seconds: float = 30.0  # for one node, from connecting to the last byte
    at_once: int = 32
    answer_bytes: int = 32 << 20  # of one node
    all_bytes: int = 512 << 20  # of all together


@dataclass(frozen=True)
class Question:
    """What every node is asked: a GET, or a POST where there is a body."""

    path: str
    parameters: Mapping[str, str] = field(default_factory=dict)
    instants: Mapping[str, int] = field(default_factory=dict)  # by our clock; each node is asked by its own
    body: Any = None
    into: Callable[[Node], Path] | None = None  # the answer goes into this file, not into memory


class Hello(msgspec.Struct, frozen=True):
    """What a node says of itself: /api/v1/health."""

    version: str
    now_ns: int
    instance: str | None = None  # of this server, until it ends
    nodes: tuple[str, ...] = ()  # in its recording


@dataclass
class Reply:
    """What came of one node: `body`, or `file`, or `failure`."""

    node: Node
    hello: Hello | None = None
    clock: Offset | None = None
    drift: Drift | None = None
    body: bytes | None = None
    file: Path | None = None
    failure: Failure | None = None
    took_s: float = 0.0
    certificate: bytes | None = field(default=None, repr=False)  # as it showed it; None: no TLS

    @property
    def answered(self) -> bool:
        return self.failure is None

    def forget(self) -> None:
        """What it answered does not count, and takes no room."""
        if self.file is not None:
            self.file.unlink(missing_ok=True)
        self.body = self.file = None


Progress = Callable[[int, int], None]  # how many are through, of how many
Now = Callable[[], int]


def ask_all(
    nodes: Sequence[Node],
    question: Question,
    trust: Trust,
    limits: Limits | None = None,
    progress: Progress = lambda _, __: None,
    resolve: Resolve = addresses_of,
) -> list[Reply]:
    """In the order of the nodes; a server that is reached twice counts once."""
    _require_secret_kept(nodes, trust)
    work = _Asking(question, trust, limits or Limits(), progress)
    return asyncio.run(work.all(nodes, resolve))


def _require_secret_kept(nodes: Sequence[Node], trust: Trust) -> None:
    for node in nodes:
        if trust.token is not None and not node.secure and not node.on_this_machine:
            raise UsageError(
                f"the token would be sent readable to {node.name}",
                hint="Leave --no-tls out, or ask without a token.",
            )


def _library() -> Any:
    try:
        import httpx2
    except ModuleNotFoundError as error:
        raise UsageError(
            f"asking other nodes needs a package that is not installed ({error.name})",
            hint="Install it: pip install 'ingero[fleet]'",
        ) from error
    return httpx2


class _Asking:
    """One question on its way."""

    def __init__(self, question: Question, trust: Trust, limits: Limits, progress: Progress) -> None:
        self._question, self._trust, self._limits, self._progress = question, trust, limits, progress
        self._httpx = _library()
        self._left_bytes = limits.all_bytes
        self._through = 0

    async def all(self, nodes: Sequence[Node], resolve: Resolve) -> list[Reply]:
        found = await self._resolved(nodes, resolve)
        turn = asyncio.Semaphore(self._limits.at_once)
        self._progress(0, len(found))

        async def one(node: Node) -> Reply:
            async with turn:
                reply = await self._reply(node)
            self._through += 1
            self._progress(self._through, len(found))
            return reply

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(node)) for node in found]
        return _each_server_once([task.result() for task in tasks])

    async def _resolved(self, nodes: Sequence[Node], resolve: Resolve) -> list[Node]:
        turn = asyncio.Semaphore(_RESOLVING)

        async def of(node: Node) -> list[Node]:
            async with turn:
                looked = asyncio.to_thread(expanded, node, resolve)
                try:
                    return await asyncio.wait_for(looked, self._limits.seconds)
                except TimeoutError:
                    return [node]

        return [each for some in await asyncio.gather(*map(of, nodes)) for each in some]

    async def _reply(self, node: Node) -> Reply:
        reply = Reply(node)
        began = time.monotonic()
        try:
            async with asyncio.timeout(self._limits.seconds), self._client(node) as client:
                await self._converse(client, reply)
        except NodeFailed as failed:
            reply.failure = failed.failure
        except TimeoutError:
            reply.failure = failures.too_slow(self._limits.seconds)
        except (self._httpx.HTTPError, self._httpx.InvalidURL, OSError, ValueError) as error:
            reply.failure = failures.told_by(error)
        if reply.failure is not None:
            reply.forget()
        reply.took_s = time.monotonic() - began
        return reply

    @asynccontextmanager
    async def _client(self, node: Node) -> AsyncIterator[httpx2.AsyncClient]:
        # A client for each node: its connection ends with the conversation. No proxy, no redirect, no
        # compression: what is not from the node itself is no answer, and sizes are as they are read.
        headers = {"accept-encoding": "identity", "host": node.host_header, "user-agent": "ingero"}
        if self._trust.token is not None:
            headers["authorization"] = f"Bearer {self._trust.token}"
        async with self._httpx.AsyncClient(
            base_url=node.url,
            headers=headers,
            verify=self._trust.tls,
            timeout=self._limits.seconds,
            trust_env=False,
            follow_redirects=False,
            limits=self._httpx.Limits(max_connections=1),
        ) as client:
            yield client

    async def _converse(self, client: httpx2.AsyncClient, reply: Reply) -> None:
        first = await self._exchanges(client, reply, WARM_UP + LEAST_EXCHANGES)
        reply.clock = first
        if self._question.path == "health":
            return
        if self._question.into is None:
            reply.body = bytes(await self._asked(client, reply, bytearray()))
        else:
            await self._fetched(client, reply, self._question.into(reply.node))
            last = await self._exchanges(client, reply, LEAST_EXCHANGES)
            reply.drift = drift_between(first, last) if first and last else None
            reply.clock = better([first, last])

    async def _exchanges(self, client: httpx2.AsyncClient, reply: Reply, count: int) -> Offset | None:
        found = []
        for _ in range(count):
            sent_ns = time.time_ns()
            status, body, certificate = await self._hello_of(client, reply.node)
            received_ns = time.time_ns()
            if status != 200:
                raise NodeFailed(failures.by_status(status, body))
            reply.certificate = certificate
            reply.hello = _hello(body)
            found.append(Exchange(sent_ns, reply.hello.now_ns, received_ns))
        return offset_of(found)

    async def _hello_of(self, client: httpx2.AsyncClient, node: Node) -> tuple[int, bytes, bytes | None]:
        body = bytearray()
        async with self._sent(client, node, client.build_request("GET", f"{PREFIX}/health")) as response:
            tls = response.extensions["network_stream"].get_extra_info("ssl_object")
            certificate = tls.getpeercert(binary_form=True) if tls is not None else None
            await self._read(response, body.extend, HELLO_BYTES)
        return response.status_code, bytes(body), certificate

    @asynccontextmanager
    async def _sent(
        self, client: httpx2.AsyncClient, node: Node, request: httpx2.Request
    ) -> AsyncIterator[httpx2.Response]:
        if node.address is not None and node.secure:
            request.extensions["sni_hostname"] = node.host  # whose certificate it must be
        response = await client.send(request, stream=True)
        try:
            yield response
        finally:
            await response.aclose()

    async def _read(
        self, response: httpx2.Response, take: Callable[[bytes], object], most: int, *, counted: bool = False
    ) -> None:
        """`counted`: part of what all answers together may be, also where this one fails later."""
        if response.headers.get("content-encoding", "identity") != "identity":
            raise NodeFailed(
                Failure(Problem.GARBAGE, "its answer is packed though a plain one was asked for")
            )
        size = 0
        async for part in response.aiter_raw():
            size += len(part)
            if size > most:
                raise NodeFailed(failures.too_large(most))
            if counted:
                # Part by part, with no await between: others are read at the same time.
                self._left_bytes -= len(part)
                if self._left_bytes < 0:
                    raise NodeFailed(failures.too_large_together(self._limits.all_bytes))
            take(part)

    async def _asked(self, client: httpx2.AsyncClient, reply: Reply, body: bytearray) -> bytearray:
        async with self._sent(client, reply.node, self._request(client, reply.clock)) as response:
            await self._require_answer(response)
            await self._read(response, body.extend, self._limits.answer_bytes, counted=True)
        return body

    async def _fetched(self, client: httpx2.AsyncClient, reply: Reply, path: Path) -> None:
        async with self._sent(client, reply.node, self._request(client, reply.clock)) as response:
            await self._require_answer(response)
            try:
                with path.open("wb") as file:
                    await self._read(response, file.write, self._limits.answer_bytes, counted=True)
            except BaseException:  # also where its time is over
                path.unlink(missing_ok=True)
                raise
        reply.file = path

    def _request(self, client: httpx2.AsyncClient, clock: Offset | None) -> httpx2.Request:
        asked = self._question
        shift_ns = clock.shift_ns if clock is not None else 0
        own = {name: str(max(0, at_ns - shift_ns)) for name, at_ns in asked.instants.items()}
        url, parameters = f"{PREFIX}/{asked.path}", {**asked.parameters, **own}
        if asked.body is None:
            return client.build_request("GET", url, params=parameters)
        content = msgspec.json.encode(asked.body)
        sent = {"content-type": "application/json"}
        return client.build_request("POST", url, params=parameters, content=content, headers=sent)

    async def _require_answer(self, response: httpx2.Response) -> None:
        if response.status_code != 200:
            said = bytearray()
            await self._read(response, said.extend, ERROR_BYTES)
            raise NodeFailed(failures.by_status(response.status_code, bytes(said)))


def _hello(body: bytes) -> Hello:
    try:
        return msgspec.json.decode(body, type=Hello)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise NodeFailed(Failure(Problem.FOREIGN, "it does not say who it is", failures.ANOTHER)) from error


def _each_server_once(replies: list[Reply]) -> list[Reply]:
    """A server that was reached under two addresses told everything twice.

    Who it is, it says itself; that it is one server only its certificate shows. Where two differ one of them
    is missing from the answer, and nobody may think that nothing is.
    """
    known: dict[str, Reply] = {}
    for reply in replies:
        instance = reply.hello.instance if reply.hello is not None else None
        if instance is None or not reply.answered:
            continue
        first = known.setdefault(instance, reply)
        if first is not reply:
            name = first.node.name
            reply.failure = (
                Failure(Problem.SAME, f"it is the server that answers as {name}", "")
                if reply.certificate == first.certificate
                else failures.another_claims(name)
            )
            reply.forget()
    return replies
