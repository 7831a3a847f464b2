"""Findings on the timeline, with an arrow from whoever is at fault."""

from __future__ import annotations

from collections.abc import Iterator

from ingero.model.finding import Finding, Who
from ingero.serve.answers.diagnosis import diagnosed
from ingero.serve.answers.timeline_rows import Asked
from ingero.serve.answers.tracks import Arguments, Item, Lanes, Moment, Slice
from ingero.serve.answers.who_counts import who_counts
from ingero.units import clean, format_share

FLOWS = 1 << 62  # above every event's number
SHOWN_CULPRITS = 8


def findings(asked: Asked) -> Iterator[Item]:
    """On lanes of the machine, as `explain` has them."""
    pid, tracks = asked.pid, asked.tracks
    diagnosis = diagnosed(asked.reader, asked.when)
    found = [each for each in diagnosis.findings if pid is None or each.victim.pid == pid]
    node_ids = {name: number for number, name in asked.reader.rows("SELECT id, name FROM node")}
    yield from _culprits(asked, found, node_ids)
    episodes = [
        (start, end, number, finding)
        for number, finding in enumerate(found)
        for start, end in (finding.episodes or [(finding.first_ns, finding.last_ns)])
    ]
    lanes: dict[str, Lanes] = {}
    begun: set[int] = set()
    for start, end, number, finding in sorted(episodes, key=lambda each: each[:3]):
        lane = lanes.setdefault(finding.node, Lanes()).take(start, end)
        machine = tracks.machine(node_ids.get(finding.node, 0))
        track = tracks.lane(machine, f"findings {lane + 1}" if lane else "findings", lane - 100)
        flows = () if number in begun else _flows(number, finding)
        begun.add(number)
        name = f"{finding.severity.value}: {clean(finding.title, 200)}"
        yield Slice(track.id, start, max(start, end), name, finding.severity.value, _about(finding), flows)


def _flows(number: int, finding: Finding) -> tuple[int, ...]:
    """One arrow for each culprit."""
    return tuple(FLOWS + number * SHOWN_CULPRITS + at for at in range(len(_at_fault(finding))))


def _at_fault(finding: Finding) -> list[Who]:
    """Others than the victim itself, who took most first."""
    who = [each for cause in finding.causes for each in cause.who] or finding.who
    others = [each for each in who_counts(who) if each.pid is not None and each.pid != finding.victim.pid]
    return sorted(others, key=lambda each: -each.ns)[:SHOWN_CULPRITS]


def _culprits(asked: Asked, found: list[Finding], node_ids: dict[str, int]) -> Iterator[Item]:
    """The begin of each arrow, on the process at fault."""
    marks = [
        (finding.episodes[0][0] if finding.episodes else finding.first_ns, flow, finding, who)
        for number, finding in enumerate(found)
        for flow, who in zip(_flows(number, finding), _at_fault(finding), strict=True)
    ]
    for at_ns, flow, finding, who in sorted(marks, key=lambda mark: mark[:2]):
        node_id = node_ids.get(finding.node, 0)
        process = asked.tracks.process(node_id, asked.process_at(node_id, who.pid, at_ns), who.pid, who.comm)
        name = f"{finding.kind}: {clean(finding.victim.comm, 64)}"
        about = (("victim_pid", finding.victim.pid),)
        yield Moment(
            asked.tracks.lane(process, "at fault").id, at_ns, name, "cause", about, flows_out=(flow,)
        )


def _about(finding: Finding) -> Arguments:
    victim = finding.victim
    found: list[tuple[str, int | float | str]] = [
        ("kind", finding.kind),
        ("victim", f"{clean(victim.comm, 64)} ({victim.pid})"),
        ("confidence", finding.confidence),
    ]
    if finding.effect.wall_share is not None:
        found.append(("wall_share", finding.effect.wall_share))
    for number, cause in enumerate(finding.causes):
        proof = f": {clean(cause.evidence[0].text, 400)}" if cause.evidence else ""
        found.append((f"cause {number + 1}", f"{format_share(cause.share)} {cause.bucket}{proof}"))
    found += [(f"fix {number + 1}", clean(fix.text, 400)) for number, fix in enumerate(finding.fix)]
    if finding.source is not None:
        found.append(("line", f"{clean(finding.source.file, 300)}:{finding.source.line}"))
    return tuple(found)
