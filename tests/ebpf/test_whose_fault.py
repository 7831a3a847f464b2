"""Two pods and a job of the host on one node, one of them noisy: all are named, and all answers agree."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ingero.scenarios import cuda
from tests.a_kubelet import pod, running
from tests.assistants.certificates import Authority
from tests.ebpf.real_runs import Place, until
from tests.ebpf.tracing import workload
from tests.unit.store.test_tenants import BY_KERNEL

pytestmark = pytest.mark.timeout(180)
VICTIM, NOISY = "a1" * 32, "b2" * 32
UIDS = {VICTIM: "0b54a0a6-97f6-4d0a-9a09-3a3a53a54a01", NOISY: "0b54a0a6-97f6-4d0a-9a09-3a3a53a54a02"}
BURN = "import os\nprint('ready', os.getpid(), flush=True)\nwhile True: pass"
HEALTHY_S, NOISY_S = 4, 8


@contextmanager
def pods() -> Iterator[dict[str, Path]]:
    """Cgroups named as the kubelet names those of its pods."""
    root = next(
        (p for p in map(Path, ("/sys/fs/cgroup/memory", "/sys/fs/cgroup")) if (p / "cgroup.procs").exists()),
        None,
    )
    if root is None:
        pytest.skip("no cgroup hierarchy to make a pod in")
    found = {number: root / "kubepods/burstable" / f"pod{uid}" / number for number, uid in UIDS.items()}
    made: list[Path] = []
    for path in found.values():
        for folder in reversed([path, *path.parents]):
            if not folder.exists():
                folder.mkdir()
                made.append(folder)
    try:
        yield found
    finally:
        for path in found.values():
            for pid in (path / "cgroup.procs").read_text().split():
                (root / "cgroup.procs").write_text(pid)
        for folder in reversed(made):
            folder.rmdir()


def seconds(place: Place) -> int:
    return (
        int(place.sql("SELECT COUNT(DISTINCT bucket_start_ns) FROM thread_time")[0][0])
        if place.db.exists()
        else 0
    )


def answered(place: Place, *words: str) -> Any:
    done = place.ingero(*words, "-d", str(place.db), "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def recorded(place: Place, tmp_path: Path) -> tuple[Place, int, int, str]:
    """The victim's pid, the host job's, and the metrics while all of them ran."""
    authority, core, port = Authority(tmp_path), max(os.sched_getaffinity(0)), free_port()
    pinned = ("taskset", "-c", str(core))
    job = ("busy.py", "--steps", "1000000", "--kernels", "5", "--blocking")
    environment = os.environ | {"LD_LIBRARY_PATH": str(cuda.stub_dir())}
    with (
        pods() as groups,
        running(authority.sign("node")) as kubelet,
        workload(*job, "--host-us", "4000", before=pinned, env=environment) as victim,
        workload(*job, "--host-us", "200", env=environment) as of_host,
    ):
        kubelet.says(
            pod("trainer-0", "team-a", UIDS[VICTIM], VICTIM), pod("stress-0", "team-b", UIDS[NOISY], NOISY)
        )
        (groups[VICTIM] / "cgroup.procs").write_text(str(victim.pid))
        more = {"INGERO_KUBELET": kubelet.url, "INGERO_KUBELET_CA": str(authority.file)}
        with place.tracing("--prometheus", f"http://127.0.0.1:{port}", **more) as run:
            victim.start()
            of_host.start()
            until(lambda: seconds(place) >= HEALTHY_S, "some seconds of health", 60)
            with workload(sys.executable, "-c", BURN, before=pinned) as noisy:
                (groups[NOISY] / "cgroup.procs").write_text(str(noisy.pid))
                until(lambda: seconds(place) >= HEALTHY_S + NOISY_S, "some seconds of noise", 60)
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                    metrics = answer.read().decode()
            assert run.stop() == 0
    return place, victim.pid, of_host.pid, metrics


def test_the_finding_names_both_pods_and_every_answer_agrees(recorded: tuple[Place, int, int, str]) -> None:
    place, victim, of_host, metrics = recorded
    findings = [each for each in answered(place, "explain")["findings"] if each["kind"] == "noisy-neighbour"]
    (told,) = [each for each in findings if each["victim"]["pid"] == victim]
    assert "pod team-b/stress-0" in told["title"]
    assert "pod team-a/trainer-0" in told["title"]

    # Everybody is a tenant, or none.
    rows = place.sql(f"SELECT pid, namespace, pod FROM tenants WHERE pid IN ({victim}, {of_host})")
    assert set(rows) == {(victim, "team-a", "trainer-0"), (of_host, None, None)}

    # query --namespace counts the calls of the victim, and the article's SQL has them under its container.
    launches = place.counts(victim)["cuLaunchKernel"]
    asked = answered(place, "query", "--namespace", "team-a")
    assert (
        sum(each["count"] for each in asked["operations"] if each["op"] == "cuLaunchKernel") == launches > 0
    )
    by_container = answered(place, "query", BY_KERNEL)["rows"]
    assert VICTIM in {row["container_id"] for row in by_container}
    assert NOISY not in {row["container_id"] for row in by_container}

    # Metrics have the same names on the victim's calls.
    of_victim = [line for line in metrics.splitlines() if re.search(rf'[{{,]pid="{victim}"', line)]
    assert of_victim
    assert all('pod="trainer-0"' in line and 'namespace="team-a"' in line for line in of_victim)

    # Cost: the victim's namespace lost time to the neighbour; nobody of the noisy one held a GPU.
    cost = answered(place, "cost", "--price", "3.6", "--by", "namespace")
    lines = {line["name"]: line for line in cost["lines"]}
    assert set(lines) == {"team-a", "(none)"}
    assert "noisy-neighbour" in {each["kind"] for each in lines["team-a"]["lost"]}
    total = cost["total"]
    parts = total["busy_ns"] + total["lost_ns"] + total["idle_ns"] + total["unknown_ns"]
    assert total["held_ns"] == parts == sum(line["held_ns"] for line in lines.values())
    assert total["money"] == pytest.approx(total["held_ns"] / 1e9 * 0.001)
    only = answered(place, "cost", "--price", "3.6", "--by", "namespace", "--namespace", "team-a")
    assert only["total"]["held_ns"] == lines["team-a"]["held_ns"]
