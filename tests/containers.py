"""Real containers of the tests: Podman runs them, nothing is fetched, what is in them is of this machine.

Podman starts them with runc, because crun refuses hosts that mix both versions of cgroups. What is kept
lies in a folder of the caller's; other containers of Podman here are neither seen nor touched.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import subprocess
import tarfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

from ingero.scenarios import cuda
from tests.conftest import require
from tests.ebpf.tracing import WORKLOADS, Workload, workload

TOOLS = ("podman", "runc")
# Limits as this machine has them: without CAP_SYS_RESOURCE nobody can raise them.
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
JOB, INSIDE = "localhost/ingero-test-job", "/opt/job"
CGROUPS = Path("/sys/fs/cgroup")
LIBRARIES = ("libcudart.so.12", "libcuda.so.1", "libnccl.so.2")


def need(*more: str) -> None:
    """Skip where it cannot be had; INGERO_MUST_RUN=containers makes that a failure."""
    require("containers", [f"no {each}" for each in (*TOOLS, *more) if shutil.which(each) is None])


@dataclass(frozen=True)
class Container:
    """One that runs; `job` is what its program says and hears, `pid` its process as seen from here."""

    name: str
    number: str
    pid: int
    job: Workload


@dataclass(frozen=True)
class Podman:
    """Images and containers below a folder, where it also runs: it writes beside itself when memory ends."""

    kept: Path

    @property
    def run(self) -> Path:
        """Podman takes 50 characters at most, and always the same folder with the same images."""
        folder = self.kept / "run"
        return folder if len(str(folder)) <= 50 else Path(f"/run/ingero-test-{crc32(bytes(self.kept)):08x}")

    @property
    def words(self) -> tuple[str, ...]:
        return (
            "podman", "--root", str(self.kept / "store"), "--runroot", str(self.run),
            "--storage-driver", "overlay", "--cgroup-manager", "cgroupfs", "--runtime", "runc",
        )  # fmt: skip

    def do(self, *words: str, given: bytes | None = None) -> str:
        done = subprocess.run([*self.words, *words], input=given, capture_output=True, cwd=self.kept)
        assert done.returncode == 0, f"podman {words[0]}: {done.stderr.decode(errors='replace')[-4000:]}"
        return done.stdout.decode().strip()

    def images(self) -> list[str]:
        return self.do("images", "--format", "{{.Repository}}:{{.Tag}}").split()

    def make_job_image(self, program: Path) -> None:
        """The program, the stub's libraries beside it and those of the C library; nothing else at all."""
        self.do("import", "--quiet", "-", JOB, given=packed(program))

    @contextmanager
    def running(self, name: str, *command: str, options: Iterable[str] = ()) -> Iterator[Container]:
        """A container of the job image whose program has said that it is ready."""
        words = ("run", "--interactive", "--name", name, "--network", "none", *LIMITS, *options, JOB)
        with workload(*self.words, *words, f"{INSIDE}/job", *command, cwd=self.kept) as job:
            try:
                (told,) = json.loads(self.do("inspect", name))
                yield Container(name, told["Id"], told["State"]["Pid"], job)
            finally:  # while its input is open: Podman stumbles over one that ends by itself just then
                self.remove(name)

    def remove(self, name: str) -> None:
        self.do("rm", "--force", "--time", "0", "--ignore", name)

    def forget(self) -> None:
        """Containers, images and what they keep mounted."""
        self.do("rm", "--all", "--force", "--time", "0")
        self.do("rmi", "--all", "--force")
        for folder in (self.kept, self.run):
            shutil.rmtree(folder, ignore_errors=True)


def compiled_job(folder: Path) -> Path:
    """The program that runs in them; it looks for its libraries where they lie inside."""
    stub, program = cuda.stub_dir(), folder / "job"
    linked = [f"-l:{name}" for name in ("libcudart.so.12", "libnccl.so.2")]
    subprocess.run(
        ["gcc", "-O2", "-I", WORKLOADS, WORKLOADS / "steps.c", "-o", program, "-L", stub, *linked,
         f"-Wl,-rpath,{INSIDE}", f"-Wl,-rpath-link,{stub}"], check=True,
    )  # fmt: skip
    return program


def packed(program: Path) -> bytes:
    """A root from nothing, as a tar."""
    stub = cuda.stub_dir()
    asked = subprocess.run(["ldd", stub / "libcuda.so.1"], capture_output=True, text=True, check=True)
    shared = [Path(each) for each in re.findall(r"(/\S+) \(0x", asked.stdout)]
    files = {each: each for each in shared}
    files |= {Path(INSIDE, name): stub / name for name in LIBRARIES}
    files[Path(INSIDE, "job")] = program
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for place in ("proc", "sys", "dev", "tmp", "etc"):
            folder = tarfile.TarInfo(place)
            folder.type, folder.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(folder)
        for inside, path in files.items():
            with path.resolve().open("rb") as file:
                entry = archive.gettarinfo(arcname=str(inside).lstrip("/"), fileobj=file)
                entry.mode = 0o755
                archive.addfile(entry, file)
    return made.getvalue()


def remove_cgroups(name: str) -> None:
    """A cgroup that was given as a parent, in all hierarchies: Podman leaves it, and its monitor's in it."""
    found = [path for top in ("", "*/") for path in CGROUPS.glob(f"{top}{name}")]
    deadline = time.monotonic() + 5
    while found and time.monotonic() < deadline:
        for path in [*(each for top in found for each in top.glob("*/")), *found]:
            with contextlib.suppress(OSError):  # the monitor is about to end
                path.rmdir()
        found = [path for path in found if path.exists()]
        time.sleep(0.05)
    assert not found
