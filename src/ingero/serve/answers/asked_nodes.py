"""What every answer of several nodes carries: who was asked, who answered, whose clock is off.

The nodes' own answers are put together in nodes_rows, nodes_report and nodes_recordings;
nothing about the network is known there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar, cast

import msgspec

from ingero import __version__
from ingero.errors import IngeroError, StoreError, TargetError, UsageError
from ingero.fleet import asking, clocks
from ingero.fleet.asking import Limits, Question, Reply, Trust
from ingero.fleet.failures import Failure, Problem
from ingero.fleet.nodes import Node, parse_nodes
from ingero.serve.answers.query import Range
from ingero.serve.answers.window import parse_instant
from ingero.units import HOUR, clean, format_ns

__all__ = ["Fleet", "FleetState", "Limits", "Node", "NodeState", "Question", "Trust", "ask", "parse_nodes"]

T = TypeVar("T")
Into = Callable[[Node], Path] | None
_NAMES = 5  # of nodes in one sentence


@dataclass(frozen=True)
class Fleet:
    """Whom to ask, and how."""

    nodes: Sequence[Node]
    trust: Trust
    limits: Limits = field(default_factory=Limits)
    progress: asking.Progress = lambda _, __: None
    warn_ns: int = clocks.WARN_NS  # clocks that are further apart are pointed out


class ClockState(msgspec.Struct, frozen=True):
    """`offset_ns`: the node's clock minus ours, known to within `error_ns`.

    `shift_ns` is what was added to its instants: 0 where the offset is within its error.
    """

    offset_ns: int
    error_ns: int
    shift_ns: int
    exchanges: int
    drift_ppm: float | None = None  # faster than ours, where it was looked at twice
    drift_error_ppm: float | None = None


class NodeState(msgspec.Struct, frozen=True):
    """One node that was asked."""

    address: str
    nodes: list[str]  # names in its recording
    answered: bool
    problem: Problem | None = None
    why: str | None = None
    hint: str | None = None
    version: str | None = None
    took_ns: int | None = None
    clock: ClockState | None = None


class FleetState(msgspec.Struct, frozen=True):
    """Who was asked. An answer without `partial` is of every node."""

    asked: int
    answered: int
    partial: bool
    nodes: list[NodeState]
    notes: list[str] = []  # clocks, versions, names: what to know before comparing


@dataclass(frozen=True)
class NodeAnswer:
    """What one node answered, read."""

    node: Node
    names: tuple[str, ...]
    clock: clocks.Offset | None
    value: object

    @property
    def shift_ns(self) -> int:
        return self.clock.shift_ns if self.clock is not None else 0

    @property
    def label(self) -> str:
        """The node's name; its address where its recording is of several, or of none."""
        return self.names[0] if len(self.names) == 1 else self.node.name


class NobodyAnsweredError(IngeroError):
    """No node gave an answer; `state` says why for each."""

    def __init__(self, message: str, hint: str, state: FleetState) -> None:
        super().__init__(message, hint=hint)
        self.state = state


def ask(fleet: Fleet, question: Question) -> list[Reply]:
    """Everybody; raises only where nobody can be asked."""
    if not fleet.nodes:
        raise UsageError("there are no nodes to ask", hint="Name them with --nodes, or fleet.nodes.")
    return asking.ask_all(fleet.nodes, question, fleet.trust, fleet.limits, fleet.progress)


def about(path: str, wanted: Range, body: object = None, into: Into = None, **more: object) -> Question:
    """A question about a stretch of time: instants are by our clock, and each node gets them by its own."""
    parameters = {name: str(value) for name, value in more.items() if value is not None}
    if wanted.since is not None:
        if wanted.start is not None or wanted.end is not None:
            raise UsageError("--since and --from/--to exclude each other", hint="Give one of them.")
        parameters["since"] = wanted.since
    given = {"from": wanted.start, "to": wanted.end}
    instants = {name: parse_instant(text) for name, text in given.items() if text is not None}
    return Question(path, parameters, instants, body, into)


def read(replies: list[Reply], decode: Callable[[bytes], T]) -> list[NodeAnswer]:
    """The answers that can be read; the reply of any other becomes one that did not answer."""
    found = []
    for reply in replies:
        if not reply.answered or reply.hello is None:
            continue
        try:
            value = decode(reply.body or b"")
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reply.failure = _unreadable(reply, error)
            continue
        found.append(NodeAnswer(reply.node, reply.hello.nodes, reply.clock, value))
    return found


def _unreadable(reply: Reply, error: Exception) -> Failure:
    version = reply.hello.version if reply.hello is not None else ""
    if version != __version__:
        return Failure(
            Problem.FOREIGN,
            f"version {clean(version, 40)} answers in a way that {__version__} does not know",
            "Install the same version on both.",
        )
    return Failure(Problem.GARBAGE, f"its answer cannot be understood: {clean(str(error), 150)}", "")


def state_of(fleet: Fleet, replies: list[Reply]) -> FleetState:
    """Who answered; raises where that is nobody."""
    counted = [reply for reply in replies if not _same(reply)]
    answered = sum(reply.answered for reply in counted)
    state = FleetState(
        asked=len(counted),
        answered=answered,
        partial=answered < len(counted),
        nodes=[_node_state(reply) for reply in replies],
        notes=list(_notes(fleet, replies)),
    )
    if not answered:
        raise _nobody(counted, state)
    return state


def get_fleet(fleet: Fleet | None) -> FleetState:
    """Who could be asked, and who answers; nobody where no nodes are configured."""
    if fleet is None:
        return FleetState(0, 0, False, [])
    try:
        return state_of(fleet, ask(fleet, Question("health")))
    except NobodyAnsweredError as error:
        return error.state


def ask_one(
    fleet: Fleet | None, address: str, path: str, parameters: Mapping[str, str], body: object = None
) -> bytes:
    """What one of the configured nodes answers, as it said it: never anybody else."""
    node = next((each for each in fleet.nodes if each.name == address), None) if fleet else None
    if fleet is None or node is None:
        raise TargetError(
            f"{clean(address, 80)} is not one of the configured nodes", hint="fleet.nodes names them."
        )
    (reply,) = ask(replace(fleet, nodes=[node]), Question(path, parameters, body=body))[:1]
    if reply.failure is not None:
        kind = UsageError if reply.failure.usage else StoreError
        raise kind(f"{reply.node.name}: {reply.failure.why}", hint=reply.failure.hint)
    return reply.body or b""


_COUNTS = "SELECT (SELECT COUNT(*) FROM events) AS events, (SELECT COUNT(*) FROM findings) AS findings"


class _Counted(msgspec.Struct):
    rows: list[dict[str, int]]


def get_overview(fleet: Fleet) -> tuple[FleetState, dict[str, tuple[int, int]]]:
    """Who answers; and by address how many events and findings its recording has."""
    replies = ask(fleet, Question("query", body={"sql": _COUNTS, "limit": 1}))
    told = read(replies, lambda body: msgspec.json.decode(body, type=_Counted))
    found = {
        each.node.name: (row.get("events", 0), row.get("findings", 0))
        for each in told
        for row in cast(_Counted, each.value).rows
    }
    return state_of(fleet, replies), found


def _same(reply: Reply) -> bool:
    return reply.failure is not None and reply.failure.problem is Problem.SAME


def _node_state(reply: Reply) -> NodeState:
    hello, failure = reply.hello, reply.failure
    return NodeState(
        address=reply.node.name,
        nodes=[clean(name, 253) for name in hello.nodes] if hello else [],
        answered=reply.answered,
        problem=failure.problem if failure else None,
        why=failure.why if failure else None,
        hint=(failure.hint or None) if failure else None,
        version=clean(hello.version, 60) if hello else None,
        took_ns=round(reply.took_s * 1e9),
        clock=_clock_state(reply) if reply.clock else None,
    )


def _clock_state(reply: Reply) -> ClockState:
    clock, drift = reply.clock, reply.drift
    assert clock is not None
    return ClockState(
        offset_ns=clock.offset_ns,
        error_ns=clock.error_ns,
        shift_ns=clock.shift_ns,
        exchanges=clock.exchanges,
        drift_ppm=drift.rate * 1e6 if drift else None,
        drift_error_ppm=drift.error * 1e6 if drift else None,
    )


def _notes(fleet: Fleet, replies: list[Reply]) -> Iterable[str]:
    yield from _clock_notes(fleet, replies)
    other = [each for each in replies if each.hello is not None and each.hello.version != __version__]
    for version in dict.fromkeys(each.hello.version for each in other if each.hello):
        names = [each.node.name for each in other if each.hello and each.hello.version == version]
        yield f"{_listed(names)}: ingero {clean(version, 40)}, here {__version__}"
    told: dict[str, list[str]] = {}
    for each in replies:
        for name in each.hello.nodes if each.hello and each.answered else ():
            told.setdefault(name, []).append(each.node.name)
    for name, where in told.items():
        if len(where) > 1:
            yield f"{clean(name, 60)} is the name of a node at {_listed(where)}: counted once for each"


def _clock_notes(fleet: Fleet, replies: list[Reply]) -> Iterable[str]:
    for each in replies:
        clock, drift = each.clock, each.drift
        if clock is None or not each.answered:
            continue
        name = _label(each)
        if clock.certain and abs(clock.offset_ns) > fleet.warn_ns:
            side = "ahead of" if clock.offset_ns > 0 else "behind"
            yield (
                f"the clock of {name} is {format_ns(abs(clock.offset_ns))} {side} ours"
                f" (± {format_ns(clock.error_ns)}); its times are corrected by that"
            )
        elif clock.left_ns > fleet.warn_ns:
            yield f"the clock of {name} is known to ± {format_ns(clock.left_ns)} only: the way there is slow"
        if drift is not None and drift.certain:
            off = format_ns(clocks.error_after(clock, drift, HOUR))
            side = "fast" if drift.rate > 0 else "slow"
            yield (
                f"the clock of {name} runs {abs(drift.rate) * 1e6:.0f} ppm (± {drift.error * 1e6:.0f})"
                f" {side}: times of an hour ago may be off by {off}"
            )


def _label(reply: Reply) -> str:
    names = reply.hello.nodes if reply.hello else ()
    return clean(names[0], 60) if len(names) == 1 else reply.node.name


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + more


def _nobody(replies: list[Reply], state: FleetState) -> IngeroError:
    failed = [reply.failure for reply in replies if reply.failure is not None]
    first = failed[0]
    whys = {failure.why for failure in failed}
    if len(whys) == 1 and all(failure.usage for failure in failed):
        return UsageError(first.why, hint=first.hint)
    count = "the node did not answer" if len(failed) == 1 else f"none of {len(failed)} nodes answered"
    if len(whys) == 1:
        named = f"{replies[0].node.name}: " if len(failed) == 1 else ""
        return NobodyAnsweredError(f"{count}: {named}{first.why}", first.hint, state)
    lines = "\n".join(f"{each.node.name}: {each.failure.why}" for each in replies[:20] if each.failure)
    return NobodyAnsweredError(f"{count}\n{lines}", first.hint, state)
