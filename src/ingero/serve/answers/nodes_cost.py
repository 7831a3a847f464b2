"""What the GPUs of many nodes cost: their recordings fetched, set to our clock and summed up together."""

from __future__ import annotations

from ingero.serve.answers.asked_nodes import Fleet, FleetState
from ingero.serve.answers.cost import CostAnswer, Prices, get_cost
from ingero.serve.answers.nodes_recordings import gathered
from ingero.serve.answers.query import Range
from ingero.serve.answers.whose import EVERYBODY, Whose


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
