"""`ingero demo --live`: real processes on the stub device, real probes, the diagnosis at the end.

Other programs on the machine may take cores as well: that is told, and is no mistake.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ingero.scenarios.catalogue import BY_NAME
from tests.ebpf.real_runs import Place, json_lines

pytestmark = pytest.mark.timeout(120)


def played(place: Place, name: str) -> dict[str, Any]:
    """The report of a scenario that ran; what was to be shown comes first."""
    done = place.ingero("demo", "--live", "--no-tui", name, "-d", str(place.db))
    assert done.returncode == 0, done.stderr
    assert "Diagnosis of" in done.stdout
    report = json_lines(place.ingero("explain", "-d", str(place.db), "--json").stdout)[0]
    kinds = [finding["kind"] for finding in report["findings"]]
    expected = BY_NAME[name].finding
    assert expected in kinds, done.stdout
    assert set(kinds[: kinds.index(expected)]) <= {"cpu-contention"}, done.stdout
    return report


@pytest.mark.parametrize("name", ["memcpy-bottleneck", pytest.param("gpu-steal", marks=pytest.mark.long)])
def test_a_live_scenario_ends_with_its_diagnosis(place: Place, name: str) -> None:
    assert played(place, name)["losses"] == []


def test_the_neighbour_is_named_and_is_gone_afterwards(place: Place) -> None:
    report = played(place, "cpu-contention")
    found = next(each for each in report["findings"] if each["kind"] == "cpu-contention")
    neighbours = [who for who in found["causes"][0]["who"] if who["comm"] == "busy-neighbour"]
    assert neighbours
    assert not [who for who in neighbours if Path(f"/proc/{who['pid']}").exists()]
