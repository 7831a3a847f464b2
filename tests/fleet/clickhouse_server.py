"""ClickHouse's HTTP interface before the embedded engine: FOLDER PORT USER PASSWORD.

What clickhouse-connect says of a server: statements and their parameters, settings, packed inserts, names and
passwords, errors with their codes. One engine, so one statement at a time.
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb
import lz4.frame  # type: ignore[import-untyped]

# Of the interface itself: they are no settings of the engine.
OF_HTTP = frozenset({
    "query", "database", "session_id", "session_timeout", "query_id", "wait_end_of_query",
    "client_protocol_version", "send_progress_in_http_headers", "http_headers_progress_interval_ms",
    "enable_http_compression", "buffer_size", "compress", "decompress", "role",
})  # fmt: skip
INSERT = re.compile(rb"\s*(INSERT INTO .*?)\s+FORMAT Native\n", re.DOTALL | re.IGNORECASE)
CODE = re.compile(r"Code: (\d+)")
WORD = re.compile(r"[a-z_0-9]+")


class RefusedError(Exception):
    """With the code ClickHouse has for it."""


class Engine:
    """A connection, and what was set on it."""

    def __init__(self, folder: Path) -> None:
        self._connection = chdb.connect(str(folder))
        self._one = threading.Lock()

    def answer(self, asked: dict[str, str], body: bytes) -> bytes:
        settings = {name: value for name, value in asked.items() if name not in OF_HTTP}
        parameters = {name[6:]: settings.pop(name) for name in list(settings) if name.startswith("param_")}
        statement = asked.get("query", "").encode() + (b"\n" if asked.get("query") and body else b"") + body
        with self._one:
            for name, value in settings.items():
                assert WORD.fullmatch(name)
                quoted = value.replace("\\", "\\\\").replace("'", "\\'")
                self._connection.query(f"SET {name} = '{quoted}'")
            if (insert := INSERT.match(statement)) is not None:
                return self._insert(insert[1].decode(), statement[insert.end() :])
            return self._bytes(statement.decode(), parameters)

    def _insert(self, statement: str, rows: bytes) -> bytes:
        with tempfile.NamedTemporaryFile(suffix=".native") as file:
            file.write(rows)
            file.flush()
            return self._bytes(f"{statement} FROM INFILE '{file.name}' FORMAT Native", {})

    def _bytes(self, statement: str, parameters: dict[str, str]) -> bytes:
        return bytes(self._connection.query(statement, "TabSeparated", params=parameters).bytes())


def main(folder: Path, port: int, user: str, password: str) -> None:
    engine = Engine(folder)
    known = f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self._body()
            packed = self.headers.get("content-encoding")
            try:
                if self.headers.get("authorization") != known:
                    raise RefusedError("Code: 516. DB::Exception: Authentication failed")
                if packed not in (None, "lz4"):
                    raise RefusedError(f"Code: 48. DB::Exception: not packed with lz4, but {packed}")
                if packed:
                    body = lz4.frame.decompress(body)
                answer = engine.answer(dict(parse_qsl(urlsplit(self.path).query)), body)
            except Exception as error:  # whatever the engine says goes to whoever asked it
                self._say(500, f"{error}\n".encode(), error)
            else:
                self._say(200, answer)

        def do_GET(self) -> None:
            self.do_POST()

        def _body(self) -> bytes:
            if self.headers.get("transfer-encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("content-length") or 0))
            found = b""
            while size := int(self.rfile.readline(), 16):
                found += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return found

        def _say(self, status: int, body: bytes, error: Exception | None = None) -> None:
            self.send_response(status)
            if error is not None:
                code = CODE.search(str(error))
                self.send_header("X-ClickHouse-Exception-Code", code[1] if code else "1")
            self.send_header("X-ClickHouse-Summary", "{}")
            self.send_header("X-ClickHouse-Timezone", "UTC")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:5])
