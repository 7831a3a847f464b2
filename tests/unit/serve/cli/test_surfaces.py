"""The plain tables and the JSON lines: what people and programs read."""

import io
import json
import os
import re

import pytest

from ingero.model.live import (
    DatabaseStatus,
    HostRow,
    LiveCall,
    LiveTarget,
    LiveView,
    OperationRow,
    Overhead,
    ProbedLibrary,
    ProbeSource,
    ProcessRow,
    SystemLine,
    ThreadRow,
)
from ingero.serve import terminal
from ingero.serve.cli.surfaces import JsonSurface, PlainSurface, settled
from tests.builders import finding

HOSTILE = "\x1b[2Jevil[red]\x07\u202e"


def view(**changes: object) -> LiveView:
    launch = OperationRow("driver", "cuLaunchKernel", 17_509, 4_800, 11_300, 16_200, 90_000, 0.084)
    malloc = OperationRow(
        "runtime", "cudaMalloc", 12, 125_000, 2_100_000, 8_400_000, 9_000_000, 0.01, 2, flags=("p99",)
    )
    values = {
        "now_ns": 1,
        "elapsed_ns": 12_000_000_000,
        "targets": (LiveTarget(4821, "python3"),),
        "libraries": (ProbedLibrary("/usr/lib/libcudart.so.12", "runtime"),),
        "probes": (ProbeSource("runtime", 14), ProbeSource("nccl", 0, 3, "no libnccl is mapped")),
        "system": SystemLine(0.47, 0.72, 12_025_908_428, 3.2, 8, 0),
        "operations": (launch, malloc),
        "host": (
            HostRow(
                "runqueue", 500_000_000, 0.25, 23, 2_000_000, 3_000_000, 4_000_000, 5_000_000, ("stress 9",)
            ),
        ),
        "processes": (
            ProcessRow(
                4821,
                "python3",
                2_000_000_000,
                2_000_000_000,
                {"gpu_wait": 1_500_000_000, "runqueue": 500_000_000},
                threads=(ThreadRow(4821, "python3", True, 2_000_000_000, {"gpu_wait": 2_000_000_000}),),
                operations=(launch,),
                culprits=(("stress-ng 77", 400_000_000),),
            ),
        ),
        "events": 17_521,
        "events_per_s": 1460.0,
        "overhead": Overhead(0.004, 0.02, actions=("launches watched 12.0 % of the time",)),
        "database": DatabaseStatus("/home/a/.ingero/ingero.db", 5 << 20),
    }
    return LiveView(**{**values, **changes})


def shown(live: LiveView) -> str:
    out = io.StringIO()
    PlainSurface(out, updates=False).end(live, 0)
    return out.getvalue()


def test_the_plain_tables_hold_everything_the_view_has() -> None:
    text = shown(view())
    for part in (
        "Target: PID 4821 (python3)",
        "Library: /usr/lib/libcudart.so.12",
        "Probes: runtime 14",
        "Not watched: nccl: no libnccl is mapped",
        "CPU [█████████░░░░░░░░░░░] 47.0 %",
        "(11.2 GiB free)",
        "CUDA Driver API",
        "17,509",
        "8.4 ms",
        "⚠ p99 2 errors",
        "waiting for a core",
        "stress 9",
        "1,460 events/s",
        "dropped 0",
        "overhead 0.4 % (limit 2 %); reduced to stay within it",
        "db /home/a/.ingero/ingero.db 5 MiB",
        "ingero explain -d /home/a/.ingero/ingero.db",
    ):
        assert part in text, part
    assert re.search(r"│ cuLaunchKernel │ 17,509 │\s+4.8 µs │", text)


def test_what_is_not_there_takes_no_room() -> None:
    text = shown(view(operations=(), host=(), processes=(), database=DatabaseStatus()))
    for part in ("CUDA Driver", "NCCL", "Host", "Findings", "In flight", "ingero query"):
        assert part not in text
    assert "not recorded" in text


def test_findings_calls_in_flight_losses_and_a_broken_database_are_said() -> None:
    live = view(
        findings=(finding("Another process takes the CPU", pid=4821, comm="python3"),),
        in_flight=(LiveCall(4821, 4822, "python3", "ncclAllReduce", 9_000_000_000, "gpu_wait"),),
        losses={"ring full": 12},
        lost_share=0.01,
        database=DatabaseStatus("/x.db", None, "no space left on device"),
        warnings=("probes are in duty cycles",),
    )
    text = shown(live)
    for part in (
        "[HIGH] Another process takes the CPU: 40.0 % of python3 (4821), since",
        "ncclAllReduce  9 s  python3 4821/4822, waiting for the GPU",
        "Dropped: ring full 12",
        "db: no space left on device",
        "⚠ probes are in duty cycles",
    ):
        assert part in text, part


def test_a_hostile_name_reaches_the_terminal_as_plain_text() -> None:
    row = OperationRow("driver", HOSTILE, 1, 1, 1, 1, 1, None)
    live = view(
        targets=(LiveTarget(1, HOSTILE, container=HOSTILE),),
        libraries=(ProbedLibrary(HOSTILE, "runtime"),),
        operations=(row,),
        processes=(ProcessRow(1, HOSTILE, 1, 1, {HOSTILE: 1}),),
        host=(HostRow(HOSTILE, 1, 1.0, who=(HOSTILE,)),),
        in_flight=(LiveCall(1, 1, HOSTILE, HOSTILE, 1, HOSTILE),),
        findings=(finding(HOSTILE, comm=HOSTILE, kind=HOSTILE),),
        warnings=(HOSTILE,),
        losses={HOSTILE: 1},
        database=DatabaseStatus(HOSTILE, 1),
    )
    text = shown(live)
    assert "evil[red]" in text
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", text)


def test_a_bar_is_always_as_wide_as_asked() -> None:
    for time_ns in (
        {},
        {"gpu_wait": 1},
        {"gpu_wait": 1, "sleep": 10**12},
        dict.fromkeys(terminal.BUCKET_STYLES, 3),
    ):
        assert len(terminal.stacked_bar(time_ns, 50).plain) == 50
    assert terminal.bar(None).plain == terminal.bar(0).plain
    assert terminal.bar(7.0, 4).plain == "[████]"


def test_into_a_file_goes_a_line_now_and_then_and_the_tables_at_the_end() -> None:
    out = io.StringIO()
    surface = PlainSurface(out)
    surface.begin(view(elapsed_ns=0))
    for second in range(1, 25):
        surface.update(view(elapsed_ns=second * 1_000_000_000))
    lines = [line for line in out.getvalue().splitlines() if "targets," in line]
    assert len(lines) == 2
    assert re.match(
        r"10(.0)? s: 1 targets, 17,521 events \(1,460/s\), dropped 0, .* /home/a/.ingero/ingero.db 5",
        lines[0],
    )
    assert "CUDA Driver" not in out.getvalue()
    surface.end(view(), 0)
    assert "CUDA Driver" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_into_a_file_a_finding_goes_once_and_again_when_it_changes() -> None:
    out = io.StringIO()
    surface = PlainSurface(out, every_ns=1)
    surface.begin(view(elapsed_ns=0))
    for number, severity in enumerate(("MEDIUM", "MEDIUM", "HIGH", "HIGH"), start=1):
        surface.update(view(elapsed_ns=number * 1_000_000_000, findings=(finding(severity=severity),)))
    lines = [line for line in out.getvalue().splitlines() if "Another process takes" in line]
    assert [line.split()[0] for line in lines] == ["[MEDIUM]", "[HIGH]"]


def test_json_lines_go_to_stdout_and_the_header_does_not() -> None:
    out, err = io.StringIO(), io.StringIO()
    surface = JsonSurface(out, err)
    surface.begin(view())
    surface.update(view(warnings=("careful",)))
    surface.records([{"op": "cuLaunchKernel", "comm": HOSTILE, "gpu_id": None}, {"op": "x"}])
    surface.end(view(), 0)
    lines = out.getvalue().splitlines()
    assert json.loads(lines[0]) == {"op": "cuLaunchKernel", "comm": HOSTILE, "gpu_id": None}
    assert len(lines) == 2
    assert "\x1b" not in out.getvalue()
    assert "Target: PID 4821" in err.getvalue()
    assert "careful" in err.getvalue()


@pytest.mark.parametrize("kind", ["json", "plain"])
def test_a_reader_that_goes_away_ends_the_trace(kind: str) -> None:
    read, write = os.pipe()
    os.close(read)
    out = os.fdopen(write, "w")
    surface = JsonSurface(out, io.StringIO()) if kind == "json" else PlainSurface(out, every_ns=1)
    surface.records([{"op": "x"}])
    surface.update(view())
    settled(surface._out if isinstance(surface, JsonSurface) else surface.console.file)
    surface.update(view(elapsed_ns=10**12))
    assert surface.stop_requested.is_set()
    surface.records([{"op": "x"}])
    surface.end(view(), 0)
    out.close()
