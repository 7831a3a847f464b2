"""What the governor decides, in words."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from ingero.attach.probes import ROWS
from ingero.governor.policy import ALL, Controller, Load, Watch, cost_share, detail_share
from ingero.model.governor import ALL_DUE, ALL_THE_TIME, ALL_TIMED, RECORDS, TIMING
from ingero.model.window import GovernorAction
from ingero.units import format_share

FEWER = "fewer"


def names_of(functions: Collection[int]) -> str:
    return ", ".join(sorted(ROWS[number - 1].name for number in functions)) or "calls"


def detail(watch: Watch) -> str:
    return FEWER if watch.less_detail else ALL_DUE


def timing(watch: Watch) -> str:
    return f"1 call in {watch.every} timed, all counted" if watch.thinned else ALL_TIMED


def watching(watch: Watch) -> str:
    return f"{format_share(watch.share)} of the time" if watch.cycles else ALL_THE_TIME


def actions_between(
    before: Watch, controller: Controller, load: Load, pid: int, tid: int, now_ns: int
) -> Iterator[GovernorAction]:
    after = controller.watch

    def expected(watch: Watch) -> str:
        share = cost_share(load, watch, controller.means)
        return format_share(share + detail_share(load, before, watch, controller.budget))

    why = (
        f"tracing everything would take {expected(ALL)} of the time of process {pid},"
        f" most of it in thread {tid}; {expected(after)} expected now,"
        f" budget {format_share(controller.budget)}"
    )
    thinned, cycled = names_of(after.thinned or before.thinned), names_of(after.cycled or before.cycled)
    for what, words in ((RECORDS, detail), (TIMING + thinned, timing), (cycled, watching)):
        if words(before) != words(after):
            yield GovernorAction(now_ns, what, words(before), words(after), why, after.share)


def watched_less(watch: Watch) -> Iterator[str]:
    """What is not watched in full now."""
    if watch.less_detail:
        yield f"{RECORDS}: {detail(watch)}"
    if watch.thinned:
        yield f"{names_of(watch.thinned)}: {timing(watch)}"
    if watch.cycles:
        yield f"{names_of(watch.cycled)} watched {watching(watch)}"
