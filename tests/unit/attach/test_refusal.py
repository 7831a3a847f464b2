"""What the kernel refuses is told with what to do about it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from ingero.attach import kernel


@pytest.mark.parametrize(("mode", "hint"), [(2, "seccomp"), (0, "Linux 5.15")])
def test_a_refusal_behind_a_containers_filter_names_the_filter(
    mode: int, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = tmp_path / "status"
    status.write_text(f"Name:\tingero\nSeccomp:\t{mode}\nThreads:\t1\n")
    monkeypatch.setattr(kernel, "STATUS", status)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    error = kernel.explain_refusal(OSError(errno.EPERM, "not permitted"), "the call probes")
    assert hint in (error.hint or "")
