"""Answers as an assistant reads them: names resolved, numbers with their units, unknown as null.

Nothing is computed here. What may have come from a traced process goes through `quoting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from ingero.model.finding import Cause, Finding, Proof, StackFrame, Unexplained, Who
from ingero.model.report import Bound, Loss, NotWatched, OperationLine, ProcessReport, Report, ThreadLine
from ingero.model.words import bucket_words
from ingero.serve.answers.operations import OperationStats
from ingero.serve.answers.shares import percents, who_counts
from ingero.serve.mcp.bounds import code_lines, data, name, place, word
from ingero.units import format_bytes, format_count, format_ns, format_share

Part = dict[str, Any]
FRAMES = 12
LEAST_SHARE = 0.005  # of a loss, or of a time, worth a word


def instant(at_ns: int | None) -> str | None:
    """`2026-03-01T02:15:30.120Z`."""
    if at_ns is None:
        return None
    try:
        found = datetime.fromtimestamp(at_ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):  # a damaged recording may hold any number
        return f"{at_ns} ns"
    return found.strftime("%Y-%m-%dT%H:%M:%S.") + f"{found.microsecond // 1000:03d}Z"


def known(part: Part) -> Part:
    """Without what is empty; unknown stays, as null."""
    return {key: value for key, value in part.items() if value not in ([], {}, "")}


def window(report: Report) -> Part:
    return {
        "node": name(report.node),
        "from": instant(report.window.from_ns),
        "to": instant(report.window.to_ns),
        "counted_from": word(report.window.anchor),
        "recorded": format_ns(report.recorded_ns),
    }


def finding_line(finding: Finding, several: bool = False) -> Part:
    """A finding in short; of a report of several nodes it says whose it is."""
    effect = finding.effect
    return {
        "id": word(finding.id),
        **({"node": name(finding.node)} if several else {}),
        "kind": word(finding.kind),
        "severity": word(finding.severity),
        "title": data(finding.title, 200),
        "victim": who_line(finding.victim.pid, finding.victim.comm),
        "since": instant(finding.first_ns),
        "until": instant(finding.last_ns),
        "share_of_wall_time_lost": _share(effect.wall_share),
        "confidence": format_share(finding.confidence),
        "source_line": source_line(finding),
    }


def finding_chain(finding: Finding, full: bool, several: bool = False) -> Part:
    """A finding with what proves it, from cause to effect, and what to do."""
    effect = finding.effect
    more = {
        "effect": {
            "operation": word(effect.op),
            "usual": _ns(effect.usual_ns),
            "now": _ns(effect.now_ns),
            "lost": _ns(effect.excess_ns),
        },
        "labels_meanwhile": [data(f"{each.key} {each.first} to {each.last}") for each in finding.labels],
        "causes": [
            cause_part(cause, full)
            for cause in finding.causes
            if cause.bucket != "unexplained" or cause.share >= LEAST_SHARE
        ],
        "share_of_loss_explained": _share(finding.explained_share),
        "proof": [proof_part(proof, full) for proof in finding.evidence],
        "who": [_who(who) for who in who_counts(finding.who)],
        "victim_time": time_shares(finding.time),
        "stack": frames(finding.stack),
        "gain": f"{format_ns(finding.gain.ns)}, {format_share(finding.gain.share)}" if finding.gain else None,
        "fix": [
            known({"text": data(fix.text), "command": data(fix.command), "code": data(fix.code)})
            for fix in finding.fix
        ],
    }
    return {**finding_line(finding, several), **known(more)}


def cause_part(cause: Cause, full: bool) -> Part:
    part = {
        "bucket": word(cause.bucket),
        "means": bucket_words(cause.bucket) if word(cause.bucket) == cause.bucket else None,
        "time": format_ns(cause.ns),
        "share_of_loss": format_share(cause.share),
        "who": [_who(who) for who in who_counts(cause.who)],
        "via": [name(thread) for thread in cause.via],
        "proof": [proof_part(proof, full) for proof in cause.evidence],
    }
    return known(part)


def proof_part(proof: Proof, full: bool) -> str | Part | None:
    """In brief the words; in full the SQL that gives the number, too."""
    if not full:
        return data(proof.text)
    return known(
        {
            "text": data(proof.text),
            "sql": data(proof.sql, 2000),
            "event_ids": [word(each) for each in proof.event_ids[:20]],
        }
    )


def unexplained_part(each: Unexplained) -> Part:
    return {
        **({"node": name(each.node)} if each.node else {}),
        "victim": who_line(each.victim.pid, each.victim.comm),
        "since": instant(each.first_ns),
        "share_of_wall_time_lost": format_share(each.wall_share),
        "text": data(each.text),
    }


def bound_part(each: Bound) -> Part:
    """What limits a job now."""
    return {
        **({"node": name(each.node)} if each.node else {}),
        "job": who_line(each.pid, each.comm),
        "by": word(each.by),
        "text": data(each.text),
    }


def who_line(pid: int | None, comm: str) -> str:
    return f"{name(comm)} pid {pid}" if pid is not None else str(name(comm))


def _who(who: Who) -> str:
    where = f" in {name(who.container)}" if who.container else ""
    return f"{who_line(who.pid, who.comm)}{where}: {format_ns(who.ns)}"


def source_line(finding: Finding) -> str | None:
    source = finding.source
    return place(source.function, source.file, source.line) if source else None


def frames(stack: Sequence[StackFrame]) -> list[str | None]:
    """Innermost first."""
    lines = []
    for frame in stack[:FRAMES]:
        place = (
            f" at {frame.file}:{frame.line}" if frame.file else f" in {frame.module}" if frame.module else ""
        )
        lines.append(data(f"[{frame.kind}] {frame.function or '?'}{place}", 160))
    return lines


def time_shares(time_ns: dict[str, int]) -> Part:
    """Where time went, most first."""
    return {
        str(word(bucket)): f"{percent:.1f} %"
        for bucket, percent in percents(time_ns)
        if percent >= 100 * LEAST_SHARE
    }


def process_part(process: ProcessReport, full: bool) -> Part:
    step, stall = process.step, process.worst_stall
    part = {
        "node": name(process.node),
        "pid": process.pid,
        "comm": name(process.comm),
        "command_line": data(process.cmdline, 200 if full else 80),
        "container": name(process.container),
        "watched": format_ns(process.wall_ns),
        "feeding_threads_time": time_shares(process.time),
        "step": f"{word(step.op)}: usual {format_ns(step.usual_ns)}, now {format_ns(step.now_ns)},"
        f" {format_count(step.count)} steps"
        if step
        else None,
        "gpu_had_nothing_to_do": _ns(process.gpu_idle_ns),
        "worst_stall": f"{format_ns(stall.ns)} at {instant(stall.at_ns)}: {data(stall.text, 200)}"
        if stall
        else None,
        "cpu_taken_from_others": _ns(process.cpu_taken_ns or None),
        "calls": [operation_line(line) for line in process.operations[: 20 if full else 3]],
        "lines": code_lines(process.lines, full),
        "threads": [thread_part(line) for line in process.threads[:20]] if full else [],
    }
    return {key: value for key, value in known(part).items() if value is not None}


def _off_cpu(away: dict[str, int] | None, total_ns: int) -> str:
    """Of the time watched; spinning waits are on a core."""
    if away is None or not total_ns:
        return "not known"
    return format_share(sum(away.values()) / total_ns)


def thread_part(line: ThreadLine) -> Part:
    return {
        "tid": line.tid,
        "comm": name(line.comm),
        "feeds_gpu": line.feeder,
        "watched": format_ns(line.ns),
        "time": time_shares(line.time),
        "off_cpu": _off_cpu(line.off_cpu, line.ns),
        "switches": f"{line.voluntary_switches} own, {line.involuntary_switches} forced",
    }


def operation_line(line: OperationLine) -> str:
    calls = format_count(line.count) if line.exact else f"about {format_count(line.count)}"
    return (
        f"{word(line.op)}: {calls} calls, p50 {format_ns(line.p50_ns)}, p99 {format_ns(line.p99_ns)},"
        f" {format_share(line.wall_share)} of wall time"
    )


def operation_part(stats: OperationStats, several: bool = False) -> Part:
    part = {
        "node": name(stats.node) if several else "",
        "op": word(stats.op),
        "layer": word(stats.layer),
        "calls": stats.count if stats.exact else f"about {stats.count} (+/- {stats.count_error})",
        "p50": _ns(stats.p50_ns),
        "p95": _ns(stats.p95_ns),
        "p99": _ns(stats.p99_ns),
        "max": _ns(stats.max_ns),
        "total": _ns(stats.sum_ns),
        "share_of_wall_time": _share(stats.wall_share),
        "bytes": format_bytes(stats.bytes) if stats.bytes is not None else "",
        "failed": stats.errors or "",
        "pids": list(stats.pids[:10]),
    }
    return known(part)


def losses(found: Sequence[Loss]) -> list[str] | str:
    """What is missing; said also when nothing is."""
    return [f"{word(loss.reason)}: {format_count(loss.count)} records" for loss in found] or "nothing"


def not_watched(found: Sequence[NotWatched]) -> list[str]:
    """By reason, so that a dozen things without a probe are one line."""
    by_why: dict[str, list[str]] = {}
    for each in found:
        by_why.setdefault(each.why, []).append(each.what)
    return [
        f"{', '.join(str(word(each)) for each in what[:20])}: {data(why, 160)}"
        for why, what in by_why.items()
    ]


def _ns(value: int | None) -> str | None:
    return None if value is None else format_ns(value)


def _share(value: float | None) -> str | None:
    return None if value is None else format_share(value)
