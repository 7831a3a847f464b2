"""The capabilities that chart, unit and docs list are enough to trace a job of another user."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.ebpf.real_runs import NOBODY, Place
from tests.ebpf.tracing import workload

VALUES = Path(__file__).parents[2] / "deploy/helm/ingero/values.yaml"
SYS_RESOURCE = 24


def may(bit: int) -> bool:
    """Whether this machine lets us have it at all."""
    found = re.search(r"^CapBnd:\s*([0-9a-f]+)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return found is not None and bool(int(found[1], 16) >> bit & 1)


def listed() -> list[str]:
    """As the chart has them; some machines give the right to more open files to nobody."""
    names = yaml.safe_load(VALUES.read_text())["capabilities"]
    return [each for each in names if each != "SYS_RESOURCE" or may(SYS_RESOURCE)]


def only(names: list[str]) -> tuple[str, ...]:
    """Root with these capabilities, and nothing it runs gets more."""
    kept = ",".join(f"+{each.lower()}" for each in names)
    return ("setpriv", f"--bounding-set=-all,{kept}", "--inh-caps=-all", "--no-new-privs")


def traced(place: Place, steady: str, names: list[str]) -> dict[str, int]:
    with workload(steady, before=NOBODY) as job:
        job.start()
        words = ("trace", "--no-tui", "--duration", "3s", "--db", str(place.db))
        done = place.ingero(*words, before=only(names))
        assert done.returncode == 0, done.stderr
        return place.counts(job.pid)


def test_a_job_of_another_user_is_traced(place: Place, steady: str) -> None:
    counts = traced(place, steady, listed())
    assert counts.get("cuLaunchKernel", 0) + counts.get("cudaLaunchKernel", 0) > 0
    assert place.ended() == [True]


@pytest.mark.parametrize("left_out", ["BPF", "PERFMON"])
def test_without_one_of_them_it_says_which(place: Place, left_out: str) -> None:
    names = [each for each in listed() if each != left_out]
    done = place.ingero("trace", "--no-tui", "--duration", "1s", "--db", str(place.db), before=only(names))
    assert done.returncode == 1
    assert f"CAP_{left_out}" in done.stderr


def test_a_container_with_process_numbers_of_its_own_is_told_before_anything_is_recorded(
    place: Place,
) -> None:
    apart = ("unshare", "--pid", "--fork", "--mount-proc")
    done = place.ingero("trace", "--no-tui", "--duration", "1s", "--db", str(place.db), before=apart)
    assert done.returncode == 1
    assert "--pid host" in done.stderr
    assert not place.db.exists()
    assert "process numbers" in place.ingero("check", before=apart).stdout
