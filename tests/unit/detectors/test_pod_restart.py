"""Pod restart: of the job's own pod, by the kubelet's word."""

from __future__ import annotations

from ingero.model.facts import PodIncident
from ingero.model.finding import Severity
from tests.facts import HOG, JOB, SECOND, Story, job

KIND = "pod-restart"


def happened(*events: PodIncident) -> Story:
    story = job().process(JOB, "python3", container="ml/train-0", pod="train-0", namespace="ml")
    story.process(HOG, "postgres", container="db/pg-0", pod="pg-0", namespace="db")
    story.facts.pods = list(events)
    return story


def restart(
    pod: str = "train-0", namespace: str = "ml", event: str = "restart", at_s: int = 5
) -> PodIncident:
    return PodIncident(at_s * SECOND, pod, namespace, "trainer", event, "Error", 1, 3)


def test_a_restart_of_the_jobs_pod_is_told_with_its_reason_and_its_proof() -> None:
    (finding,) = happened(restart()).findings()
    assert (finding.kind, finding.severity, finding.victim.pid) == (KIND, Severity.HIGH, JOB)
    assert finding.title == "pod ml/train-0 was restarted: Error, exit code 1, restart number 3"
    assert finding.victim.container == "ml/train-0"
    assert finding.first_ns == finding.last_ns == 5 * SECOND
    assert "FROM pod_events" in (finding.evidence[0].sql or "")
    assert "kubectl -n ml logs train-0 -c trainer --previous" in [fix.command for fix in finding.fix]


def test_several_restarts_are_one_finding() -> None:
    (finding,) = happened(restart(at_s=3), restart(at_s=9)).findings()
    assert "restarted 2 times" in finding.title
    assert (finding.first_ns, finding.last_ns) == (3 * SECOND, 9 * SECOND)


def test_an_eviction_is_critical() -> None:
    gone = PodIncident(6 * SECOND, "train-0", "ml", "", "evicted", "node was low on memory")
    (finding,) = happened(restart(), gone).findings()
    assert finding.severity is Severity.CRITICAL
    assert "evicted: node was low on memory" in finding.title


def test_the_neighbours_restart_is_not_ours() -> None:
    assert happened(restart("pg-0", "db")).kinds() == []


def test_a_pod_of_the_same_name_in_another_namespace_is_not_ours() -> None:
    assert happened(restart(namespace="other")).kinds() == []


def test_a_healthy_pod_is_quiet() -> None:
    assert happened().kinds() == []


def test_without_the_kubelet_it_says_so() -> None:
    assert happened(restart()).abstains(KIND, "pods")


def test_what_is_not_known_of_pods_comes_last_of_what_was_not_watched() -> None:
    story = happened()
    story.facts.absent = {"pods": "nobody was asked", "sched": "the kernel refused it"}
    told = [each.what for each in story.diagnose().not_watched]
    assert told[-1] == KIND
    assert len(told) > 1
