from __future__ import annotations

from pathlib import Path

import pytest

from ingero.discover import host_checks

FILE = """
[[kernel]]
release = "6.12.107+deb13-cloud-amd64"
machine = "x86_64"
failed = []

[[kernel]]
release = "7.2.13"
machine = "x86_64"
failed = ["test_a"]
"""


@pytest.mark.parametrize(
    "release, machine, expected",
    [
        ("6.12.3-generic", "x86_64", True),
        ("6.1.0", "x86_64", False),
        ("6.12.3", "aarch64", False),
        ("7.2.14", "x86_64", False),
    ],
    ids=["another patch", "another version", "another processor", "a test failed"],
)
def test_a_kernel_was_tried_when_one_of_its_version_passed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, release: str, machine: str, expected: bool
) -> None:
    (tmp_path / "tried_kernels.toml").write_text(FILE)
    monkeypatch.setattr("ingero.discover.host_checks.resources.files", lambda package: tmp_path)
    assert host_checks.was_tried(release, machine) is expected


def test_check_warns_on_a_kernel_that_nobody_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingero.discover.host_checks.host.kernel_release", lambda: "99.1.0-somebody")
    said = host_checks.kernel()
    assert said.status == "warning"
    assert said.value.startswith("99.1.0-somebody")
    assert "has not been tested on this kernel" in said.advice


def test_check_is_content_with_every_kernel_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    passed = [each for each in host_checks.rows() if not each["failed"]]
    assert passed
    for each in passed:
        monkeypatch.setattr(
            "ingero.discover.host_checks.host.kernel_release", lambda each=each: each["release"]
        )
        monkeypatch.setattr("platform.machine", lambda each=each: each["machine"])
        assert host_checks.kernel().status == "ok"
