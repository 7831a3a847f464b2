"""Labels of real jobs, sent to a real agent: who may, what survives, and per-step answers that are true."""

from __future__ import annotations

import array
import contextlib
import os
import socket
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.tree import ROOT
from tests.ebpf.real_runs import Place, Run, json_lines, stub, until
from tests.ebpf.tracing import WORKLOADS, Workload, workload

pytestmark = pytest.mark.timeout(180)
MS = 1_000_000
NOBODY = 65534
UNHURRIED = ("--step-ms", "10")  # so that ten labels wait, not are lost, while a busy machine keeps the agent


def job(place: Place, *words: str, program: str = "labelled.py", **more: Any) -> Any:
    return workload(program, *words, env=place.environment(**stub()), **more)


@contextmanager
def traced(place: Place, *words: str) -> Iterator[tuple[Run, Workload]]:
    """The agent is on before the job begins."""
    with job(place, *words) as running, place.tracing("--pid", str(running.pid)) as trace:
        trace.until_probed(running.pid)
        yield trace, running


def socket_of(place: Place) -> str:
    return str(place.folder / "run" / "annotate.sock")


def send(place: Place, raw: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(raw, socket_of(place))


def losses(place: Place) -> dict[str, int]:
    return dict(place.sql("SELECT reason, SUM(count) FROM losses GROUP BY reason"))


def answer(place: Place, *words: str) -> dict[str, Any]:
    done = place.ingero(*words, "-d", str(place.db), "--json")
    assert done.returncode == 0, done.stderr
    return json_lines(done.stdout)[0]


def test_per_step_answers_agree_with_the_programs_own_account(place: Place) -> None:
    with traced(place, *UNHURRIED) as (trace, running):
        steps = running.go()
        assert trace.stop() == 0
    said = dict(place.sql("SELECT number, start_ns FROM annotations WHERE key = 'step'"))
    assert sorted(said) == [each["step"] for each in steps] == list(range(120))
    assert place.sql("SELECT COUNT(*) FROM annotations WHERE key = 'epoch'") == [(3,)]
    offset_ns = said[0] - steps[0]["begin_ns"]  # of the wall clock, and what the first took to say it
    first_ns = steps[0]["end_ns"] - steps[0]["begin_ns"]
    for each in steps:
        assert each["begin_ns"] - first_ns <= said[each["step"]] - offset_ns <= each["end_ns"]
    assert losses(place) == {}

    by = answer(place, "explain", "--by", "step")["by"]
    found = {int(each["value"]): each for each in by["values"]}
    longest = sorted(steps, key=lambda each: each["begin_ns"] - each["end_ns"])[:6]
    assert by["count"] == 120
    assert {int(each["value"]) for each in by["values"][:6]} == {each["step"] for each in longest}
    for each in steps:
        mine = found[each["step"]]
        took_ns = each["end_ns"] - each["begin_ns"]
        if each["slept_ns"]:
            woken_ns = mine["time"].get("runqueue", 0)  # it sleeps until it has a core again
            assert (
                mine["time"]["sleep"] <= 1.05 * each["slept_ns"] <= 1.1 * (mine["time"]["sleep"] + woken_ns)
            )
            assert mine["located_share"] > 0.6
        elif each["computed_ns"] > 50 * MS:
            busy_ns = sum(mine["time"].get(bucket, 0) for bucket in ("host_cpu", "cuda_cpu", "runqueue"))
            assert busy_ns > 0.7 * took_ns
            assert mine["time"].get("sleep", 0) < 0.1 * took_ns
        else:
            assert mine["time"].get("sleep", 0) <= 0.2 * mine["took_ns"] + MS
    total = answer(place, "explain")["processes"][0]["time"]
    for bucket in ("sleep", "gpu_wait"):  # what was outside all steps is little
        assert sum(each["time"].get(bucket, 0) for each in by["values"]) <= 1.01 * total[bucket] + MS

    values = {each["value"]: each for each in answer(place, "query", "--by", "step")["values"]}
    for step in range(120):
        rows = {row["op"]: row for row in values[str(step)]["operations"]}
        assert rows["cudaStreamSynchronize"]["count"] == 1
    whole = answer(place, "query", "--label", "step=40..59")
    (syncs,) = (row for row in whole["operations"] if row["op"] == "cudaStreamSynchronize")
    assert (syncs["count"], syncs["exact"]) == (20, True)
    (launches,) = (row for row in whole["operations"] if row["op"] == "cuLaunchKernel")
    assert abs(launches["count"] - 400) <= launches["count_error"] + 1


def test_the_snippet_of_the_examples_labels_a_plain_loop(place: Place) -> None:
    loop = textwrap.dedent(
        """
        import ctypes, sys, time
        from annotate import annotate
        runtime = ctypes.CDLL("libcudart.so.12")
        for step in range(30):
            annotate(step=step)
            runtime.cudaDeviceSynchronize()
            time.sleep(0.02)
        """
    )
    words = (sys.executable, "-c", loop)
    done = place.ingero(
        "trace", "--db", str(place.db), "--", *words, env={**stub(), "PYTHONPATH": str(ROOT / "examples")}
    )
    assert done.returncode == 0, done.stderr
    assert place.sql("SELECT number FROM annotations ORDER BY start_ns") == [(step,) for step in range(30)]


def test_a_script_labels_what_it_starts_and_findings_name_it(place: Place) -> None:
    """The label is of the shell, the GPU is used by what it starts."""
    program = f"{sys.executable} {WORKLOADS / 'busy.py'} --steps 40 --host-us 2000"
    annotate = f"{sys.executable} -m ingero annotate"
    script = (
        f"{annotate} --label phase=first && echo | {program} > /dev/null;"
        f"{annotate} --label phase=second && printf '\\n\\n' | {program} > /dev/null"
    )
    done = place.ingero("trace", "--db", str(place.db), "--", "sh", "-c", script, env=stub(), timeout=90)
    assert done.returncode == 0, done.stderr
    assert place.sql("SELECT value FROM annotations ORDER BY start_ns") == [("first",), ("second",)]
    values = {each["value"]: each for each in answer(place, "query", "--by", "phase")["values"]}
    for phase in ("first", "second"):
        rows = {row["op"]: row["count"] for row in values[phase]["operations"]}
        assert rows["cudaStreamSynchronize"] == 40
    # Seconds are stored: one in which both ran may name the second's process under the first, too.
    assert set(values["first"]["pids"]) != set(values["second"]["pids"])
    found = answer(place, "explain")["findings"]
    assert {label["key"] for each in found for label in each["labels"]} <= {"phase"}


def as_nobody(place: Place, pids: tuple[int, ...]) -> list[str]:
    """What the agent answers a process of another user that labels these."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        with contextlib.suppress(BaseException), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            sender.bind("")
            sender.settimeout(5)
            for pid in pids:
                sender.sendto(b"ingero1 %d %d 0\nstep=666" % (time.monotonic_ns(), pid), socket_of(place))
                os.write(into, sender.recv(99) + b"\n")
        os._exit(0)
    os.close(into)
    os.waitpid(child, 0)
    with os.fdopen(out) as answers:
        return answers.read().splitlines()


def test_another_users_job_labels_itself_and_nobody_else(place: Place) -> None:
    for folder in (place.folder, *place.folder.parents[:2]):
        folder.chmod(0o755)
    with traced(place) as (trace, running):
        sock = place.folder / "run" / "annotate.sock"
        assert sock.stat().st_mode & 0o777 == 0o666
        told = as_nobody(place, (0, running.pid, os.getpid(), trace.pid))
        assert told == ["ok", *["not a process of yours"] * 3]
        ours = place.ingero("annotate", "--pid", str(running.pid), "--label", "step=7")
        assert ours.returncode == 0, ours.stderr
        assert trace.stop() == 0
    assert place.sql("SELECT value FROM annotations") == [("7",)]  # nobody's own process is not traced
    assert losses(place)["annotation_refused"] == 3


def test_hostile_messages_leave_nothing_and_are_counted(place: Place) -> None:
    with traced(place) as (trace, running):
        for raw in (b"", b"\0" * 4096, b"x" * 9000, b"ingero1 1 0 0\n\x1b[2J=1", bytes(range(256))):
            send(place, raw)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            files = array.array("i", [os.open("/dev/null", os.O_RDONLY) for _ in range(8)])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)]
            for _ in range(50):  # open files sent along are refused by the kernel, or not kept
                with contextlib.suppress(PermissionError):
                    sender.sendmsg([b"nonsense"], ancillary, 0, socket_of(place))
                sender.sendto(b"nonsense", socket_of(place))
                time.sleep(0.002)
        ours = place.ingero(
            "annotate", "--pid", str(running.pid), "--label", "request=\x1b[31mred\x07\nstep=5"
        )
        assert ours.returncode == 0, ours.stderr
        kept = [fd for fd in Path(f"/proc/{trace.pid}/fd").iterdir() if fd.resolve() == Path("/dev/null")]
        assert len(kept) < 8
        assert trace.stop() == 0
    assert place.sql("SELECT key, value FROM annotations") == [("request", "red  step=5")]
    assert losses(place)["annotation_invalid"] >= 40


def test_a_flood_neither_stops_the_job_nor_goes_unnoticed(place: Place) -> None:
    with traced(place, "--labels", "400", "--steps", "40", "--sleep-ms", "1") as (trace, running):
        steps = running.go()
        assert trace.stop() == 0
    lost = losses(place)
    assert set(lost) <= {"annotation_rate", "annotation_unsent"}
    assert sum(lost.values()) > 0
    assert len(steps) == 40
    assert place.sound()


def test_labels_go_on_with_the_agent_that_comes_after_a_killed_one(place: Place) -> None:
    with job(place, *UNHURRIED) as running:
        with place.tracing("--pid", str(running.pid)) as first:
            assert place.ingero("annotate", "--pid", str(running.pid), "--label", "step=1").returncode == 0
            first.kill()
        assert (place.folder / "run" / "annotate.sock").exists()  # stale
        alone = place.ingero("annotate", "--pid", str(running.pid), "--label", "step=2")
        assert alone.returncode == 1
        assert "no trace takes labels" in alone.stderr
        with place.tracing("--pid", str(running.pid)) as second:
            second.until_probed(running.pid)
            steps = running.go()  # its socket is from before
            assert second.stop() == 0
    assert not (place.folder / "run" / "annotate.sock").exists()
    found = place.sql("SELECT number FROM annotations WHERE key = 'step' AND number > 1 ORDER BY number")
    assert found == [(each["step"],) for each in steps[2:]]


def test_a_trace_that_may_not_make_a_socket_says_so_and_goes_on(place: Place) -> None:
    run = place.folder / "run"
    run.mkdir()
    (run / "annotate.sock").write_text("somebody's file")
    done = place.ingero("trace", "--db", str(place.db), "--", "sleep", "1")
    assert done.returncode == 0
    assert "jobs cannot send labels" in done.stdout + done.stderr
    assert (run / "annotate.sock").read_text() == "somebody's file"


def test_a_hung_agent_does_not_hold_up_the_job(place: Place) -> None:
    with traced(place, "--steps", "60", "--sleep-ms", "1") as (trace, running):
        trace.process.send_signal(19)
        try:
            steps = running.go()
        finally:
            trace.process.send_signal(18)
        assert len(steps) == 60
        until(lambda: place.sql("SELECT COUNT(*) FROM annotations")[0][0], "labels came")
        assert trace.stop() == 0
