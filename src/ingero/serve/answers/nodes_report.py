"""What many nodes say, put together and set to our clock: their diagnoses as one report, and what their
GPUs cost.
"""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from ingero.detectors.across import Across
from ingero.errors import IngeroError
from ingero.model.report import NotWatched, Report
from ingero.serve.answers.asked_nodes import Fleet, FleetState, about, ask, read, state_of
from ingero.serve.answers.cost import CostAnswer, Prices, get_cost
from ingero.serve.answers.nodes_recordings import gathered
from ingero.serve.answers.query import Range
from ingero.serve.answers.several_nodes import NOT_TOGETHER, WAITING, across_recordings, combined
from ingero.serve.answers.whose import EVERYBODY, Whose

# The diagnoses of many nodes side by side, as one report whose times are by our clock.
#
# Each node was diagnosed by itself, by its own server. Who waits for whom is then found in their
# recordings, fetched and put together as a merge does.

T = TypeVar("T")
# Fields that are instants, wherever in a report they stand; `episodes` and the like are pairs of them.
INSTANTS = frozenset({"from_ns", "to_ns", "first_ns", "last_ns", "at_ns", "since_ns", "start_ns", "end_ns"})
PAIRS = frozenset({"episodes"})


class FleetReport(Report, frozen=True, kw_only=True):
    """As of one machine, and who was asked."""

    fleet: FleetState


def ask_fleet_report(fleet: Fleet, wanted: Range, pid: int | None = None) -> FleetReport:
    """What every node says of itself, and what only all of them together tell."""
    replies = ask(fleet, about("explain", wanted, pid=pid))
    told = read(replies, lambda body: msgspec.json.decode(body, type=Report))
    state = state_of(fleet, replies)
    reports = [moved(cast(Report, each.value), each.shift_ns) for each in told]
    recorded = [each.recorded_ns for each in reports if each.recorded_ns is not None]
    whole = combined(reports, max(recorded, default=0), _together(fleet, wanted, reports, pid))
    return FleetReport(**{name: getattr(whole, name) for name in Report.__struct_fields__}, fleet=state)


def _together(fleet: Fleet, wanted: Range, reports: list[Report], pid: int | None) -> Across:
    """What cannot be fetched is said, and costs only what would have been found in it."""
    if len(reports) < 2:
        return Across()
    if pid is not None:
        return NOT_TOGETHER
    try:
        with gathered(fleet, wanted, last=wanted == Range()) as found:
            return across_recordings(found.path, {each.node: each.findings for each in reports})
    except IngeroError as error:
        return Across(
            not_watched=[NotWatched(WAITING, f"their recordings could not be fetched: {error.message}")]
        )


def moved(value: T, shift_ns: int) -> T:
    """With every instant in it moved."""
    return cast(T, _moved(value, shift_ns)) if shift_ns else value


def _moved(value: Any, shift_ns: int) -> Any:
    if isinstance(value, list):
        return [_moved(each, shift_ns) for each in value]
    if not isinstance(value, msgspec.Struct):
        return value
    changes: dict[str, Any] = {}
    for name in value.__struct_fields__:
        old = getattr(value, name)
        if name in INSTANTS and isinstance(old, int):
            changes[name] = old + shift_ns
        elif name in PAIRS:
            changes[name] = [(first + shift_ns, last + shift_ns) for first, last in old]
        elif isinstance(old, list | msgspec.Struct):
            changes[name] = _moved(old, shift_ns)
    return msgspec.structs.replace(value, **changes)


# What the GPUs of many nodes cost: their recordings fetched, set to our clock and summed up together.


class FleetCost(CostAnswer, frozen=True, kw_only=True):
    """As of one machine, and who was asked."""

    fleet: FleetState


def ask_fleet_cost(
    fleet: Fleet,
    wanted: Range,
    prices: Prices,
    by: str | None = None,
    node: str | None = None,
    whose: Whose = EVERYBODY,
) -> FleetCost:
    """Without a range, of every node's last recording."""
    with gathered(fleet, wanted, last=wanted == Range()) as found:
        whole = get_cost(found.path, wanted, prices, by, node, whose)
        fields = {name: getattr(whole, name) for name in CostAnswer.__struct_fields__}
        return FleetCost(**fields, fleet=found.state)
