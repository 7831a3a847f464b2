"""Whose a process is, by its cgroup path and its environment."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from ingero.discover import processes, tenants
from ingero.discover.tenants import MEANING, ROWS, Users, of_cgroups, with_environment

from .conftest import WAIT, Start

TASK = "1234567890abcdef1234567890abcdef"
PAGE = Path(__file__).parents[3] / "docs/tenants.md"


@pytest.mark.parametrize(
    "path, environment, wanted",
    [
        ("/system.slice/slurmstepd.scope/job_4711/step_0/user/task_0", {}, {"job": "4711"}),
        ("/slurm/uid_1000/job_12/step_batch", {}, {"job": "12", "slurm.step": "batch"}),
        (
            "/",
            {
                "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "3", "SLURM_JOB_USER": "ada",
                "SLURM_JOB_ACCOUNT": "physics", "SLURM_ARRAY_JOB_ID": "70", "SLURM_ARRAY_TASK_ID": "7",
            },
            {
                "job": "77", "user": "ada", "account": "physics", "slurm.step": "3", "slurm.array_job": "70",
                "slurm.array_task": "7",
            },
        ),
        (f"/ecs/{TASK}/{TASK}-0123456789", {}, {"job": TASK, "ecs.task": TASK}),
        ("/", {"ECS_CONTAINER_METADATA_URI_V4": f"http://169.254.170.2/v4/{TASK}-42"}, {"job": TASK}),
        ("/", {"RAY_JOB_ID": "01000000"}, {"job": "01000000", "ray.job": "01000000"}),
        ("/", {"TORCHELASTIC_RUN_ID": "run-7", "TORCHELASTIC_RESTART_COUNT": "2"},
         {"job": "run-7", "torchrun.restarts": "2"}),
        ("/", {"PET_RDZV_ID": "bert"}, {"job": "bert", "kubeflow.job": "bert"}),
        ("/", {"PBS_JOBID": "9.server"}, {"job": "9.server"}),
    ],
)  # fmt: skip
def test_a_path_or_a_variable_tells_whose_it_is(
    path: str, environment: dict[str, str], wanted: dict[str, str]
) -> None:
    found = dict(with_environment(of_cgroups([path]), environment))
    assert wanted.items() <= found.items()


def test_what_the_scheduler_wrote_counts_more_than_what_a_process_says() -> None:
    known = of_cgroups(["/slurm/uid_5/job_12/step_0"])
    found = dict(with_environment(known, {"SLURM_JOB_ID": "999", "SLURM_STEP_ID": "9", "RAY_JOB_ID": "1"}))
    assert (found["job"], found["slurm.step"], found["ray.job"]) == ("12", "0", "1")


def test_a_launcher_that_was_given_no_name_is_no_job() -> None:
    assert with_environment((), {"TORCHELASTIC_RUN_ID": "none", "SLURM_JOB_ID": ""}) == ()


def test_a_hostile_value_is_cleaned_and_cut() -> None:
    found = dict(with_environment((), {"SLURM_JOB_ID": "\x1b[31m4\n2" + "x" * 5000}))
    assert found["job"].startswith("4 2x")
    assert len(found["job"]) <= tenants.MAX_CHARS
    assert not re.search(r"[\x00-\x1f\x7f-\x9f]", found["job"])


def test_a_real_child_says_whose_it_is_and_nothing_else(start: Start) -> None:
    child = start(
        sys.executable, "-c", WAIT, env={"SLURM_JOB_ID": "31", "SLURM_JOB_USER": "ada", "KEY": "s3"}
    )
    process = processes.read_process(child.pid)
    assert process is not None
    found = dict(process.labels)
    assert (found["job"], found["user"]) == ("31", "ada")
    assert "s3" not in found.values()


def test_users_are_read_from_a_file_and_read_again_when_it_changed(tmp_path: Path) -> None:
    path = tmp_path / "passwd"
    path.write_text("root:x:0:0::/root:/bin/sh\nrubbish\nada:x:1000:1000::/:\n")
    users = Users(path)
    assert (users.name(1000), users.name(7)) == ("ada", None)
    path.write_text("eve:x:7:7::/:\n")
    assert users.name(7) == "eve"
    assert Users(tmp_path / "none").name(0) is None


def test_every_row_is_documented_and_every_word_has_one() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert not [row.key for row in ROWS if f"`{row.key}`" not in page]
    assert not [row.variable for row in ROWS if row.variable and f"`{row.variable}`" not in page]
    assert {key for keys in MEANING.values() for key in keys} <= {row.key for row in ROWS}
