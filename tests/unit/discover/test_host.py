"""The machine's facts: crafted texts, and this machine's own."""

from __future__ import annotations

import os
import time
from pathlib import Path

from ingero.discover import host

STAT = "cpu  100 0 50 800 50 0 0 0 10 0\ncpu0 1 2\ncpu1 1 2\nintr 1\n"


def fake_proc(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def test_cpu_share_is_that_of_the_time_between_two_samples(tmp_path: Path) -> None:
    sampler = host.SystemSampler(fake_proc(tmp_path, stat=STAT))
    assert sampler.sample().cpu_share is None
    fake_proc(tmp_path, stat="cpu  130 0 50 860 60 0 0 0 10 0\ncpu0 1\n")
    sample = sampler.sample()
    assert sample.cpu_share == 0.3
    assert sample.cores == 1


def test_counters_that_run_backwards_stay_within_bounds(tmp_path: Path) -> None:
    sampler = host.SystemSampler(fake_proc(tmp_path, stat=STAT))
    sampler.sample()
    fake_proc(tmp_path, stat="cpu  200 0 50 790 50 0 0 0\n")
    assert sampler.sample().cpu_share == 1.0


def test_what_the_kernel_does_not_tell_is_none(tmp_path: Path) -> None:
    sample = host.SystemSampler(tmp_path).sample()
    assert sample.cores >= 1
    told = (sample.cpu_share, sample.memory_share, sample.load1, sample.swap_bytes, sample.psi_cpu_some)
    assert told == (None,) * 5


def test_memory_load_swap_and_pressure_are_read(tmp_path: Path) -> None:
    memory = "MemTotal: 1000 kB\nMemFree: 1 kB\nMemAvailable: 250 kB\nSwapTotal: 50 kB\nSwapFree: 20 kB\n"
    fake_proc(tmp_path, meminfo=memory, loadavg="1.50 0.5 0.1 1/2 3\n", stat=STAT)
    (tmp_path / "pressure").mkdir()
    fake_proc(tmp_path / "pressure", io="some avg10=12.50 avg60=0.00\nfull avg10=3.00\n", cpu="rubbish")
    sample = host.SystemSampler(tmp_path).sample()
    assert (sample.memory_share, sample.memory_available_bytes) == (0.75, 256_000)
    assert (sample.load1, sample.swap_bytes, sample.psi_io_some) == (1.5, 30 * 1024, 0.125)
    assert sample.psi_cpu_some is None


def test_this_machine_is_sampled() -> None:
    sampler = host.SystemSampler()
    sampler.sample()
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        pass
    sample = sampler.sample()
    assert sample.cpu_share is not None
    assert 0 < sample.cpu_share <= 1
    assert sample.memory_share is not None
    assert 0 < sample.memory_share < 1
    assert sample.cores == len(os.sched_getaffinity(0)) or sample.cores >= 1


def test_missing_capabilities_are_named() -> None:
    every = sum(1 << bit for bit in host.CAPABILITIES.values())
    assert host.missing_capabilities(every) == []
    assert set(host.missing_capabilities(0)) == set(host.CAPABILITIES)
    without = every & ~(1 << host.CAPABILITIES["CAP_SYS_PTRACE"])
    assert host.missing_capabilities(without) == ["CAP_SYS_PTRACE"]


def test_sys_admin_stands_in_for_the_narrow_ones_and_they_for_it() -> None:
    def only(*names: str) -> int:
        return sum(1 << host.CAPABILITIES[name] for name in names)

    rest = ("CAP_SYS_PTRACE", "CAP_SYS_RESOURCE")
    assert host.missing_capabilities(only("CAP_SYS_ADMIN", *rest)) == []
    assert host.missing_capabilities(only("CAP_BPF", "CAP_PERFMON", "CAP_CHECKPOINT_RESTORE", *rest)) == []


def test_lockdown_is_the_bracketed_word() -> None:
    assert host.lockdown("none [integrity] confidentiality") == "integrity"
    assert host.lockdown("") is None


def test_free_space_of_a_path_that_does_not_exist_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    free = host.free_bytes(tmp_path / "not" / "yet.db")
    assert free is not None
    assert free > 0


def test_facts_of_this_machine_can_all_be_asked() -> None:
    assert host.kernel_release() == os.uname().release
    assert host.distribution()
    assert host.kernel_number("pid_max")
    assert host.kernel_number("no_such_setting") is None
    assert host.effective_capabilities() >= 0
    host.tracefs()
    host.has_btf()
    host.container_runtimes()
