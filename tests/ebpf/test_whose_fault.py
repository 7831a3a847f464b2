"""Two containers and a job of the host on one node, one of them noisy: all are named, all answers agree."""

from __future__ import annotations

import json
import os
import re
import socket
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from ingero.scenarios import cuda
from tests import nvml
from tests.a_kubelet import pod, running
from tests.assistants.certificates import Authority
from tests.containers import Container, Podman, compiled_job, need, remove_cgroups
from tests.ebpf.real_runs import Place, until
from tests.ebpf.tracing import workload
from tests.monitoring.receiver import HttpReceiver, Stored
from tests.unit.store.test_tenants import BY_COLLECTIVE, BY_KERNEL

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.timeout(240)
UIDS = {"trainer": "0b54a0a6-97f6-4d0a-9a09-3a3a53a54a01", "stress": "0b54a0a6-97f6-4d0a-9a09-3a3a53a54a02"}
NAMESPACES = {"trainer": "team-a", "stress": "team-b"}
HEALTHY_S, NOISY_S = 4, 8
PRICE = "3.6"
KIND = ("ingero.finding.kind",)
HELD, BUSY, LOST = "ingero.gpu.held.time", "ingero.gpu.busy.time", "ingero.gpu.lost.time"
IDLE, COST, SAVED = "ingero.gpu.idle_without_finding.time", "ingero.gpu.cost", "ingero.gpu.cost.lost"
SPENT = (HELD, BUSY, LOST, IDLE, COST, SAVED)
TWO_SAMPLES = 2.0  # seconds


@dataclass
class Recorded:
    """What a node with three jobs told, and who they were."""

    place: Place
    victim: Container
    noisy: Container
    of_host: int
    metrics: str
    sent: ExportMetricsServiceRequest  # when the trace had ended

    def answered(self, *words: str) -> Any:
        done = self.place.ingero(*words, "-d", str(self.place.db), "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def seconds(place: Place) -> int:
    if not place.db.exists():
        return 0
    return int(place.sql("SELECT COUNT(DISTINCT bucket_start_ns) FROM thread_time")[0][0])


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    need()
    made = Podman(tmp_path_factory.mktemp("podman"))
    made.make_job_image(compiled_job(tmp_path_factory.mktemp("job")))
    yield made
    made.forget()
    for uid in UIDS.values():
        remove_cgroups(f"kubepods/burstable/pod{uid}")


def options(name: str, core: int) -> tuple[str, ...]:
    """As the kubelet has its runtime do it: below the cgroup of a pod."""
    return "--cgroup-parent", f"/kubepods/burstable/pod{UIDS[name]}", "--cpuset-cpus", str(core)


def told(container: Container) -> dict[str, Any]:
    name = container.name
    return pod(f"{name}-0", NAMESPACES[name], UIDS[name], container.number)


@pytest.fixture(scope="module")
def recorded(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    place = Place(tmp_path_factory.mktemp("trace"))
    authority, core, port = Authority(place.folder), max(os.sched_getaffinity(0)), free_port()
    library, cards = nvml.build(place.folder), nvml.Cards(place.folder / "cards").set(cards=2, gpu_percent=80)
    stored = Stored()
    receiver = HttpReceiver(stored)
    host_job = ("busy.py", "--steps", "1000000", "--kernels", "5", "--blocking", "--host-us", "200")
    environment = os.environ | {"LD_LIBRARY_PATH": str(cuda.stub_dir())}
    with (
        running(authority.sign("node")) as kubelet,
        podman.running("trainer", "4000", "5", options=options("trainer", core)) as victim,
        workload(*host_job, env=environment) as of_host,
    ):
        kubelet.says(told(victim))
        cards.process(victim.pid, 2 << 30, 30, card=0).process(of_host.pid, 1 << 30, 2, card=0)
        cards.process(of_host.pid, 1 << 30, 10, card=1)
        more = {"INGERO_KUBELET": kubelet.url, "INGERO_KUBELET_CA": str(authority.file)}
        more |= cards.environment | {"LD_LIBRARY_PATH": str(library.parent), "INGERO_PRICE": PRICE}
        ways = ("--prometheus", f"http://127.0.0.1:{port}", "--otlp", f"http://127.0.0.1:{receiver.port}")
        with place.tracing(*ways, **more) as run:
            victim.job.start()
            of_host.start()
            until(lambda: seconds(place) >= HEALTHY_S, "some seconds of health", 60)
            with podman.running("stress", "burn", options=options("stress", core)) as noisy:
                kubelet.says(told(victim), told(noisy))
                cards.set(gpu_percent=30)
                until(lambda: seconds(place) >= HEALTHY_S + NOISY_S, "some seconds of noise", 60)
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                    metrics = answer.read().decode()
            assert run.stop() == 0
    receiver.close()
    return Recorded(place, victim, noisy, of_host.pid, metrics, stored.requests["metrics"][-1])


def spent(request: ExportMetricsServiceRequest) -> dict[str, dict[str, float]]:
    """Seconds of GPUs by namespace: held, busy, lost to which kind and idle without one; and their price."""
    found: dict[str, dict[str, float]] = {}
    for part in request.resource_metrics:
        who = {each.key: each.value.string_value for each in part.resource.attributes}
        for metric in part.scope_metrics[0].metrics:
            if metric.name not in SPENT:
                continue
            of = found.setdefault(who.get("k8s.namespace.name") or "(none)", {})
            for point in metric.sum.data_points:
                kinds = [each.value.string_value for each in point.attributes if each.key in KIND]
                name = " ".join([metric.name, *kinds])
                of[name] = of.get(name, 0.0) + point.as_double
    return {whose: {name: value for name, value in of.items() if value} for whose, of in found.items()}


def test_the_finding_names_container_pod_and_namespace_of_both(recorded: Recorded) -> None:
    """Who else had the core is in it, too, where this machine has other containers."""
    found = [
        each
        for each in recorded.answered("explain")["findings"]
        if each["kind"] == "noisy-neighbour" and each["victim"]["pid"] == recorded.victim.pid
    ]
    (told,) = [each for each in found if "team-b/stress-0" in each["title"]]
    assert "in pod team-b/stress-0 takes the CPU" in told["title"]
    assert "in pod team-a/trainer-0 needs" in told["title"]
    assert told["victim"]["container"] == "team-a/trainer-0"
    who = {each["pid"]: each["container"] for cause in told["causes"] for each in cause["who"]}
    assert who[recorded.noisy.pid] == "team-b/stress-0"
    own = recorded.answered("explain", "--pod", "team-a/trainer-0")["findings"]
    assert told["title"] in {each["title"] for each in own}


def test_everybody_is_a_tenant_and_the_job_of_the_host_is_nobodys(recorded: Recorded) -> None:
    rows = recorded.place.sql("SELECT pid, namespace, pod, container_id, container FROM tenants")
    known = {row[0]: row[1:] for row in rows}
    victim = recorded.victim
    assert known[victim.pid] == ("team-a", "trainer-0", victim.number, "trainer")
    assert known[recorded.of_host] == (None, None, None, None)


@pytest.mark.parametrize(
    "whose", [("--namespace", "team-a"), ("--pod", "team-a/trainer-0"), ("--container", "NUMBER")]
)
def test_statistics_of_a_tenant_are_those_of_its_process(recorded: Recorded, whose: tuple[str, str]) -> None:
    launches = recorded.place.counts(recorded.victim.pid)["cuLaunchKernel"]
    words = [recorded.victim.number[:12] if each == "NUMBER" else each for each in whose]
    asked = recorded.answered("query", *words)["operations"]
    assert sum(each["count"] for each in asked if each["op"] == "cuLaunchKernel") == launches > 0


def test_the_sql_of_the_article_as_printed_tells_containers_apart(recorded: Recorded) -> None:
    for statement in (BY_KERNEL, BY_COLLECTIVE):
        rows = recorded.answered("query", statement)["rows"]
        containers = {row["container_id"] for row in rows}
        assert recorded.victim.number in containers
        assert recorded.noisy.number not in containers
    of_victim = [row for row in rows if row["container_id"] == recorded.victim.number]
    assert {"ncclAllReduce"} <= {row["op"] for row in of_victim}
    assert all(row["calls"] > 0 and row["avg_ms"] > 0 for row in of_victim)


def test_the_articles_say_what_is_asked_here(shared_dir: Path) -> None:
    articles = "\n".join(path.read_text() for path in (shared_dir / "seeds").glob("*.txt"))
    for statement in (BY_KERNEL, BY_COLLECTIVE):
        assert statement in articles


def test_metrics_have_the_same_names(recorded: Recorded) -> None:
    pattern = rf'[{{,]pid="{recorded.victim.pid}"'
    of_victim = [line for line in recorded.metrics.splitlines() if re.search(pattern, line)]
    assert of_victim
    for line in of_victim:
        assert 'namespace="team-a"' in line
        assert 'pod="trainer-0"' in line
        assert f'container="{recorded.victim.number}"' in line


def test_cost_is_of_who_held_a_gpu_and_adds_up(recorded: Recorded) -> None:
    cost = recorded.answered("cost", "--price", "3.6", "--by", "namespace")
    lines = {line["name"]: line for line in cost["lines"]}
    assert cost["estimated"] == []
    assert set(lines) == {"team-a", "(none)"}
    assert "noisy-neighbour" in {each["kind"] for each in lines["team-a"]["lost"]}
    total = cost["total"]
    parts = total["busy_ns"] + total["lost_ns"] + total["idle_ns"] + total["unknown_ns"]
    assert total["held_ns"] == parts == sum(line["held_ns"] for line in lines.values())
    assert total["money"] == pytest.approx(total["held_ns"] / 1e9 * 0.001)
    only = recorded.answered("cost", "--price", "3.6", "--by", "namespace", "--namespace", "team-a")
    assert only["total"]["held_ns"] == lines["team-a"]["held_ns"]


def test_cost_and_metrics_of_every_namespace_are_one_number(recorded: Recorded, tmp_path: Path) -> None:
    """Metrics as they were sent at the end of the trace, and as they are made of its recording."""
    answer = recorded.answered("cost", "--price", PRICE, "--by", "namespace")
    expected = {
        line["name"]: {
            HELD: line["held_ns"] / 1e9,
            BUSY: line["busy_ns"] / 1e9,
            **{f"{LOST} {each['kind']}": each["ns"] / 1e9 for each in line["lost"]},
            IDLE: line["idle_ns"] / 1e9,
            COST: line["money"],
            **{f"{SAVED} {each['kind']}": each["money"] for each in line["lost"]},
        }
        for line in answer["lines"]
    }
    assert sum(value for name, value in expected["team-a"].items() if name.startswith(f"{LOST} ")) > 1
    out = tmp_path / "recording.jsonl"
    words = ("export", "--format", "otlp", "-d", str(recorded.place.db), "-o", str(out))
    assert recorded.place.ingero(*words, env={"INGERO_PRICE": PRICE}).returncode == 0
    exported = Parse(out.read_text().splitlines()[0], ExportMetricsServiceRequest())
    known = {whose: {name: value for name, value in of.items() if value} for whose, of in expected.items()}
    told = spent(exported)
    assert set(told) == set(known)
    live = spent(recorded.sent)
    assert set(live) == set(known)
    for whose, of in known.items():
        assert told[whose] == pytest.approx(of, abs=1e-6), whose
        for name in of.keys() | live[whose].keys():
            now, later = live[whose].get(name, 0.0), of.get(name, 0.0)
            assert now == pytest.approx(later, abs=TWO_SAMPLES), (whose, name)


def test_cost_statistics_metrics_and_the_sql_of_the_article_speak_of_the_same_pods(
    recorded: Recorded,
) -> None:
    pods = {
        number: f"{namespace}/{name}"
        for number, namespace, name in recorded.place.sql("SELECT container_id, namespace, pod FROM tenants")
        if name
    }
    assert set(pods.values()) == {"team-a/trainer-0", "team-b/stress-0"}
    by_sql = {pods[row["container_id"]] for row in recorded.answered("query", BY_KERNEL)["rows"]}
    by_query = {
        pod for pod in pods.values()
        if recorded.answered("query", "--namespace", pod.split("/")[0])["operations"]
    }  # fmt: skip
    by_cost = {line["name"] for line in recorded.answered("cost", "--by", "pod")["lines"]} - {"(none)"}
    held = re.findall(r"^ingero_gpu_held_time_seconds_total{(.*)}", recorded.metrics, re.M)
    labels = [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in held]
    assert len(labels) == 2
    by_metrics = {f"{each['namespace']}/{each['pod']}" for each in labels if each["pod"]}
    said = {"SQL": by_sql, "query": by_query, "cost": by_cost, "metrics": by_metrics}
    assert said == {answer: {"team-a/trainer-0"} for answer in said}
