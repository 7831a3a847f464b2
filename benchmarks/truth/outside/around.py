"""What is put around a job: neighbours, limits, disks, servers, a lossy wire.

`set_up` comes before the job starts, `started` when it runs, `bite` when the fault
begins. What is made on the machine is noted first, so that it is always taken away.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.truth import leftovers

if TYPE_CHECKING:
    from benchmarks.truth.outside.scene import Scene

GROUPS = Path("/sys/fs/cgroup")
LARGE_SHARE = 8192
USUAL_SHARES = 4096  # of the whole set; a session of somebody else's has 1024


class Around:
    """Nothing, at any moment."""

    def set_up(self, scene: Scene) -> None:
        pass

    def started(self, scene: Scene) -> None:
        pass

    def bite(self, scene: Scene) -> None:
        pass


def own_group(controller: str) -> Path:
    """Of the player."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return GROUPS / controller / path.lstrip("/")
    raise RuntimeError(f"no cgroup (v1) of {controller}")


@contextlib.contextmanager
def arena(shares: int) -> Iterator[None]:
    """A cgroup of the set's own, so that what else runs here gets less of the cores.

    Within, priorities hold between all: outside of cgroups the kernel may group by session
    (autogroup). A very large share starves the kernel's own threads as soon as the cores are
    full: at 262144 it took minutes to enter a cgroup or to switch a probe on.
    """
    before, group = own_group("cpu"), GROUPS / "cpu" / f"arena-{secrets.token_hex(4)}"
    leftovers.note("group", str(group))
    group.mkdir()
    (group / "cpu.shares").write_text(str(shares))
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        leftovers.remove_group(group)


def group_for(scene: Scene, controller: str) -> Path:
    path = own_group(controller) / f"slice-{secrets.token_hex(4)}"
    leftovers.note("group", str(path))
    path.mkdir()
    scene.ends.callback(leftovers.remove_group, path)
    return path


def put_all(scene: Scene, group: Path) -> None:
    for pid in scene.family():
        (group / "cgroup.procs").write_text(str(pid))


@dataclass
class Commands(Around):
    """Programs of somebody else; `always`: they are there before, too."""

    shell: str  # one command; `exec` keeps its name
    count: int
    cores: tuple[int, ...] = (0, 1)
    nice: int = 0
    always: bool = False

    def set_up(self, scene: Scene) -> None:
        if self.always:
            self._start(scene)

    def bite(self, scene: Scene) -> None:
        if not self.always:
            self._start(scene)

    def _start(self, scene: Scene) -> None:
        for number in range(self.count):
            process = scene.start("nice", "-n", str(self.nice), "sh", "-c", self.shell)
            os.sched_setaffinity(process.pid, {self.cores[number % len(self.cores)]})
            scene.culprits.append(process.pid)


@dataclass
class Pinned(Around):
    """The job has these cores."""

    cores: tuple[int, ...]

    def set_up(self, scene: Scene) -> None:
        scene.before = (*scene.before, "taskset", "-c", ",".join(map(str, self.cores)))


@dataclass
class Renice(Around):
    """Somebody lowers the job's priority."""

    nice: int

    def bite(self, scene: Scene) -> None:
        for pid in scene.family():
            for task in Path(f"/proc/{pid}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(task.name), self.nice)


@dataclass
class Quota(Around):
    """A limit of CPU time, as `docker run --cpus` sets it."""

    cores: float
    period_us: int = 100_000

    def started(self, scene: Scene) -> None:
        self._group = group_for(scene, "cpu")
        (self._group / "cpu.shares").write_text(str(LARGE_SHARE))
        put_all(scene, self._group)

    def bite(self, scene: Scene) -> None:  # noqa: ARG002
        (self._group / "cpu.cfs_period_us").write_text(str(self.period_us))
        (self._group / "cpu.cfs_quota_us").write_text(str(int(self.cores * self.period_us)))


@dataclass
class MemoryLimit(Around):
    """So many megabytes, page cache and all, for the job."""

    megabytes: int

    def set_up(self, scene: Scene) -> None:
        self._group = group_for(scene, "memory")
        scene.groups.append(self._group)

    def bite(self, scene: Scene) -> None:  # noqa: ARG002
        limit = self.megabytes << 20
        for _ in range(200):
            try:
                (self._group / "memory.limit_in_bytes").write_text(str(limit))
                return
            except OSError:
                limit += 2 << 20


@dataclass
class Disk(Around):
    """A file system of its own; its device becomes slow for the job."""

    data_mb: int = 0
    setting: str = "dataset"  # the name under which the job knows the file
    state: bool = False
    read_iops: int = 0
    read_mb_s: float = 0
    write_iops: int = 0
    write_mb_s: float = 0
    limits: list[Path] = field(default_factory=list)

    def set_up(self, scene: Scene) -> None:
        image, point = scene.out / "volume.img", scene.out / "volume"
        leftovers.note("file", str(image))
        leftovers.note("mount", str(point))
        with image.open("wb") as file:
            file.truncate((self.data_mb + 160) << 20)
        scene.ends.callback(image.unlink)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(image)], check=True)
        point.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
        scene.ends.callback(point.rmdir)
        scene.ends.callback(leftovers.unmount, point)
        if self.data_mb:
            self._fill(point / "shard-000.bin")
            scene.first[self.setting] = str(point / "shard-000.bin")
        if self.state:
            scene.first["state"] = str(point)
        device = point.stat().st_dev
        self._device = f"{os.major(device)}:{os.minor(device)}"
        self._group = group_for(scene, "blkio")
        scene.groups.append(self._group)

    def _fill(self, path: Path) -> None:
        block = os.urandom(1 << 20)
        with path.open("wb") as file:
            for _ in range(self.data_mb):
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def bite(self, scene: Scene) -> None:
        limits = {
            "read_iops_device": self.read_iops,
            "read_bps_device": int(self.read_mb_s * 1e6),
            "write_iops_device": self.write_iops,
            "write_bps_device": int(self.write_mb_s * 1e6),
        }
        for name, limit in limits.items():
            if limit:
                file = self._group / f"blkio.throttle.{name}"
                file.write_text(f"{self._device} {limit}")
                scene.ends.callback(file.write_text, f"{self._device} 0")


@dataclass
class Peer(Around):
    """A server on this host that the job asks."""

    name: str
    kind: str
    setting: str
    blamed: bool = True

    def set_up(self, scene: Scene) -> None:
        process = scene.program("recsys/store.py", scene.folder, self.name, self.kind)
        port = scene.read(f"{self.name}.port")
        values = {"udp": [["127.0.0.1", int(port)]] * 2, "metrics": int(port)}
        scene.first[self.setting] = values.get(self.kind, f"127.0.0.1:{port}")
        if self.blamed:
            scene.culprits.append(process.pid)


@dataclass
class Client(Around):
    """Asks the served model."""

    def started(self, scene: Scene) -> None:
        scene.program("serving/client.py", scene.folder)


@dataclass
class SecondJob(Around):
    """Another program on the same device."""

    name: str

    def set_up(self, scene: Scene) -> None:
        scene.environment["INGERO_STUB_DEVICE"] = str(scene.folder / "device")

    def bite(self, scene: Scene) -> None:
        scene.culprits.append(scene.program("neighbours/other_gpu_job.py", self.name).pid)


@dataclass
class Devices(Around):
    """So many devices on this machine."""

    count: int

    def set_up(self, scene: Scene) -> None:
        scene.environment["INGERO_STUB_DEVICE"] = str(scene.folder / "device")
        scene.environment["INGERO_STUB_DEVICES"] = str(self.count)


@dataclass
class RankBlamed(Around):
    """One of the ranks is to be named."""

    rank: int

    def bite(self, scene: Scene) -> None:
        scene.culprits.append(int(scene.read(f"rank{self.rank}.pid")))


@dataclass
class Shipper(Around):
    """The job's output goes through a pipe to a program that ships it."""

    name: str

    def set_up(self, scene: Scene) -> None:
        reader = scene.program("neighbours/reader.py", scene.folder, self.name, stdin=subprocess.PIPE)
        scene.stdout = reader.stdin
        scene.culprits.append(reader.pid)


@dataclass
class Wire(Around):
    """The job and the store it asks in two network namespaces; then packets are lost."""

    lost_per_mille: int
    name: str = "featstore"

    def set_up(self, scene: Scene) -> None:
        word = secrets.token_hex(3)
        here, there = f"ow{word}a", f"ow{word}b"
        for each in (here, there):
            leftovers.note("namespace", each)
            run("ip", "netns", "add", each)
            scene.ends.callback(leftovers.remove_namespace, each)
        run("ip", "link", "add", here, "netns", here, "type", "veth", "peer", there, "netns", there)
        run("ip", "-n", here, "link", "set", here, "gso_max_segs", "1")
        for each, address in ((here, "10.91.3.1/24"), (there, "10.91.3.2/24")):
            run("ip", "-n", each, "addr", "add", address, "dev", each)
            run("ip", "-n", each, "link", "set", each, "up")
            run("ip", "-n", each, "link", "set", "lo", "up")
        inside = ("nsenter", f"--net=/run/netns/{there}")
        scene.program("recsys/store.py", scene.folder, self.name, "tcp", "10.91.3.2:7400", before=inside)
        scene.read(f"{self.name}.port")
        scene.before = ("nsenter", f"--net=/run/netns/{here}", *scene.before)
        scene.first["store"] = "10.91.3.2:7400"
        self._there = there

    def bite(self, scene: Scene) -> None:  # noqa: ARG002
        nft = ("ip", "netns", "exec", self._there, "nft")
        run(*nft, "add table inet wire")
        run(*nft, "add chain inet wire in { type filter hook input priority 0 ; }")
        run(*nft, f"add rule inet wire in tcp dport 7400 numgen random mod 1000 < {self.lost_per_mille} drop")


def run(*words: str) -> None:
    subprocess.run(words, check=True)
