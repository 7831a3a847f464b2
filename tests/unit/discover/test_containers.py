"""Cgroup paths as runtimes really write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ingero.discover import containers
from ingero.discover.containers import Mount, describe, identify, parse_cgroups, parse_mounts
from ingero.discover.processes import cgroup_mounts
from ingero.model.window import Container

A = "4cf4ba2e1b9f4cbb8f6a1c8c8c2f5b7a" * 2
B = "0123456789abcdef" * 4
POD = "2c48913c-b29f-11e7-9350-020968147796"
POD_ = POD.replace("-", "_")
STATIC_POD = "d2b4e2c3f0a94f7a8a1f9a4f5a3f2e1d"
TASK = "1234567890abcdef1234567890abcdef"

SAMPLES = [
    (f"/docker/{A}", A, "docker", None, None),
    (f"/system.slice/docker-{A}.scope", A, "docker", None, None),
    (f"/system.slice/docker-{A}.scope/init", A, "docker", None, None),
    (f"/user.slice/user-1000.slice/user@1000.service/docker.service/docker/{A}", A, "docker", None, None),
    (f"/docker/{A}/docker/{B}", B, "docker", None, None),
    (f"/actions_job/{A}", A, "docker", None, None),
    (f"/kubepods/besteffort/pod{POD}/{A}", A, None, POD, None),
    (f"/kubepods/burstable/pod{STATIC_POD}/{A}", A, None, STATIC_POD, None),
    (f"/kubepods/pod{POD}/{A}", A, None, POD, None),
    (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{POD_}.slice/cri-containerd-{A}.scope",
        A,
        "containerd",
        POD,
        None,
    ),
    (f"/kubepods.slice/kubepods-pod{POD_}.slice/docker-{A}.scope", A, "docker", POD, None),
    (
        f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{POD_}.slice/crio-{A}.scope/container",
        A,
        "cri-o",
        POD,
        None,
    ),
    (
        f"/system.slice/containerd.service/kubepods-burstable-pod{POD_}.slice:cri-containerd:{A}",
        A,
        "containerd",
        POD,
        None,
    ),
    (
        f"/docker/{B}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{POD_}.slice/cri-containerd-{A}.scope",
        A,
        "containerd",
        POD,
        None,
    ),
    (f"/system.slice/nerdctl-{A}.scope", A, "containerd", None, None),
    (f"/default/{A}", A, "containerd", None, None),
    (f"/machine.slice/libpod-{A}.scope", A, "podman", None, None),
    (f"/machine.slice/libpod-{A}.scope/container", A, "podman", None, None),
    (f"/libpod_parent/libpod-{A}", A, "podman", None, None),
    (
        f"/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{A}.scope/container",
        A,
        "podman",
        None,
        None,
    ),
    (f"/machine.slice/libpod-conmon-{A}.scope", None, None, None, None),
    ("/lxc/web", "web", "lxc", None, None),
    ("/lxc.payload.web-1/system.slice/cron.service", "web-1", "lxc", None, None),
    ("/lxc.payload/web", "web", "lxc", None, None),
    ("/machine.slice/machine-debian.scope", "debian", "systemd-nspawn", None, None),
    ("/machine.slice/machine-my\\x2dtree.scope/payload", "my-tree", "systemd-nspawn", None, None),
    ("/machine.slice/systemd-nspawn@tree.service/payload", "tree", "systemd-nspawn", None, None),
    ("/machine.slice/machine-qemu\\x2d1\\x2dguest.scope", None, None, None, None),
    (f"/ecs/{TASK}/{A}", A, "docker", None, TASK),
    (f"/ecs/cluster/{TASK}/{A}", A, "docker", None, TASK),
    (f"/ecs/{TASK}/{TASK}-2531612879", f"{TASK}-2531612879", "containerd", None, TASK),
    (
        "/user.slice/user-1000.slice/user@1000.service/app.slice/apptainer-4242.scope",
        "4242",
        "apptainer",
        None,
        None,
    ),
    ("/slurm/uid_1000/job_123/step_0/task_0", None, None, None, "123.0"),
    ("/slurm_node1/uid_1000/job_77/step_batch", None, None, None, "77.batch"),
    ("/system.slice/slurmstepd.scope/job_9/step_extern/user/task_special", None, None, None, "9.extern"),
    ("/system.slice/slurmstepd.scope/job_9", None, None, None, "9"),
    ("/", None, None, None, None),
    ("", None, None, None, None),
    ("/user.slice/user-0.slice/session-1.scope", None, None, None, None),
    ("/system.slice/docker.service", None, None, None, None),
    (f"/system.slice/docker-{A[:60]}.scope", None, None, None, None),
    (f"/docker/{A}0", None, None, None, None),
]


@pytest.mark.parametrize("path, container_id, runtime, pod, job", SAMPLES)
def test_a_cgroup_path_tells_who_runs_there(
    path: str, container_id: str | None, runtime: str | None, pod: str | None, job: str | None
) -> None:
    assert identify(path) == containers.Identity(container_id, runtime, pod, job)


HYBRID = f"""\
12:pids:/docker/{A}
11:cpu,cpuacct:/docker/{A}
4:memory:/docker/{A}
1:name=systemd:/docker/{A}
0::/
"""


def test_v1_lines_name_the_container_when_v2_is_only_the_root() -> None:
    paths = parse_cgroups(HYBRID)
    assert paths["cpuacct"] == f"/docker/{A}"
    assert containers.chosen_cgroup(paths) == ("memory", f"/docker/{A}")
    assert describe(HYBRID, []).container_id == A


def test_the_v2_path_comes_first_where_there_is_one() -> None:
    assert containers.chosen_cgroup(parse_cgroups(f"4:memory:/x\n0::/docker/{A}\n")) == ("", f"/docker/{A}")


def test_v1_controllers_are_asked_in_the_order_of_the_probes() -> None:
    assert containers.chosen_cgroup({"": "/", "memory": "/", "cpu": "/b", "pids": "/c"}) == ("cpu", "/b")


def test_a_container_only_another_hierarchy_names_is_found() -> None:
    text = f"5:memory:/limits\n1:name=systemd:/docker/{A}\n0::/\n"
    found = describe(text, [])
    assert (found.cgroup_path, found.container_id, found.runtime) == ("/limits", A, "docker")


def test_colons_in_a_path_are_kept_and_rubbish_is_skipped() -> None:
    assert parse_cgroups("0::/a:b:c\nrubbish\n\nx:y:/z\n") == {"": "/a:b:c"}


def test_mounts_are_read_with_their_escapes() -> None:
    text = (
        "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n"
        "41 31 0:38 /docker/x /sys/fs/my\\040cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"
        "42 31 0:39 / /data rw - ext4 /dev/sda rw\n"
    )
    assert parse_mounts(text) == [
        Mount("/sys/fs/cgroup/memory", "/", frozenset({"rw", "memory"})),
        Mount("/sys/fs/my cgroup", "/docker/x", frozenset()),
    ]


def test_the_cgroup_id_is_the_inode_of_the_directory(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    mounts = [Mount(str(tmp_path), "/outer", frozenset())]
    assert containers.cgroup_id("", "/outer/a/b", mounts) == (tmp_path / "a" / "b").stat().st_ino
    assert containers.cgroup_id("", "/elsewhere", mounts) == 0
    assert containers.cgroup_id("", "/outer/../../etc", mounts) == 0
    assert containers.cgroup_id("memory", "/outer/a", mounts) == 0


def test_our_own_cgroup_has_an_id_where_cgroups_are_mounted() -> None:
    mounts = cgroup_mounts()
    if not mounts:
        pytest.skip("no cgroups are mounted here")
    text = Path(f"/proc/{os.getpid()}/cgroup").read_text()
    assert describe(text, mounts).cgroup_id > 0


def test_users_may_write_the_short_id_but_not_a_few_letters() -> None:
    container = Container(1, "/docker/x", A, "docker")
    assert containers.belongs(container, A)
    assert containers.belongs(container, A[:12])
    assert not containers.belongs(container, A[:2])
    assert not containers.belongs(container, "")
    assert not containers.belongs(Container(1, "/"), "abcd")
    assert containers.belongs(Container(1, "/lxc/w", "w", "lxc"), "w")


def test_a_mount_with_a_zero_in_its_name_has_no_id() -> None:
    (mount,) = parse_mounts("31 25 0:27 / /sys\\000x rw - cgroup2 cgroup2 rw\n")
    assert containers.cgroup_id("", "/a", [mount]) == 0
