"""The folder says what a test needs; what is missing is said aloud.

A test that cannot run here is skipped with the reason, and fails instead where
INGERO_MUST_RUN names its folder. Everything runs on the installed ingero: the
source tree has no native module.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import ingero

TESTS = Path(__file__).parent
SHARED = TESTS.parent.parent / "shared"
BTF = Path("/sys/kernel/btf/vmlinux")
# The kernel takes some 0.1 s to let go of each perf uprobe, and a trace has hundreds of them.
PERF_TIMEOUT_S = 600


@pytest.hookimpl(tryfirst=True)  # before Hypothesis looks at it
def pytest_configure(config: pytest.Config) -> None:
    """Whoever sees a failure can draw the same again.

    Tests end programs as Ctrl-C and a closed terminal do, also where they were started in the background:
    there these signals are ignored, and that would pass on.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda *_: None)  # a handler ends with exec, what is ignored does not
    if getattr(config.option, "hypothesis_seed", None) is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(1 << 32))


def pytest_report_header(config: pytest.Config) -> list[str]:
    native = "with" if importlib.util.find_spec("ingero.native._shim") else "without"
    shape = os.environ.get("INGERO_ATTACH", "the newest the kernel takes")
    return [
        f"ingero: {Path(ingero.__file__).parent}, {native} native module; attach shape: {shape}",
        f"drawn with --hypothesis-seed={config.option.hypothesis_seed}",
    ]


def folder_of(item: pytest.Item) -> str:
    return item.path.relative_to(TESTS).parts[0]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        item.add_marker(folder_of(item))
        if folder_of(item) == "ebpf" and os.environ.get("INGERO_ATTACH") == "perf":
            item.add_marker(pytest.mark.timeout(PERF_TIMEOUT_S))
        if "shared_dir" in getattr(item, "fixturenames", ()):
            item.add_marker("shared")


def missing_for_ebpf() -> Iterator[str]:
    if os.geteuid() != 0:
        yield "not root"
    if not BTF.exists():
        yield f"no {BTF}"
    if importlib.util.find_spec("ingero.native._shim") is None:
        yield "ingero is not installed with its native module: make build"


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("long") and not os.environ.get("INGERO_LONG"):
        pytest.skip("takes long: make test-long runs it")
    if folder_of(item) == "ebpf":
        require("ebpf", list(missing_for_ebpf()))


def require(folder: str, missing: list[str]) -> None:
    """Skip, or fail where skipping is not allowed."""
    if not missing:
        return
    reason = f"{folder} tests cannot run here: {', '.join(missing)}"
    if folder in os.environ.get("INGERO_MUST_RUN", "").replace(",", " ").split():
        pytest.fail(f"{reason} (INGERO_MUST_RUN={folder})", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(scope="session")
def shared_dir() -> Path:
    """Recordings beside the repository; a clone elsewhere does not have them."""
    require("shared", [] if SHARED.is_dir() else [f"{SHARED} does not exist"])
    return SHARED
