"""Which container, pod and batch job a process belongs to, read from its cgroup paths.

The deepest match wins: a container may run inside another (kind, docker-in-docker).
The cgroup id is the one the probes report: the inode of the v2 directory unless the
process sits in the v2 root (hybrid hosts), then that of a v1 directory.
Names of pods and containers are not known here: kubelet.py and container_names.py ask for them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ingero.model.window import Container
from ingero.units import visible

V1_CONTROLLERS = ("memory", "cpu", "pids")  # the order in which the probes look too

_HEX64 = r"[0-9a-f]{64}"
# (runtime, pattern); group "id" names the container.
_RUNTIMES: tuple[tuple[str | None, re.Pattern[str]], ...] = tuple(
    (runtime, re.compile(pattern))
    for runtime, pattern in (
        ("docker", rf"/docker/(?P<id>{_HEX64})(?=/|$)"),
        ("docker", rf"/docker-(?P<id>{_HEX64})\.scope(?=/|$)"),
        ("docker", rf"/ecs/(?:[^/]+/)+(?P<id>{_HEX64})(?=/|$)"),
        ("containerd", r"/ecs/(?:[^/]+/)*(?P<id>[0-9a-f]{32}-[0-9]+)(?=/|$)"),
        ("docker", rf"/actions_job/(?P<id>{_HEX64})(?=/|$)"),
        ("containerd", rf"[/:](?:cri-containerd|nerdctl)[-:](?P<id>{_HEX64})(?:\.scope)?(?=/|$)"),
        ("containerd", rf"/(?:default|k8s\.io|moby)/(?P<id>{_HEX64})(?=/|$)"),
        ("cri-o", rf"[/:]crio[-:](?P<id>{_HEX64})(?:\.scope)?(?=/|$)"),
        ("podman", rf"/libpod-(?P<id>{_HEX64})(?:\.scope)?(?=/|$)"),
        ("lxc", r"/lxc(?:\.payload)?[./](?P<id>[^/]+)(?=/|$)"),
        ("systemd-nspawn", r"/machine\.slice/machine-(?!qemu)(?P<id>[^/]+)\.scope(?=/|$)"),
        ("systemd-nspawn", r"/systemd-nspawn@(?P<id>[^/]+)\.service(?=/|$)"),
        ("apptainer", r"/(?:apptainer|singularity)-(?P<id>[0-9]+)\.scope(?=/|$)"),
        (None, rf"/(?P<id>{_HEX64})(?=/|$)"),  # cgroupfs driver: the path does not say whose
    )
)
_POD = re.compile(r"(?:/|-)pod(?P<uid>[0-9a-f]{8}(?:[-_]?[0-9a-f]{4}){3}[-_]?[0-9a-f]{12})(?=[/.:]|$)")
_SLURM = re.compile(r"/job_(?P<job>[0-9]+)(?:/step_(?P<step>[^/]+))?(?=/|$)")
_ECS = re.compile(r"/ecs/(?:[^/]+/)*?(?P<task>[0-9a-f]{32})(?=[/-]|$)")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")


@dataclass(frozen=True, slots=True)
class Identity:
    """What a cgroup path says about who runs in it."""

    container_id: str | None = None
    runtime: str | None = None
    pod_uid: str | None = None
    job: str | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a cgroup hierarchy is mounted, and which part of it."""

    point: str
    root: str
    controllers: frozenset[str]  # empty: v2


def identify(path: str) -> Identity:
    """Container id, runtime, pod uid and batch job of one cgroup path."""
    runtime, container_id = _container_in(path)
    pods = list(_POD.finditer(path))
    return Identity(container_id, runtime, _dashed(pods[-1]["uid"]) if pods else None, _job_in(path))


def _container_in(path: str) -> tuple[str | None, str | None]:
    best: tuple[int, int, str | None, str] | None = None
    for rank, (runtime, pattern) in enumerate(_RUNTIMES):
        for match in pattern.finditer(path):
            # deepest first, and among patterns for one place the more telling one
            candidate = (match.start("id"), -rank, runtime, match["id"])
            if best is None or candidate[:2] > best[:2]:
                best = candidate
    if best is None:
        return None, None
    return best[2], visible(_ESCAPED.sub(lambda found: chr(int(found[1], 16)), best[3]))


def _dashed(uid: str) -> str:
    plain = uid.replace("_", "").replace("-", "")
    if plain == uid:  # static pods carry a hash without dashes
        return uid
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def _job_in(path: str) -> str | None:
    slurm = _SLURM.search(path)
    if slurm:
        return visible(f"{slurm['job']}.{slurm['step']}") if slurm["step"] else slurm["job"]
    task = _ECS.search(path)
    return task["task"] if task else None


def parse_cgroups(text: str) -> dict[str, str]:
    """`/proc/PID/cgroup` as controller -> path; the v2 line is under the empty name."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        number, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon and number.isdigit():
            for controller in controllers.split(","):
                paths.setdefault(controller, path.removesuffix(" (deleted)"))
    return paths


def parse_mounts(mountinfo: str) -> list[Mount]:
    """Cgroup mounts of /proc/self/mountinfo."""
    mounts = []
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if not dash or len(left) < 5 or len(right) < 3 or right[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(right[-1].split(",")) if right[0] == "cgroup" else frozenset()
        mounts.append(Mount(_octal(left[4]), _octal(left[3]), controllers))
    return mounts


def _octal(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), text)


def chosen_cgroup(paths: dict[str, str]) -> tuple[str, str]:
    """(controller, path) that identifies the process; the controller is empty for v2."""
    if paths.get("", "/") != "/":
        return "", paths[""]
    for controller in V1_CONTROLLERS:
        if paths.get(controller, "/") != "/":
            return controller, paths[controller]
    return next(((name, paths[name]) for name in ("", *V1_CONTROLLERS) if name in paths), ("", "/"))


def cgroup_id(controller: str, path: str, mounts: Iterable[Mount]) -> int:
    """Inode of the cgroup's directory; 0 where it cannot be seen from here."""
    for mount in mounts:
        if (controller in mount.controllers) if controller else not mount.controllers:
            inside = _below(path, mount.root)
            if inside is not None:
                try:
                    return Path(mount.point, inside).stat().st_ino
                except (OSError, ValueError):  # ValueError: a name with a zero in it
                    continue
    return 0


def _below(path: str, root: str) -> str | None:
    pure = PurePosixPath(path)
    if ".." in pure.parts:  # above the root of our cgroup namespace: not visible here
        return None
    return str(pure.relative_to(root)) if pure.is_relative_to(root) else None


def describe(cgroup_text: str, mounts: Iterable[Mount]) -> Container:
    """What `/proc/PID/cgroup` says, with the id that records carry."""
    paths = parse_cgroups(cgroup_text)
    controller, path = chosen_cgroup(paths)
    identities = [identify(each) for each in dict.fromkeys((path, *paths.values()))]
    named = next((each for each in identities if each.container_id), identities[0])
    job = next((each.job for each in identities if each.job), None)
    number = cgroup_id(controller, path, mounts)
    uid = next((each.pod_uid for each in identities if each.pod_uid), None)
    return Container(number, visible(path), named.container_id, named.runtime, job=job, pod_uid=uid)


def belongs(container: Container, wanted: str) -> bool:
    """Whether a user who wrote this container id, or a prefix of it as runtimes print, means this one."""
    if not wanted or container.container_id is None:
        return False
    if container.container_id == wanted:
        return True
    return (
        len(wanted) >= 4 and container.container_id.startswith(wanted) and len(container.container_id) == 64
    )
