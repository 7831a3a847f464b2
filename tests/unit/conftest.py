"""Commands that run inside the tests do not give up the tests' privileges: those that follow may need them."""

from __future__ import annotations

import pytest

from ingero import privileges


@pytest.fixture(autouse=True)
def privileges_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(privileges, "drop", lambda: None)
