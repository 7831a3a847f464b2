"""A recording of three tenants: two pods of one name in two namespaces, and a Slurm job in no container."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ingero.model.window import Annotation, Container
from ingero.store.writer import Writer
from tests.builders import (
    OPERATIONS,
    SECOND,
    call,
    fixed_clock,
    operation,
    process,
    records,
    thread,
    wait,
    window,
)
from tests.sites import resolved

TEAM_A, TEAM_B, SLURM, HOST = 100, 200, 300, 400  # their processes; the last is nobody's
LAUNCH_NS = {TEAM_A: 5_000, TEAM_B: 7_000, SLURM: 9_000, HOST: 11_000}
BEGAN_NS = {TEAM_A: 0, TEAM_B: SECOND // 2, SLURM: 0, HOST: 0}
CONTAINERS = (
    Container(5, "/kubepods/a", "a" * 64, "containerd", "trainer-0", "team-a", None,
              (("name", "trainer"), ("owner", "Job/train"))),
    Container(6, "/kubepods/b", "b" * 64, "containerd", "trainer-0", "team-b", None),
    Container(7, "/slurm/uid_0/job_4711/step_0", job="4711.0"),
)  # fmt: skip
CGROUPS = {TEAM_A: 5, TEAM_B: 6, SLURM: 7, HOST: 0}
OF_SLURM = (("account", "physics"), ("job", "4711"), ("slurm.step", "0"), ("user", "ada"))


def record(path: Path, *, said: tuple[Annotation, ...] = ()) -> Path:
    """One second of each; `said` are labels that jobs reported."""
    calls = [
        part
        for pid, took in LAUNCH_NS.items()
        for part in (
            call("cudaLaunchKernel", took, at_ns=BEGAN_NS[pid] + 10, pid=pid, cgroup_id=CGROUPS[pid]),
            call(
                "cudaGraphLaunch",
                took,
                at_ns=BEGAN_NS[pid] + 20,
                pid=pid,
                cgroup_id=CGROUPS[pid],
                args=(pid, 9),
            ),
        )
    ]
    processes = [
        process(pid, BEGAN_NS[pid], cgroup_id=CGROUPS[pid], labels=OF_SLURM if pid == SLURM else ())
        for pid in CGROUPS
    ]
    with Writer(path, "n", fixed_clock(), OPERATIONS) as writer:
        made = window(
            0,
            containers=list(CONTAINERS),
            processes=processes,
            operations=[
                operation(op, [took], pid=pid)
                for pid, took in LAUNCH_NS.items()
                for op in ("cudaLaunchKernel", "cudaGraphLaunch")
            ],
            threads=[thread(pid=pid, host_cpu=SECOND) for pid in CGROUPS],
            calls=records(*calls),
            call_stacks=np.array([pid for pid in CGROUPS for _ in range(2)], np.int64),
            waits=[wait("disk_wait", 20_000_000, at_ns=BEGAN_NS[pid] + 900, pid=pid) for pid in CGROUPS],
            wait_stacks=np.array(list(CGROUPS), np.int64),
            stacks=[resolved(f"step_of_{pid} train.py:{pid}", pid) for pid in CGROUPS],
            annotations=list(said),
        )
        assert writer.write(made) == ""
    return path
