"""Whose a process is: what its cgroup path and its environment say, as rows of a table.

A row is one place that tells one thing. The cgroup path was written by the scheduler and
comes first; the environment is what the process was given, or says of itself, and only
fills in. What `job` and `user` mean is the first of their rows that is known, so that one
word groups Slurm, ECS, Ray and torchrun alike. Pods and containers are named in
container_names.py and kubelet.py, from those who run them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ingero.model.window import Labels
from ingero.units import clean

MAX_CHARS = 128


@dataclass(frozen=True, slots=True)
class TenantRow:
    """Where one thing is told: a variable, or a part of the cgroup path."""

    key: str
    variable: str = ""  # empty: the cgroup path
    pattern: str = r"(.+)"  # its group is the value

    def value(self, text: str) -> str:
        found = re.search(self.pattern, text, re.DOTALL)
        return clean(found[1], MAX_CHARS) if found else ""


ROWS = (
    TenantRow("slurm.job", pattern=r"/job_([0-9]+)(?=/|$)"),
    TenantRow("slurm.step", pattern=r"/job_[0-9]+/step_([^/]+)(?=/|$)"),
    TenantRow("ecs.task", pattern=r"/ecs/(?:[^/]+/)*?([0-9a-f]{32})(?=[/-]|$)"),
    TenantRow("slurm.job", "SLURM_JOB_ID"),
    TenantRow("slurm.job", "SLURM_JOBID"),
    TenantRow("slurm.step", "SLURM_STEP_ID"),
    TenantRow("slurm.name", "SLURM_JOB_NAME"),
    TenantRow("slurm.user", "SLURM_JOB_USER"),
    TenantRow("slurm.account", "SLURM_JOB_ACCOUNT"),
    TenantRow("slurm.partition", "SLURM_JOB_PARTITION"),
    TenantRow("slurm.array_job", "SLURM_ARRAY_JOB_ID"),
    TenantRow("slurm.array_task", "SLURM_ARRAY_TASK_ID"),
    TenantRow("ecs.task", "ECS_CONTAINER_METADATA_URI_V4", r"/v4/([0-9a-f]{32})-[0-9]+$"),
    TenantRow("pbs.job", "PBS_JOBID"),
    TenantRow("pbs.array_task", "PBS_ARRAY_INDEX"),
    TenantRow("lsf.job", "LSB_JOBID"),
    TenantRow("lsf.array_task", "LSB_JOBINDEX"),
    TenantRow("kubeflow.run", "KFP_RUN_ID"),
    TenantRow("kubeflow.job", "PET_RDZV_ID"),
    TenantRow("ray.job", "RAY_JOB_ID"),
    TenantRow("torchrun.run", "TORCHELASTIC_RUN_ID", r"^(?!none$)(.+)"),  # torchrun's word for "not given"
    TenantRow("torchrun.restarts", "TORCHELASTIC_RESTART_COUNT", r"^([0-9]{1,6})$"),
)
# What the words that group everything mean: the first that is known.
MEANING = {
    "job": ("slurm.job", "ecs.task", "pbs.job", "lsf.job", "kubeflow.job", "ray.job", "torchrun.run"),
    "user": ("slurm.user",),
    "account": ("slurm.account",),
}
VARIABLES = frozenset(row.variable for row in ROWS if row.variable)


def of_cgroups(paths: Iterable[str]) -> Labels:
    """What the cgroup paths of a process tell."""
    found: dict[str, str] = {}
    for row in ROWS:
        if not row.variable:
            value = next(filter(None, map(row.value, paths)), "")
            if value:
                found.setdefault(row.key, value)
    return _sorted(found)


def with_environment(known: Labels, environment: Mapping[str, str]) -> Labels:
    """`known` and what the environment adds to it."""
    found = {key: value for key, value in known if key not in MEANING or key == "user"}
    for row in ROWS:
        if row.variable and (value := row.value(environment.get(row.variable, ""))):
            found.setdefault(row.key, value)
    for word, keys in MEANING.items():
        told = next((found[key] for key in keys if key in found), "")
        if told:
            found[word] = told
    return _sorted(found)


def _sorted(found: Mapping[str, str]) -> Labels:
    return tuple(sorted(found.items()))


class Users:
    """Names of user numbers out of a file: a directory service could keep us waiting."""

    def __init__(self, path: Path = Path("/etc/passwd")) -> None:
        self._path = path
        self._names: dict[int, str] = {}
        self._read_at = -1

    def name(self, uid: int) -> str | None:
        try:
            changed = self._path.stat().st_mtime_ns
            if changed != self._read_at:
                self._names, self._read_at = dict(_passwd(self._path.read_text("utf-8", "replace"))), changed
        except OSError:
            return None
        return self._names.get(uid)


def _passwd(text: str) -> Iterable[tuple[int, str]]:
    for line in text.splitlines():
        parts = line.split(":")
        if len(parts) > 2 and parts[2].isdigit():
            yield int(parts[2]), clean(parts[0], MAX_CHARS)


USERS = Users()
