"""The diagnosis as people read it: true, short, harmless, and as wide as the terminal."""

from __future__ import annotations

import io
import re
from typing import Any

import msgspec
import pytest
from rich.cells import cell_len
from rich.console import Console

from ingero.model.finding import Cause, Effect, Fix, Proof, SourceLine, Who
from ingero.model.report import (
    Bound,
    GovernorAct,
    OperationLine,
    OverheadReport,
    Report,
    StepTime,
    SystemContext,
)
from ingero.serve import terminal
from ingero.serve.answers.shares import percents
from ingero.serve.cli.as_text import write_text
from ingero.serve.cli.diagnosis import Verbosity, diagnosis, who_words
from ingero.serve.cli.document import Document
from ingero.serve.cli.per_process import breakdown
from ingero.serve.cli.tables import console
from tests.builders import (
    EPOCH_NS,
    SECOND,
    cause,
    finding,
    lossy,
    process_report,
    report,
    unexplained,
)

HOSTILE = "\x1b[2Jevil\x07\u202e[red]\u2028|<b>&`" + "x" * 10_000
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]")


def on_terminal(document: Document, width: int = 80) -> list[str]:
    out = io.StringIO()
    write_text(document, Console(file=out, width=width, force_terminal=True, no_color=True, highlight=False))
    return re.sub("\x1b\\[[0-9;]*m", "", out.getvalue()).splitlines()


def piped(document: Document) -> str:
    out = io.StringIO()
    write_text(document, console(out))
    return out.getvalue()


def said(answer: Report, **detail: bool) -> str:
    return piped(diagnosis(answer, Verbosity(**detail)))


def test_a_finding_says_what_why_whose_fault_what_to_do_and_how_sure() -> None:
    text = said(report(finding()))
    for part in (
        "Diagnosis of gpu-node-01",
        "20 s recorded; the whole last recording",
        "System: CPU 94.2 % | Memory 78.1 % | Load 12.3 (8 cores) | Swap 0 B",
        "[HIGH] Another process takes the CPU the GPU thread needs",
        f"{terminal.clock_time(EPOCH_NS)} for 7 s in 2 episodes",
        "confidence 92.0 %",
        "python (100): step 62 ms → 110 ms, 40.0 % of its time lost",
        "Give the job cores of its own (wins 3.1 s, 35.0 %)",
        "waiting for the GPU 45.0 %  on the CPU outside CUDA 30.0 %  waiting for a core 25.0 %",
        "90.0 % waiting for a core (3.1 s)",
        "thread 100 waited 3.15 s for a core",
        "10.0 % not attributed",
        "stress-ng (200) in ml/noisy-0 2.1 s, stress-ng (201) 900 ms",
        "forward() at /home/a/train.py:142",
        "$ taskset -cp 0-5 100",
        "Dropped:     nothing; tracing cost 1.2 % of the traced threads' time (limit 2 %)",
    ):
        assert part in text, part


def test_who_had_little_part_in_it_is_no_culprit() -> None:
    """A program that took 7 ms of 3 s stands in the proof, and under -v."""
    who = [Who(200, "stress-ng", 2_100_000_000), Who(11, "kworker/0:1", 7_000_000), Who(12, "old", 0)]
    found = report(finding(causes=[cause(who=who)]))
    (line,) = [line for line in said(found).splitlines() if "Who:" in line]
    assert "stress-ng" in line
    assert "kworker" not in line
    assert said(report(finding(causes=[cause(who=who[1:2])]))).count("Who:") == 0
    assert "kworker/0:1 (11) 7 ms" in said(report(finding(causes=[cause(who=who[1:2])])), verbose=True)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Move it.", "Move it (wins 3.1 s, 35.0 %)\n"),
        ("See who has it:", "See who has it (wins 3.1 s, 35.0 %):\n"),
    ],
)
def test_what_a_fix_wins_stands_before_its_colon(text: str, shown: str) -> None:
    found = report(finding(fix=[Fix(text, "ps")]))
    assert shown in said(found)


@pytest.mark.parametrize(
    ("anchor", "words"),
    [("now", "back from now"), ("last-record", "from the last record"), ("given", "as given")],
)
def test_the_header_says_what_the_range_was_counted_from(anchor: str, words: str) -> None:
    answer = report()
    assert words in said(
        msgspec.structs.replace(answer, window=msgspec.structs.replace(answer.window, anchor=anchor))
    )


def test_of_what_was_watched_less_the_end_is_said() -> None:
    """Launches, then launches and copies, then all of the time again: not one after the other."""
    acts = [
        GovernorAct(0, what, "", after, "", 1.0)
        for what, after in (
            ("records and stacks", "128 stacks a second of an operation, and samples"),
            ("timing of launches", "1 call in 4 timed, all counted"),
            ("launches", "3.4 % of the time"),
            ("timing of launches, copies", "1 call in 2 timed, all counted"),
            ("launches, copies", "all the time"),
            ("records and stacks", "all that are due"),
        )
    ]
    answer = report()
    overhead = msgspec.structs.replace(answer.overhead, actions=acts)
    text = said(msgspec.structs.replace(answer, overhead=overhead), verbose=True)
    assert "reduced to stay within 2 %: launches, copies: 1 call in 2 timed, all counted\n" in text


def test_what_was_watched_part_of_the_time_was_not_all_counted() -> None:
    acts = [
        GovernorAct(0, "timing of launches", "", "1 call in 4 timed, all counted", "", 1.0),
        GovernorAct(0, "launches", "", "3.8 % of the time", "", 0.04),
    ]
    answer = report()
    overhead = msgspec.structs.replace(answer.overhead, actions=acts)
    text = said(msgspec.structs.replace(answer, overhead=overhead), verbose=True)
    assert "launches: 1 call in 4 timed while they are watched" in text
    assert "launches: watched 3.8 % of the time when the recording ended" in text
    assert "all counted" not in text


@pytest.mark.parametrize(
    ("count", "exact", "error", "words"),
    [
        (7472, True, 0, "7,472"),
        (53_093, False, 2891, "~53,093 ±2,891"),
        (23_602, False, 31_615, "~23,602 rough"),
        (500, False, 0, "~500"),
    ],
)
def test_a_count_never_has_a_range_below_nothing(count: int, exact: bool, error: int, words: str) -> None:
    assert terminal.count_words(count, exact, error) == words


def test_who_took_next_to_nothing_is_not_named_and_the_jobs_own_threads_are_said_to_be() -> None:
    who = [
        Who(746, "python3", SECOND),
        Who(461, "pt_autograd_0", SECOND // 4),
        Who(11, "kworker/0:1", 206_000),
    ]
    assert who_words(who, 6, own=461) == "python3 (746) 1 s, pt_autograd_0 (461, the job's own) 250 ms"
    assert who_words([Who(7, "x", 0)], 6) == "x (7) 0 ns"


def test_the_step_is_of_the_same_time_as_the_steps_a_second() -> None:
    bound = Bound(100, "python", "gpu", 0.9, None, None, [], 0.9, 5.0, 10.0, EPOCH_NS)
    answer = msgspec.structs.replace(report(), bound=[bound])
    text = piped(breakdown(answer, Verbosity()))
    assert f"200 ms (5 steps/s) since {terminal.clock_time(EPOCH_NS)}, 100 ms before" in text


def test_three_findings_fit_a_screen_of_80_by_44() -> None:
    for findings in (
        [finding(pid=pid) for pid in (100, 200, 300)],
        [finding(pid=100, kind=kind) for kind in ("cpu-contention", "disk-wait", "gc-pause")],
        [finding(pid=100), finding(pid=200)],
        [finding()],
    ):
        lines = on_terminal(diagnosis(report(*findings, **lossy()), Verbosity()))
        assert len(lines) <= 44, "\n".join(lines)
        assert sum("taskset" in line for line in lines) == len(findings)
        assert all(cell_len(line) <= 80 for line in lines)


def test_further_findings_are_one_line_each() -> None:
    findings = [finding(f"Problem number {n}", "HIGH" if n < 3 else "LOW", pid=n) for n in range(1, 21)]
    text = said(report(*findings))
    lines = text.splitlines()
    assert text.count("Effect:") == 3
    assert [line for line in lines if "Problem number 20" in line] == [
        f"[LOW] Problem number 20: 40.0 % of python (20), since {terminal.clock_time(EPOCH_NS)}"
    ]
    assert said(report(*findings), verbose=True).count("Effect:") == 20


def test_a_victims_time_is_drawn_once() -> None:
    text = said(report(finding(), finding(kind="gc-pause"), finding(pid=7)))
    assert text.count("Time:") == 2


def test_verbose_and_show_sql_give_the_proof_in_full() -> None:
    short, full = said(report(finding())), said(report(finding()), verbose=True)
    for part in ("along python/100 ← pt_data_worker/130", "events n1:4821", "[native] ?", "cpu_some 60.0 %"):
        assert part in full, part
    assert "events n1:4821" not in short
    assert "SELECT" not in full
    sql = said(report(finding(), finding(pid=7), finding(pid=8)), show_sql=True)
    assert sql.count("SELECT sum(ns) FROM culprits WHERE victim_pid = 100") == 3


def test_no_problem_found_comes_with_its_evidence() -> None:
    text = said(report())
    for part in (
        "No problem found.",
        "python (100) for 20 s, 47,372 calls of 2 operations",
        "110 ms, 290 steps",
        "cuLaunchKernel: p50 5.2 µs, p99 14.7 µs, 1.4 % of the wall time",
        "waiting for the GPU 45.0 %",
        "Dropped:     nothing",
    ):
        assert part in text, part
    assert "[" not in text.split("System")[1]


def test_what_was_not_seen_limits_the_answer() -> None:
    text = said(report(**lossy()))
    assert "No problem found in what was watched." in text
    assert "ring_call 12" in text
    assert "gil (free-threaded interpreter) and 1 more, -v shows them" in text
    assert "xid (no driver)" in said(report(**lossy()), verbose=True)


def test_slow_without_a_proven_cause_is_said_and_not_called_fine() -> None:
    text = said(report(unexplained=[unexplained()]))
    assert "No problem found" not in text
    assert "No cause could be proven" in text
    assert "python (100) 20.0 % slower than usual" in text


def test_without_a_cuda_process_there_is_nothing_to_explain() -> None:
    bystander = process_report(threads=[], time={}, threads_ns=0, operations=[], worst_stall=None)
    for processes in ([], [bystander]):
        text = said(report(processes=processes))
        assert "No CUDA process was seen" in text
        assert "No problem found" not in text


def test_a_program_that_never_used_the_gpu_is_told_so() -> None:
    """Its garbage collections are seen, and are no GPU work."""
    collected = OperationLine(
        "python", "gc_collect_main", 21, True, 92_200, None, None, 12_400_000, 0.011, None
    )
    plain = process_report(threads=[], time={}, threads_ns=0, operations=[collected], worst_stall=None)
    text = said(report(processes=[plain]))
    assert "No CUDA process was seen in that time, so there is nothing to explain." in text
    assert "python (100) for 20 s: it made no CUDA call" in text
    assert "No problem found" not in text
    assert "gc_collect_main" not in text


def test_one_operation_is_no_operations() -> None:
    (first, _) = process_report().operations
    text = said(report(processes=[process_report(operations=[first])]))
    assert "47,360 calls of 1 operation\n" in text


def nothing_known() -> Report:
    """Every value that may be unknown is."""
    bare = finding(
        effect=Effect(None, None, None, None, None),
        causes=[],
        explained_share=None,
        source=None,
        stack=[],
        gain=None,
        fix=[],
        episodes=[],
    )
    vague = finding(
        pid=7,
        causes=[Cause("runqueue", 0, 0.0, [Who(None, "[cpu quota]", 0)], [Proof("seen")])],
        effect=Effect("step", None, None, 5, None),
        fix=[Fix("wait")],
    )
    return report(
        bare,
        vague,
        system=SystemContext(None, None, None, None, None, {}),
        overhead=OverheadReport(None, None, None, None, []),
        processes=[
            process_report(cmdline=None, container=None, step=None, worst_stall=None, time={}, threads=[])
        ],
        recorded_ns=None,
    )


@pytest.mark.parametrize("make", [diagnosis, breakdown])
def test_what_is_not_known_is_a_dash_and_never_none_or_zero(make: Any) -> None:
    for detail in (Verbosity(), Verbosity(verbose=True, show_sql=True)):
        text = piped(make(nothing_known(), detail))
        assert "None" not in text
        assert "CPU - | Memory - | Load - | Swap -" in text


def hostile_report() -> Report:
    bad = finding(
        HOSTILE,
        comm=HOSTILE,
        kind=HOSTILE,
        effect=Effect(HOSTILE, 1, 2, 3, 0.5),
        source=SourceLine(HOSTILE, 1, HOSTILE),
        causes=[
            cause(
                HOSTILE, 1.0, who=[Who(1, HOSTILE, 5, HOSTILE)], evidence=[Proof(HOSTILE, HOSTILE, [HOSTILE])]
            )
        ],
        fix=[Fix(HOSTILE, HOSTILE)],
    )
    process = process_report(
        comm=HOSTILE, cmdline=HOSTILE, container=HOSTILE, time={HOSTILE: 5, "lost": 5}, threads_ns=10
    )
    return report(
        bad,
        node=HOSTILE,
        processes=[process],
        unexplained=[unexplained(comm=HOSTILE)],
        overhead=OverheadReport(
            None, None, None, None, [GovernorAct(1, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0.5)], 0.5
        ),
    )


@pytest.mark.parametrize("make", [diagnosis, breakdown])
@pytest.mark.parametrize("verbose", [False, True])
def test_hostile_names_reach_the_terminal_as_short_plain_text(make: Any, verbose: bool) -> None:
    document = make(hostile_report(), Verbosity(verbose, show_sql=verbose))
    text = piped(document)
    assert "evil [red]" in text
    assert not UNSAFE.search(text)
    assert max(map(len, text.splitlines())) < 5_000
    assert not any(UNSAFE.search(line) for line in on_terminal(document, 60))


@pytest.mark.parametrize("width", [60, 80, 132])
def test_no_line_but_a_command_is_wider_than_the_terminal(width: int) -> None:
    answers = [report(finding(), finding(pid=7)), report(**lossy()), hostile_report(), nothing_known()]
    for answer in answers:
        for make in (diagnosis, breakdown):
            lines = on_terminal(make(answer, Verbosity(verbose=True)), width)
            wide = [line for line in lines if cell_len(line) > width and not line.strip().startswith("$")]
            assert not wide


def test_numbers_of_a_table_are_not_cut_on_a_narrow_terminal() -> None:
    text = "\n".join(on_terminal(breakdown(report(), Verbosity()), 60))
    assert "47,360" in text
    assert "14.7 µs" in text


def test_bars_are_for_terminals_and_colours_too() -> None:
    document = diagnosis(report(finding()), Verbosity())
    assert "█" in "\n".join(on_terminal(document))
    assert "█" not in piped(document)
    assert "\x1b" not in piped(document)


def test_a_command_stays_one_line_so_that_it_can_be_copied() -> None:
    command = "taskset -cp " + ",".join(map(str, range(60))) + " 100"
    answer = report(finding(fix=[Fix("Pin it.", command)]))
    assert f"$ {command}" in "\n".join(on_terminal(diagnosis(answer, Verbosity()), 60))


@pytest.mark.parametrize(
    "time_ns", [{"gpu_wait": 1, "sleep": 1, "lost": 1}, {"gpu_wait": 10**15, "lost": 1}, {"a": 7}, {}]
)
def test_shares_sum_to_exactly_one_hundred(time_ns: dict[str, int]) -> None:
    for decimals in (0, 1):
        total = sum(percent for _, percent in percents(time_ns, decimals))
        assert round(total, 6) == (100 if time_ns else 0)


def test_per_process_shows_calls_waits_switches_and_who_took_cores() -> None:
    taker = process_report(
        200, "prometheus", threads=[], time={}, threads_ns=0, operations=[], worst_stall=None,
        cpu_taken_ns=8_700_000_000, step=None,
    )  # fmt: skip
    text = piped(breakdown(report(finding(), processes=[process_report(), taker]), Verbosity()))
    for part in (
        "[HIGH] Another process takes the CPU the GPU thread needs: 40.0 % of python (100)",
        "python (100) in ml/train-0",
        "│ cuLaunchKernel",
        "~12",
        "14 s of 20 s (70.0 %): waiting for the GPU 45.0 %, waiting for a core 25.0 %",
        "809 times it gave up its core to wait, 1,200 times another task was put on its core",
        "609 ms waiting for a core, while x (7) ran, at",
        "pin_memory",
        "prometheus",
        "Took cores from them",
        "8.7 s",
    ):
        assert part in text, part


def test_a_worker_is_shown_with_the_time_of_its_own_threads() -> None:
    nothing = dict.fromkeys(process_report().time, 0)
    worker = process_report(time=nothing, threads_ns=0)
    text = piped(breakdown(report(processes=[worker]), Verbosity()))
    assert "of its threads; none feeds a GPU" in text
    assert "0 ns of" not in text


def test_a_step_is_only_shown_where_one_is_known() -> None:
    known = StepTime("cudaStreamSynchronize", 5, 10 * SECOND, 20 * SECOND)
    assert "20 s on average, usually 10 s" in piped(
        breakdown(report(processes=[process_report(step=known)]), Verbosity())
    )
    assert "Step:" not in said(report(processes=[process_report(step=None)]))


def test_per_process_shows_the_lines_that_cost_most() -> None:
    text = piped(breakdown(report(), Verbosity()))
    for part in (
        "forward() at /home/a/train.py:142",
        "cudaMemcpy",
        "load() at /home/a/data.py:7",
        "computes, 25.0 % garbage collection, thread 100",
        "epoll_wait",
        "waiting for disk, thread 100",
        "holds the GIL that others waited 1 s for, thread 101",
    ):
        assert part in text


def test_only_a_few_lines_are_shown_unless_asked_for() -> None:
    many = process_report().lines * 5
    crowd = report(processes=[process_report(lines=many)])
    assert "15 more lines, shown with -v" in piped(breakdown(crowd, Verbosity()))
    assert "more lines" not in piped(breakdown(crowd, Verbosity(verbose=True)))


def test_without_stacks_there_is_no_table_of_lines() -> None:
    assert "What it does" not in piped(breakdown(report(processes=[process_report(lines=[])]), Verbosity()))
