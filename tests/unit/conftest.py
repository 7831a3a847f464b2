"""Commands that run inside the tests keep the privileges of the tests: those that follow may need them."""

from __future__ import annotations

import pytest

from ingero import privileges


@pytest.fixture(autouse=True)
def privileges_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "drop", lambda: None)
