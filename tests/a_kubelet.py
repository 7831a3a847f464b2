"""A kubelet of the tests: a real HTTPS server on loopback that answers `/pods` as told.

Pods are as the kubelet writes a `v1.PodList`: items without kind and version, a spec with what admission
adds, statuses with every field that it fills in. test_kubelet.py holds them against Kubernetes' schemas.
"""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

BEGAN = "2026-11-18T08:00:00Z"
IMAGE = "registry.example/bert:1"
HASH = "0123456789abcdef0123456789abcdef"  # of a static pod's manifest
CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def pod(
    name: str = "trainer-0", namespace: str = "team-a", uid: str = "u-1", number: str = "a" * 64, **more: Any
) -> dict[str, Any]:
    """One pod of a Job, running; `more` changes the container's status."""
    mount = {"name": "kube-api-access-x2x7k", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    gpu = {"nvidia.com/gpu": "1"}
    return {
        "metadata": {
            "name": name, "generateName": "trainer-", "namespace": namespace, "uid": uid,
            "resourceVersion": "41", "creationTimestamp": BEGAN,
            "labels": {"app": "bert", "team": namespace},
            "annotations": {
                "kubernetes.io/config.seen": "2026-11-18T08:00:00.123456789Z",
                "kubernetes.io/config.source": "api", "long": "x" * 100,
            },
            "ownerReferences": [owner("Job", "nightly", "batch/v1")],
            "managedFields": [{
                "manager": "kube-controller-manager", "operation": "Update", "apiVersion": "v1",
                "time": BEGAN, "fieldsType": "FieldsV1",
                "fieldsV1": {"f:metadata": {"f:labels": {".": {}, "f:app": {}}}},
            }],
        },
        "spec": {
            "volumes": [{"name": mount["name"], "projected": {"sources": [], "defaultMode": 420}}],
            "containers": [{
                "name": "trainer", "image": IMAGE, "resources": {"limits": gpu, "requests": gpu},
                "volumeMounts": [mount | {"readOnly": True}], "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default", "serviceAccount": "default", "nodeName": "node-a",
            "securityContext": {}, "schedulerName": "default-scheduler", "priority": 0,
            "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": each, "status": "True", "lastProbeTime": None, "lastTransitionTime": BEGAN}
                for each in CONDITIONS
            ],
            "hostIP": "10.0.0.7", "hostIPs": [{"ip": "10.0.0.7"}],
            "podIP": "10.244.0.9", "podIPs": [{"ip": "10.244.0.9"}],
            "startTime": BEGAN, "qosClass": "BestEffort",
            "containerStatuses": [container("trainer", number, **more)],
        },
    }  # fmt: skip


def owner(kind: str, name: str, version: str = "apps/v1") -> dict[str, Any]:
    return {
        "apiVersion": version, "kind": kind, "name": name, "uid": f"uid-of-{name}", "controller": True,
        "blockOwnerDeletion": True,
    }  # fmt: skip


def container(name: str, number: str, **more: Any) -> dict[str, Any]:
    """The status of one that runs."""
    return {
        "name": name, "state": {"running": {"startedAt": BEGAN}}, "lastState": {}, "ready": True,
        "restartCount": 0, "image": IMAGE, "imageID": f"registry.example/bert@sha256:{'f' * 64}",
        "containerID": f"containerd://{number}", "started": True,
    } | more  # fmt: skip


def ended(reason: str, code: int, at: str = "2026-11-18T09:00:00Z", number: str = "e" * 64) -> dict[str, Any]:
    """What `state` or `lastState` say of one that ended."""
    return {"terminated": {
        "exitCode": code, "reason": reason, "startedAt": BEGAN, "finishedAt": at, "containerID": f"containerd://{number}",
    }}  # fmt: skip


def restarted(count: int, reason: str = "Error", at: str = "2026-11-18T09:00:00Z") -> dict[str, Any]:
    """The status of a container that was started again."""
    return {"restartCount": count, "lastState": ended(reason, 137, at)}


# --- one of each kind that nodes have ----------------------------------------------------------


def with_helpers() -> dict[str, Any]:
    """A Deployment's: one that prepared and is done, a sidecar, and one that somebody debugs with."""
    made = pod("serve-5d9f-x2x7k", uid="u-2")
    made["metadata"]["labels"] |= {"pod-template-hash": "5d9f"}
    made["metadata"]["ownerReferences"] = [owner("ReplicaSet", "serve-5d9f")]
    plain = {"image": IMAGE, "resources": {}, "imagePullPolicy": "IfNotPresent"}
    made["spec"]["initContainers"] = [
        plain | {"name": "fetch"},
        plain | {"name": "proxy", "restartPolicy": "Always"},
    ]
    made["spec"]["ephemeralContainers"] = [plain | {"name": "debugger-q8", "targetContainerName": "trainer"}]
    done = ended("Completed", 0, number="b" * 64)
    made["status"]["initContainerStatuses"] = [
        container("fetch", "b" * 64, state=done, started=False, restartCount=1, lastState=ended("Error", 1)),
        container("proxy", "c" * 64, restartCount=3, lastState=ended("Error", 2)),
    ]
    made["status"]["ephemeralContainerStatuses"] = [container("debugger-q8", "d" * 64, ready=False)]
    return made


def static() -> dict[str, Any]:
    """Of a manifest on the node: the kubelet made it itself, and nobody writes its status back."""
    made = pod("kube-proxy-node-a", "kube-system", HASH)
    about = made["metadata"]
    for key in ("generateName", "resourceVersion", "ownerReferences", "managedFields"):
        del about[key]
    about["creationTimestamp"] = None
    about["annotations"] = {"kubernetes.io/config.hash": HASH, "kubernetes.io/config.source": "file"}
    made["status"] = {"phase": "Pending"}
    return made


def mirrored() -> dict[str, Any]:
    """The same as the API server has it: with a uid of its own, and the node as its owner."""
    made = pod("kube-proxy-node-a", "kube-system", "u-4", "9" * 64)
    made["metadata"]["annotations"] = {
        "kubernetes.io/config.hash": HASH, "kubernetes.io/config.mirror": HASH,
        "kubernetes.io/config.source": "file",
    }  # fmt: skip
    made["metadata"]["ownerReferences"] = [
        {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "n", "controller": True}
    ]
    return made


def out_of_memory() -> dict[str, Any]:
    """Killed for its memory for the third time; the kubelet waits before it starts it again."""
    waits = {"reason": "CrashLoopBackOff", "message": "back-off 40s restarting failed container=trainer"}
    return pod(
        uid="u-5", state={"waiting": waits}, ready=False, started=False, restartCount=3,
        lastState=ended("OOMKilled", 137),
    )  # fmt: skip


def evicted() -> dict[str, Any]:
    """The node was low on memory; its container is gone, and what it ended with."""
    made, killed = pod(uid="u-6"), ended("OOMKilled", 137, number="a" * 64)
    made["status"] = {
        "phase": "Failed", "reason": "Evicted", "startTime": BEGAN,
        "message": "The node was low on resource: memory.",
        "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet",
            "lastProbeTime": None, "lastTransitionTime": BEGAN,
        }],
        "containerStatuses": [container("trainer", "a" * 64, state=killed, ready=False, started=False)],
    }  # fmt: skip
    return made


def refused() -> dict[str, Any]:
    """Never started: the kubelet had no room, and says nothing of containers."""
    made = pod(uid="u-7")
    made["status"] = {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "Node didn't have enough resource: cpu",
    }
    return made


def starting() -> dict[str, Any]:
    """Its image is being fetched: no id, no address yet."""
    made = pod(uid="u-8")
    status = made["status"]["containerStatuses"][0]
    status |= {
        "state": {"waiting": {"reason": "ContainerCreating"}},
        "ready": False,
        "started": False,
        "imageID": "",
    }
    del status["containerID"], made["status"]["podIP"], made["status"]["podIPs"]
    made["status"]["phase"] = "Pending"
    return made


def bare() -> dict[str, Any]:
    """Made by hand: no owner, no labels, no annotations; and bound to the node a moment ago."""
    made = pod("by-hand", uid="u-9")
    for key in ("generateName", "labels", "annotations", "ownerReferences"):
        del made["metadata"][key]
    made["status"] = {}
    return made


EACH_KIND = (pod, with_helpers, static, mirrored, out_of_memory, evicted, refused, starting, bare)


def answer(*pods: Any) -> bytes:
    return json.dumps({"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(pods)}).encode()


@dataclass
class Kubelet:
    """What it answers, and what it was asked."""

    url: str = ""
    status: int = 200
    body: bytes = answer()
    token: str | None = None
    endless: bool = False
    dripping: bool = False  # headers that never end, byte by byte
    gone: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def says(self, *pods: Any) -> None:
        self.body = answer(*pods)


@contextmanager
def running(certificate: Path | None = None) -> Iterator[Kubelet]:
    """TLS with this certificate and key, or the read-only port without."""
    kubelet = Kubelet()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            shown = self.headers.get("Authorization")
            kubelet.asked.append((self.path, shown))
            if kubelet.dripping:
                self.drip()
                return
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

        def drip(self) -> None:
            with suppress(OSError):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
                while not kubelet.gone.wait(0.02):
                    self.wfile.write(b"y")

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
        kubelet.gone.set()
        server.shutdown()
        server.server_close()
