"""A real container whose memory ends, is started again and then evicted: each is told, of its pod.

The kernel kills it for real; what a kubelet then says of it is said by the kubelet of the tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.a_kubelet import Kubelet, pod, restarted, running
from tests.assistants.certificates import Authority
from tests.containers import Container, Podman, compiled_job, need, remove_cgroups
from tests.ebpf.real_runs import Place, until

pytestmark = pytest.mark.timeout(240)
UID = "0b54a0a6-97f6-4d0a-9a09-3a3a53a54a03"
PARENT = f"kubepods/burstable/pod{UID}"
LIMIT = ("--memory", "32m", "--memory-swap", "32m")


def said(container: Container, **more: Any) -> dict[str, Any]:
    return pod("trainer-0", "team-a", UID, container.number, **more)


@contextmanager
def traced(place: Place, podman: Podman) -> Iterator[tuple[Kubelet, Container]]:
    """A container that feeds a GPU, a trace that knows its pod."""
    authority = Authority(place.folder)
    parent = ("--cgroup-parent", f"/{PARENT}", *LIMIT)
    with (
        running(authority.sign("node")) as kubelet,
        podman.running("trainer", "200", "5", "and-eat", options=parent) as trainer,
    ):
        kubelet.says(said(trainer))
        more = {"INGERO_KUBELET": kubelet.url, "INGERO_KUBELET_CA": str(authority.file)}
        with place.tracing(**more) as run:
            trainer.job.start()
            named = f"SELECT pid FROM tenants WHERE pod = 'trainer-0' AND pid = {trainer.pid}"
            until(lambda: place.sql(named), "the pod is named", 60)
            yield kubelet, trainer
            assert run.stop() == 0


def finding(place: Place, kind: str) -> dict[str, Any]:
    done = place.ingero("explain", "-d", str(place.db), "--json")
    (found,) = [each for each in json.loads(done.stdout)["findings"] if each["kind"] == kind]
    return dict(found)


@pytest.fixture
def podman(tmp_path: Path) -> Iterator[Podman]:
    need()
    made = Podman(tmp_path / "podman")
    made.kept.mkdir()
    made.make_job_image(compiled_job(tmp_path))
    yield made
    made.forget()
    remove_cgroups(PARENT)


def incident(place: Place, event: str) -> bool:
    return bool(place.sql(f"SELECT 1 FROM pod_events WHERE event = '{event}'"))


def test_a_container_killed_for_its_memory_and_its_pods_eviction_are_told(
    place: Place, podman: Podman
) -> None:
    with traced(place, podman) as (kubelet, trainer):
        trainer.job.start()  # the second line: it eats
        assert trainer.job.process.wait(60) == 137
        now = datetime.now(UTC).isoformat(timespec="seconds")
        kubelet.says(said(trainer, **restarted(1, "OOMKilled", at=now)))
        until(lambda: incident(place, "oom-kill"), "the restart is stored", 60)
        gone = said(trainer)
        gone["status"] |= {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
        kubelet.says(gone)
        until(lambda: incident(place, "evicted"), "the eviction is stored", 60)
    restart = finding(place, "pod-restart")
    assert restart["title"] == "pod team-a/trainer-0 was evicted: The node was low on memory"
    assert restart["severity"] == "CRITICAL"
    assert restart["victim"]["pid"] == trainer.pid
    proofs = " ".join(each["text"] for each in restart["evidence"])
    assert "OOMKilled, exit code 137, restart number 1" in proofs
    assert finding(place, "oom-kill")["victim"]["pid"] == trainer.pid
