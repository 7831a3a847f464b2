"""What the governor changes, in words."""

from __future__ import annotations

from collections.abc import Iterator

from ingero.agent.control import ALL, Controller, Load, Watch, cost_share, walks_per_second
from ingero.model.governor import ALL_DUE, ALL_THE_TIME, ALL_TIMED, RECORDS, TIMING
from ingero.model.layout import Group
from ingero.model.window import GovernorAction
from ingero.units import format_share

NAMES = {
    Group.GROUP_LAUNCH: "launches",
    Group.GROUP_COPY: "copies",
    Group.GROUP_EVENT: "event calls",
    Group.GROUP_POLL: "polls",
}


def names_of(watch: Watch) -> str:
    return ", ".join(NAMES[group] for group in sorted(watch.groups)) or "calls"


def timing(watch: Watch) -> str:
    return ALL_TIMED if watch.every == 1 else f"1 call in {watch.every} timed, all counted"


def watching(watch: Watch) -> str:
    return f"{format_share(watch.share)} of the time" if watch.cycles else ALL_THE_TIME


def detail(watch: Watch) -> str:
    if not watch.detail:
        return ALL_DUE
    return f"{walks_per_second(watch.detail)} stacks a second of an operation, and samples"


def _without(load: Load, controller: Controller, watch: Watch) -> str:
    return format_share(cost_share(load, watch, controller.cost))


def actions_between(
    before: Watch, controller: Controller, load: Load, pid: int, tid: int, now_ns: int
) -> Iterator[GovernorAction]:
    after = controller.watch
    why = (
        f"tracing everything would take {_without(load, controller, ALL)} of the time of process {pid},"
        f" most of it in thread {tid}; {_without(load, controller, after)} expected now,"
        f" budget {format_share(controller.budget)}"
    )
    named = names_of(after if after.groups else before)
    for what, words in ((RECORDS, detail), (TIMING + named, timing), (named, watching)):
        if words(before) != words(after):
            yield GovernorAction(now_ns, what, words(before), words(after), why, after.share)


def watched_less(watch: Watch) -> Iterator[str]:
    """What is not watched in full now."""
    if watch.detail:
        yield f"{RECORDS}: {detail(watch)}"
    if watch.every > 1:
        yield f"{names_of(watch)}: {timing(watch)}"
    if watch.cycles:
        yield f"{names_of(watch)} watched {watching(watch)}"
