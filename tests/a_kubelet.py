"""A kubelet of the tests: a real HTTPS server on loopback that answers `/pods` as told."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


def pod(
    name: str = "trainer-0", namespace: str = "team-a", uid: str = "u-1", number: str = "a" * 64, **more: Any
) -> dict[str, Any]:
    """One pod as the kubelet's API has it; `more` changes the container's status."""
    status = {
        "name": "trainer",
        "containerID": f"containerd://{number}",
        "restartCount": 0,
        "state": {},
    } | more
    return {
        "metadata": {
            "name": name, "namespace": namespace, "uid": uid, "labels": {"app": "bert", "team": namespace},
            "annotations": {"kubernetes.io/config.source": "api", "long": "x" * 100},
            "ownerReferences": [{"kind": "Job", "name": "nightly", "controller": True, "uid": "o"}],
        },
        "spec": {"containers": [{"name": "trainer", "image": "registry.example/bert:1"}]},
        "status": {"phase": "Running", "containerStatuses": [status]},
    }  # fmt: skip


def restarted(count: int, reason: str = "Error", at: str = "2026-11-18T09:00:00Z") -> dict[str, Any]:
    """The status of a container that was started again."""
    ended = {"exitCode": 137, "reason": reason, "finishedAt": at, "startedAt": at}
    return {"restartCount": count, "lastState": {"terminated": ended}}


@dataclass
class Kubelet:
    """What it answers, and what it was asked."""

    url: str = ""
    status: int = 200
    body: bytes = b'{"kind": "PodList", "items": []}'
    token: str | None = None
    endless: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def says(self, *pods: Any) -> None:
        self.body = json.dumps({"kind": "PodList", "apiVersion": "v1", "items": list(pods)}).encode()


@contextmanager
def running(certificate: Path | None = None) -> Iterator[Kubelet]:
    """TLS with this certificate and key, or the read-only port without."""
    kubelet = Kubelet()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = self.headers.get("Authorization")
            kubelet.asked.append((self.path, shown))
            refused = kubelet.token is not None and shown != f"Bearer {kubelet.token}"
            self.send_response(401 if refused else kubelet.status)
            if not kubelet.endless:
                self.send_header("Content-Length", str(len(kubelet.body)))
            self.end_headers()
            try:
                self.wfile.write(kubelet.body)
                while kubelet.endless:
                    self.wfile.write(b" " * (1 << 16))
            except OSError:  # whoever asked has had enough
                pass

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    kubelet.url = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield kubelet
    finally:
        server.shutdown()
        server.server_close()
