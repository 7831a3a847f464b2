"""A real trace, scraped and sent while it runs: the values are those of the job and of the recording."""

from __future__ import annotations

import urllib.request
from collections import Counter

from prometheus_client.parser import text_string_to_metric_families

from tests.ebpf.real_runs import Place, until
from tests.ebpf.tracing import workload
from tests.monitoring.conftest import free_port
from tests.monitoring.receiver import HttpReceiver, Stored

Series = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(port: int) -> Series:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        families = list(text_string_to_metric_families(answer.read().decode()))
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def of(series: Series, name: str, label: str) -> dict[str, float]:
    """By the value of one label."""
    found: Counter[str] = Counter()
    for (each, labels), value in series.items():
        if each == name:
            found[dict(labels)[label]] += value  # type: ignore[assignment]
    return dict(found)


def test_what_is_scraped_and_sent_is_what_the_job_did(place: Place) -> None:
    stored, port = Stored(), free_port()
    receiver = HttpReceiver(stored)
    ways = ("--prometheus", f"http://127.0.0.1:{port}", "--otlp", f"127.0.0.1:{receiver.port}")
    settings = {"INGERO_OTLP_INTERVAL": "300ms", "INGERO_METRICS_OPERATIONS": "64"}
    with (
        workload("calls23.py") as job,
        place.tracing("--pid", str(job.pid), *ways, **settings) as run,
    ):
        run.until_probed(job.pid)
        made = Counter(line["function"] for line in job.go())
        calls = until(lambda: all_seen(scraped(port), made["cudaFree"]), "every call was scraped")
        series = scraped(port)
        job.end()
        assert run.process.wait(30) == 0
    receiver.close()
    recorded = place.counts(job.pid)
    at_exit = {"gc_collect_main"}  # the interpreter collects once more when it ends
    assert {**calls, **{op: recorded.get(op, 0) for op in at_exit}} == {
        **dict.fromkeys(at_exit, 0),
        **recorded,
    }
    for name in ("cudaMalloc", "cudaFree", "cudaStreamSynchronize", "cudaMallocHost"):
        assert calls[name] == made[name]
    errors = of(series, "ingero_operation_errors_total", "op")
    assert (errors["cudaMalloc"], errors["cudaFree"]) == (1, 1)
    copied = of(series, "ingero_gpu_memcpy_bytes_total", "direction")
    assert copied == {"HtoD": (1 << 20) + 65536, "DtoH": 12345, "DtoD": 4096}
    timed = of(series, "ingero_operation_duration_seconds_count", "op")
    assert timed == {name: count for name, count in calls.items() if name in timed}
    assert "cudaMalloc" in timed
    assert set(of(series, "ingero_operation_calls_total", "pid")) == {str(job.pid)}
    assert of(series, "ingero_build_info", "version")
    assert sum(of(series, "ingero_probes", "source").values()) > 0
    sent = [metric for metric in stored.metrics() if metric.name == "ingero.operation.calls"]
    last = {
        next(
            pair.value.string_value for pair in point.attributes if pair.key == "ingero.operation"
        ): point.as_int
        for point in sent[-1].sum.data_points
    }
    assert last == recorded


def all_seen(series: Series, frees: int) -> dict[str, float]:
    """Counts by operation, once the last of the calls is among them."""
    found = of(series, "ingero_operation_calls_total", "op")
    return found if found.get("cudaFree") == frees else {}
