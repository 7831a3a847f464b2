"""Names of Docker's and Podman's containers, from a socket or their files."""

from __future__ import annotations

import json
import socketserver
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from ingero.discover.container_names import names

A, B = "a" * 64, "b" * 64
LISTED = [
    {"Id": A, "Names": ["/trainer"], "Image": "bert:1", "Labels": {"team": "a", "\x1b[1m": "\x07"}},
    {"Id": B, "Names": ["/other"], "Image": "x", "Labels": None},
]  # fmt: skip


def serve(path: Path, body: bytes) -> socketserver.UnixStreamServer:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def address_string(self) -> str:
            return ""

        def log_message(self, *_: object) -> None:
            pass

    server = socketserver.UnixStreamServer(str(path), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    return server


def test_a_socket_tells_names_and_labels_of_those_asked_for(tmp_path: Path) -> None:
    server = serve(tmp_path / "d.sock", json.dumps(LISTED).encode())
    try:
        found = names({A}, [tmp_path / "d.sock"], tmp_path, [])
    finally:
        server.shutdown()
        server.server_close()
    assert list(found) == [A]
    told = dict(found[A].labels)
    assert (found[A].name, told["name"], told["image"], told["label:team"]) == (
        "trainer",
        "trainer",
        "bert:1",
        "a",
    )
    assert not [key for key in told if "\x1b" in key]


def test_without_a_socket_the_files_tell(tmp_path: Path) -> None:
    (tmp_path / A).mkdir()
    state = {"Name": "/trainer", "Config": {"Image": "bert:1", "Labels": {"team": "a"}}, "More": 1}
    (tmp_path / A / "config.v2.json").write_text(json.dumps(state))
    listed = tmp_path / "containers.json"
    listed.write_text(json.dumps([{"id": B, "names": ["web"], "layer": "l"}]))
    found = names({A, B}, [tmp_path / "none.sock"], tmp_path, [listed])
    assert (found[A].name, found[B].name) == ("trainer", "web")
    assert dict(found[A].labels)["label:team"] == "a"
    assert dict(found[B].labels)["name"] == "web"  # what every answer shows


def test_rubbish_is_no_name_and_no_path_is_made_of_an_id(tmp_path: Path) -> None:
    server = serve(tmp_path / "d.sock", b"[[[")
    try:
        assert names({A, "../../etc"}, [tmp_path / "d.sock"], tmp_path, [tmp_path]) == {}
    finally:
        server.shutdown()
        server.server_close()
