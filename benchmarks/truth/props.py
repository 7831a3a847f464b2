"""What is put around a job: things both runs have, and what turns them into a fault.

A prop has up to four moments: `set_up` before the job starts, `job_started` when it
waits for its first line, `bite` when the fault begins (never in the healthy twin), and
`happened`, which says afterwards what the machine itself counted of it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.truth import leftovers
from benchmarks.truth.stage import GROUPS, Stage, descendants, enter

MANY_SHARES = 8192  # of a core, so that only what belongs to the case counts


class Prop:
    """Does nothing at any moment."""

    def set_up(self, stage: Stage) -> None:
        pass

    def job_started(self, stage: Stage) -> None:
        pass

    def bite(self, stage: Stage) -> None:
        pass

    def happened(self, stage: Stage) -> str:  # noqa: ARG002
        return ""


@dataclass
class Cores(Prop):
    """The job may run on these only."""

    cores: tuple[int, ...]

    def job_started(self, stage: Stage) -> None:
        os.sched_setaffinity(stage.pid, self.cores)


@dataclass
class Hogs(Prop):
    """Programs that want a core all the time."""

    commands: tuple[tuple[str, ...], ...]
    cores: tuple[int, ...]
    nice: int = 0
    groups: list[Path] = field(default_factory=list)

    def bite(self, stage: Stage) -> None:
        for command in self.commands:
            process = stage.start("nice", "-n", str(self.nice), *command)
            os.sched_setaffinity(process.pid, self.cores)
            for group in self.groups:
                enter(group, process.pid)
            stage.culprits.append(process.pid)


@dataclass
class Neighbours(Hogs):
    """Hogs in another container than the job's, with so many times its share of the core."""

    shares: float = 1

    def set_up(self, stage: Stage) -> None:
        ours, theirs = secrets.token_hex(32), secrets.token_hex(32)
        controllers = ("cpu", "memory", "pids")
        self.job_groups = [stage.group(each, f"docker/{ours}") for each in controllers]
        self.groups = [stage.group(each, f"docker/{theirs}") for each in controllers]
        (self.job_groups[0] / "cpu.shares").write_text(str(MANY_SHARES))
        (self.groups[0] / "cpu.shares").write_text(str(int(MANY_SHARES * self.shares)))

    def job_started(self, stage: Stage) -> None:
        for group in self.job_groups:
            enter(group, stage.pid)


@dataclass
class Quota(Prop):
    """A CPU limit as containers have them."""

    cores: float
    period_us: int = 100_000

    def set_up(self, stage: Stage) -> None:
        self._group = stage.group("cpu")
        (self._group / "cpu.shares").write_text(str(MANY_SHARES))

    def job_started(self, stage: Stage) -> None:
        enter(self._group, stage.pid)

    def bite(self, stage: Stage) -> None:  # noqa: ARG002
        (self._group / "cpu.cfs_period_us").write_text(str(self.period_us))
        (self._group / "cpu.cfs_quota_us").write_text(str(int(self.period_us * self.cores)))

    def happened(self, stage: Stage) -> str:  # noqa: ARG002
        stat = dict(line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        return f"throttled {stat['nr_throttled']} x"


@dataclass
class WorkersQuota(Quota):
    """The limit holds for the job's workers alone, not for the thread that feeds the device."""

    def job_started(self, stage: Stage) -> None:
        pass

    def bite(self, stage: Stage) -> None:
        for pid in stage.book.hired:
            enter(self._group, pid)
        super().bite(stage)


@dataclass
class Disk(Prop):
    """A file system with a journal; later its device is slow for the job."""

    megabytes: int = 512
    read_iops: int = 0
    write_iops: int = 0
    write_bytes_per_s: int = 0
    dataset_megabytes: int = 0
    cache_megabytes: int = 0
    for_everybody: bool = False  # writing back is the kernel's own doing, in no group
    for_both: bool = False  # the job and the kernel's journal

    def set_up(self, stage: Stage) -> None:
        image, point = stage.db_folder / "disk.img", stage.db_folder / "data"
        leftovers.note("file", str(image))
        leftovers.note("mount", str(point))
        with image.open("wb") as file:
            file.truncate(self.megabytes << 20)
        stage.ends.callback(image.unlink)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0", str(image)], check=True)
        point.mkdir(exist_ok=True)
        subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
        stage.ends.callback(leftovers.unmount, point)
        for name, megabytes in (("samples.bin", self.dataset_megabytes), ("cache.bin", self.cache_megabytes)):
            if megabytes:
                fill(point / name, megabytes)
        stage.settings |= {
            "dataset": str(point / "samples.bin"),
            "checkpoint": str(point / "model.bin"),
            "scratch": str(point / "cache.bin"),
            "notes": str(point / "notes.jsonl"),
        }
        device = point.stat().st_dev
        self._device = f"{os.major(device)}:{os.minor(device)}"
        self._group = stage.group("blkio")

    def job_started(self, stage: Stage) -> None:
        enter(self._group, stage.pid)

    def bite(self, stage: Stage) -> None:
        groups = [self._group] * (not self.for_everybody)
        groups += [GROUPS / "blkio"] * (self.for_everybody or self.for_both)
        limits = {
            "read_iops_device": self.read_iops,
            "write_iops_device": self.write_iops,
            "write_bps_device": self.write_bytes_per_s,
        }
        for name, limit in limits.items():
            for file in [group / f"blkio.throttle.{name}" for group in groups if limit]:
                file.write_text(f"{self._device} {limit}")
                stage.ends.callback(file.write_text, f"{self._device} 0")


def fill(path: Path, megabytes: int) -> None:
    block = os.urandom(1 << 20)
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@dataclass
class MemoryLimit(Prop):
    """A memory limit as containers have them: so much more than the job uses when it comes."""

    room_megabytes: int

    def set_up(self, stage: Stage) -> None:
        self._group = stage.group("memory")

    def job_started(self, stage: Stage) -> None:
        enter(self._group, stage.pid)

    def bite(self, stage: Stage) -> None:  # noqa: ARG002
        used = int((self._group / "memory.usage_in_bytes").read_text())
        stat = dict(line.split() for line in (self._group / "memory.stat").read_text().splitlines())
        kept = used - int(stat.get("total_inactive_file", 0)) - int(stat.get("total_active_file", 0))
        self._limit(kept + (self.room_megabytes << 20))

    def _limit(self, limit_bytes: int) -> None:
        """Refused while more is in use; each try makes the kernel take some away."""
        for _ in range(50):
            try:
                (self._group / "memory.limit_in_bytes").write_text(str(limit_bytes))
                return
            except OSError:
                limit_bytes += 1 << 20

    def happened(self, stage: Stage) -> str:  # noqa: ARG002
        control = dict(line.split() for line in (self._group / "memory.oom_control").read_text().splitlines())
        hits = (self._group / "memory.failcnt").read_text().strip()
        return f"limit hit {hits} x, killed {control['oom_kill']}"


@dataclass
class Server(Prop):
    """A server on this host that the job asks in each step, and that is slow later."""

    tcp: bool
    sleep_ms: float = 0
    cpu_ms: float = 0
    port: int = 0

    def set_up(self, stage: Stage) -> None:
        address = f"127.0.0.1:{self.port}" if self.tcp else str(stage.folder / "features")
        words = stage.python("features", address, stage.book_path, self.sleep_ms, self.cpu_ms)
        self._process = stage.start(*words, ready=True)
        stage.settings["server"] = address

    def bite(self, stage: Stage) -> None:
        stage.culprits.append(self._process.pid)


@dataclass
class SecondServer(Prop):
    """One more server that the job asks; later it is slow each so many requests."""

    sleep_ms: float
    every: int

    def set_up(self, stage: Stage) -> None:
        address = stage.folder / "labels"
        words = stage.python("features", address, stage.book_path, self.sleep_ms, 0, self.every)
        self._process = stage.start(*words, ready=True)
        stage.settings["second_server"] = str(address)

    def bite(self, stage: Stage) -> None:
        stage.culprits.append(self._process.pid)


class QuickServer(Server):
    """Never to blame."""

    def bite(self, stage: Stage) -> None:
        pass


@dataclass
class Wire(Prop):
    """The job and its server in two network namespaces; later packets between them are lost."""

    loss_per_mille: int
    port: int = 7070

    def set_up(self, stage: Stage) -> None:
        word = secrets.token_hex(3)
        self._here, self._there = f"tr{word}a", f"tr{word}b"
        for name in (self._here, self._there):
            leftovers.note("namespace", name)
            run("ip netns add", name)
            stage.ends.callback(leftovers.remove_namespace, name)
        here, there = self._here, self._there
        run(f"ip link add {here} netns {here} type veth peer {there} netns {there}")
        run(f"ip -n {here} link set {here} gso_max_segs 1")  # packets as a wire has them
        for name, address in ((here, "10.77.7.1/24"), (there, "10.77.7.2/24")):
            run(f"ip -n {name} addr add {address} dev {name}")
            run(f"ip -n {name} link set {name} up")
            run(f"ip -n {name} link set lo up")
        address = f"10.77.7.2:{self.port}"
        words = stage.python("features", address, stage.book_path, 0, 0)
        stage.start("nsenter", f"--net=/run/netns/{there}", *words, ready=True)
        stage.before = ("nsenter", f"--net=/run/netns/{here}")
        stage.settings["server"] = address

    def bite(self, stage: Stage) -> None:  # noqa: ARG002
        within = f"ip netns exec {self._there} nft"
        run(f"{within} add table inet lossy")
        run(f"{within} add chain inet lossy in", "{ type filter hook input priority 0 ; }")
        run(f"{within} add rule inet lossy in tcp dport {self.port}",
            f"numgen random mod 1000 < {self.loss_per_mille} drop")  # fmt: skip

    def happened(self, stage: Stage) -> str:
        fields = Path(f"/proc/{stage.pid}/net/snmp").read_text().splitlines()
        names, values = (line.split() for line in fields if line.startswith("Tcp:"))
        return f"retransmitted {values[names.index('RetransSegs')]} segments"


def run(words: str, *more: str) -> None:
    subprocess.run([*words.split(), *[word for part in more for word in part.split()]], check=True)


@dataclass
class OtherJob(Prop):
    """A second job on the same device."""

    settings: dict[str, object]
    script: str = "train"

    def set_up(self, stage: Stage) -> None:
        stage.environment["INGERO_STUB_DEVICE"] = str(stage.folder / "device")

    def bite(self, stage: Stage) -> None:
        folder = stage.folder / "other"
        folder.mkdir()
        other = Stage(folder, stage.db_folder, stage.ends, environment=stage.environment)
        other.start_job(self.script, self.settings, {})
        other.go()
        stage.culprits.append(other.pid)


@dataclass
class Ranks(Prop):
    """Several ranks on as many devices of one machine; one of them is to blame."""

    ranks: int
    blamed: int = -1

    def set_up(self, stage: Stage) -> None:
        stage.environment["INGERO_STUB_DEVICE"] = str(stage.folder / "device")
        stage.environment["INGERO_STUB_DEVICES"] = str(self.ranks)

    def bite(self, stage: Stage) -> None:
        stage.until(lambda: stage.book.steps > 3, "the ranks trained")
        stage.culprits += [pid for pid in descendants(stage.pid) if rank(pid) == self.blamed]


def rank(pid: int) -> int:
    for word in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
        if word.startswith(b"RANK="):
            return int(word[5:])
    return -1


class JobBlamed(Prop):
    """The job itself is to be named."""

    def bite(self, stage: Stage) -> None:
        stage.culprits.append(stage.pid)


@dataclass
class WorkerBlamed(Prop):
    """One of the job's workers is to be named, and not the others."""

    number: int

    def happened(self, stage: Stage) -> str:
        stage.culprits.append(stage.book.hired[self.number])
        return ""


class WorkersBlamed(Prop):
    """The job's own worker processes are to be named, those that died among them."""

    def happened(self, stage: Stage) -> str:
        stage.culprits += stage.book.hired
        return ""


@dataclass
class Stops(Prop):
    """The job is stopped and continued, as a debugger does."""

    seconds: float
    every_s: float

    def job_started(self, stage: Stage) -> None:
        over = threading.Event()

        def stop_now_and_then() -> None:
            while not over.wait(self.every_s):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(stage.pid, signal.SIGSTOP)
                    over.wait(self.seconds)
                    os.kill(stage.pid, signal.SIGCONT)

        thread = threading.Thread(target=stop_now_and_then)
        thread.start()
        stage.ends.callback(thread.join)
        stage.ends.callback(over.set)


@dataclass
class Writer(Prop):
    """Somebody else writes to the disk all the time."""

    megabytes: int = 64

    def job_started(self, stage: Stage) -> None:
        target = stage.db_folder / "backup.img"
        leftovers.note("file", str(target))
        words = f"while :; do dd if=/dev/zero of={target} bs=1M count={self.megabytes} conv=fsync; done"
        stage.ends.callback(target.unlink, missing_ok=True)
        stage.start("sh", "-c", words, stderr=subprocess.DEVNULL)


@dataclass
class Client(Prop):
    """Somebody asks a served model, in bursts."""

    burst: int
    rest_ms: float

    def set_up(self, stage: Stage) -> None:
        stage.settings["server"] = str(stage.folder / "model")

    def job_started(self, stage: Stage) -> None:
        stage.start(*stage.python("client", stage.folder / "model", self.burst, self.rest_ms))


def happened(props: Sequence[Prop], stage: Stage) -> str:
    said = [prop.happened(stage) for prop in props]
    if stage.book.troubles:
        said.append(f"{stage.book.troubles} errors met")
    return ", ".join(filter(None, said))
