"""Who is to be traced: the flags of `trace` as a question about a process."""

from __future__ import annotations

from pathlib import Path

from ingero.discover import containers, processes
from ingero.errors import TargetError
from ingero.model.options import TraceOptions
from ingero.model.window import Container, Process


class Scope:
    """Answers whether a process found now or later belongs to the trace."""

    def __init__(self, options: TraceOptions) -> None:
        self._uid = processes.user_id(options.user) if options.user else None
        self._container = options.container
        self._cgroup = _below_mount(options.cgroup) if options.cgroup else None
        self.pids = options.pids
        self.fixed = bool(options.pids or options.command)  # only these and their descendants

    @property
    def everything(self) -> bool:
        """No filter: any process that makes a traced call is a target."""
        return not (self.fixed or self._uid is not None or self._container or self._cgroup)

    def admits(self, process: Process, container: Container) -> bool:
        if self.fixed:
            return False  # announced one by one, and by the kernel for their children
        if self._uid is not None and process.uid != self._uid:
            return False
        if self._container and not containers.belongs(container, self._container):
            return False
        path = container.cgroup_path
        return not (
            self._cgroup and path != self._cgroup and not path.startswith(self._cgroup.rstrip("/") + "/")
        )

    def named(self) -> list[int]:
        """The processes asked for by number, with their descendants; they must exist."""
        found: list[int] = []
        for pid in self.pids:
            stat = processes.read_stat(pid)
            if stat is None:
                raise processes.missing_process(pid)
            if stat.kernel:
                raise TargetError(
                    f"process {pid} ({stat.comm}) is a thread of the kernel",
                    hint="It makes no CUDA calls. Name the process of the job; `ingero check` lists them.",
                )
            found.extend([pid, *processes.descendants(pid)])
        return list(dict.fromkeys(found))


def _below_mount(path: Path) -> str:
    """A cgroup given as a directory or as it stands in /proc/PID/cgroup."""
    for mount in processes.cgroup_mounts():
        if str(path).startswith(mount.point.rstrip("/") + "/"):
            return "/" + str(path)[len(mount.point) :].strip("/")
    if not str(path).startswith("/"):
        raise TargetError(f"no such cgroup: {path}", hint="Give its path below /sys/fs/cgroup.")
    return str(path)
