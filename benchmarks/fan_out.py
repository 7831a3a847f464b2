"""How asking many nodes grows: 10 to 1,000 simulated ones, each a real HTTPS answer of recorded size."""

from __future__ import annotations

import asyncio
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from benchmarks.figures import Figure, Section, at_most
from benchmarks.machine import moment
from ingero.fleet.asking import Limits, Question, Reply, Trust, ask_all
from ingero.fleet.nodes import Node
from ingero.model.live import QuietSurface
from ingero.scenarios import demo
from ingero.scenarios.catalogue import BY_NAME
from ingero.serve.answers.explain import get_report
from ingero.serve.answers.query import Limits as SqlLimits
from ingero.serve.answers.query import Range, ask_sql

TITLE = "Asking 10 to 1,000 nodes"
PAGE = "fleet.md"
COUNTS, QUICK_COUNTS = (10, 100, 1000), (10, 100)
ROUNDS, FEW = 3, 100
GROWTH_TARGET = 1.5  # work for each node among the most of them, against a tenth of them
NAME = "nodes.test"
SQL = "SELECT node, source, count(*) AS cnt, avg(duration)/1000 AS avg_us FROM events GROUP BY node, source"
AT_ONCE = (8, 32, 128)


def _answers(folder: Path) -> dict[str, bytes]:
    """What a node with a made-up job in trouble answers."""
    from ingero.agent.diagnosis import LiveDiagnosis

    db = folder / "incident.db"
    if demo.run(demo.Played(BY_NAME["incident"], db, 7, 1e6), QuietSurface(), LiveDiagnosis):
        raise RuntimeError("cannot make the recording")
    return {
        "query": msgspec.json.encode(ask_sql(db, SQL, SqlLimits())),
        "explain": msgspec.json.encode(get_report(db, Range())),
    }


@contextmanager
def _nodes(folder: Path) -> Iterator[tuple[int, Path]]:
    """A process that is every address of 127/8: its port, and the certificate all of them show."""
    from ingero.serve.web.certificates import own_certificate
    from ingero.serve.web.private_files import Folder

    made = own_certificate(Folder(folder / "server"), [NAME])
    for path, body in _answers(folder).items():
        (folder / f"{path}.json").write_bytes(body)
    words = [sys.executable, "-m", "benchmarks.fan_out", str(folder), str(made.key)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline()), made.chain
        finally:
            process.terminate()


async def _serve(folder: Path, key: str) -> None:
    bodies = {path: (folder / f"{path}.json").read_bytes() for path in ("query", "explain")}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(key)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        instance = writer.get_extra_info("sockname")[0]  # each address is a node of its own
        with suppress(OSError, asyncio.IncompleteReadError, ssl.SSLError):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                               if line.lower().startswith(b"content-length")), 0)  # fmt: skip
                await reader.readexactly(length)
                asked = head.split(b" ")[1].decode().removeprefix("/api/v1/").partition("?")[0]
                told = {"version": "1", "now_ns": time.time_ns(), "instance": instance, "nodes": [instance]}
                body = bodies.get(asked) or msgspec.json.encode(told)
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "0.0.0.0", 0, ssl=context, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def _addresses(count: int) -> list[str]:
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]


def _ask(count: int, port: int, trust: Trust, path: str, at_once: int = 32) -> tuple[float, float]:
    """Seconds, and seconds of them on a core, of the one who asks."""
    body = {"sql": SQL} if path == "query" else None
    began, used = time.perf_counter(), time.process_time()
    replies: list[Reply] = ask_all(
        [Node(NAME, port)],
        Question(path, body=body),
        trust,
        Limits(seconds=120, at_once=at_once),
        resolve=lambda *_: _addresses(count),
    )
    took, cpu = time.perf_counter() - began, time.process_time() - used
    missing = [reply.failure for reply in replies if reply.failure is not None]
    if missing or len(replies) != count:
        raise RuntimeError(f"{len(missing)} of {count} nodes did not answer: {missing[0] if missing else ''}")
    return took, cpu


METHOD = """\
One process stands for all nodes: it is reached at as many addresses of 127/8, over a TLS 1.3 connection
of its own for each, and answers with what a node answered to the query of this page and to `explain` for
a made-up incident. Per node that is a handshake, four exchanges of clocks and the question; 32 nodes at
once unless said. Median of three rounds, one of 1,000 nodes; both sides share the machine's cores."""

RESOLVES = """\
Growth: whether the client's work for each node stays the same. The time is that of client and nodes
together on these cores; with real nodes only the client's part stays, which the table has as seconds on a
core. Networks and the nodes' own time to answer come on top, and overlap."""


def measure(quick: bool) -> Section:
    counts = QUICK_COUNTS if quick else COUNTS
    figures: list[Figure] = []
    before = moment()
    with tempfile.TemporaryDirectory() as name, _nodes(Path(name)) as (port, chain):
        trust = Trust(ssl.create_default_context(cafile=chain))
        _ask(10, port, trust, "query")  # imports
        each: dict[str, list[float]] = {"query": [], "explain": []}
        for path, per_node in each.items():
            for count in counts:
                found = [_ask(count, port, trust, path) for _ in range(1 if count > FEW else ROUNDS)]
                took, cpu = statistics.median(t for t, _ in found), statistics.median(c for _, c in found)
                per_node.append(cpu / count)
                text = f"{took:.2f} s, {cpu:.2f} s on a core ({cpu / count * 1e3:.1f} ms for each)"
                figures.append(Figure(f"{path}, {count:,} nodes", text))
            growth = per_node[-1] / per_node[-2]
            what = f"{path}: work for each of {counts[-1]:,} nodes, against {counts[-2]:,}"
            figures.append(at_most(what, growth, GROWTH_TARGET, f"{growth:.2f} x", " x"))
        for at_once in AT_ONCE:
            found = [_ask(FEW, port, trust, "query", at_once) for _ in range(ROUNDS)]
            took = statistics.median(t for t, _ in found)
            figures.append(Figure(f"query, {FEW} nodes, {at_once} at once", f"{took:.2f} s"))
        sizes = [f"{path} {(Path(name) / f'{path}.json').stat().st_size:,} B" for path in each]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures.append(Figure("size of an answer", ", ".join(sizes)))
    figures.append(Figure("most memory of the one who asks", f"{peak:.0f} MB"))
    busy = f"Measured {before.at} on {os.cpu_count()} cores; load average before: {before.load1:.1f}."
    return Section(TITLE, tuple(figures), METHOD, RESOLVES, notes=(busy,))


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2]))
