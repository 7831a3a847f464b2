"""Files and texts that belong to traced processes: libraries, their code, what /proc shows of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from benchmarks.fuzz.target import Try
from ingero.attach.session import Session
from ingero.capture.code_objects import line_at
from ingero.discover import (
    command_files,
    communicator_layout,
    containers,
    libraries,
    processes,
    python_runtime,
)
from ingero.discover.code_files import functions_of
from ingero.discover.communicator_layout import UnknownLayoutError
from ingero.errors import IngeroError
from ingero.native import elf
from ingero.native.demangle import demangle
from ingero.native.instructions import probe_site
from ingero.scenarios import cuda

KINDS = ("runtime", "driver", "nccl", "static", "python", "python3.9")
MACHINES = (elf.EM_X86_64, elf.EM_AARCH64)


def stub_libraries() -> Sequence[bytes]:
    names = ("libcudart.so.12", "libnccl.so.2", "libstubkernels.so")
    return [(cuda.stub_dir() / name).read_bytes() for name in names]


def own_code() -> Sequence[bytes]:
    """The beginnings of the stub's own functions."""
    found = []
    with elf.ElfFile(cuda.stub_dir() / "libnccl.so.2") as file:
        for row in range(min(60, len(file.functions))):
            symbol = file.functions.symbol(row)
            found.append(file.read(symbol.offset, min(symbol.size, 256)))
    return found or [b"\x55"]


@contextmanager
def read_elf() -> Iterator[Try]:
    """Everything the agent ever asks a library file; nothing is attached."""
    session = Session(None)  # type: ignore[arg-type]
    finder = libraries.LibraryFinder()
    fd = os.memfd_create("library")
    path = f"/proc/self/fd/{fd}"

    def attempt(data: bytes) -> None:
        os.ftruncate(fd, 0)
        os.pwrite(fd, data, 0)
        python_runtime.read_file(path)
        finder.carries(path, os.stat(path))  # noqa: PTH116 - followed on purpose
        list(command_files.loaded_with([path], {}, [], elf.EM_X86_64))
        for kind in KINDS:
            _quietly(lambda kind=kind: session._plan(path, path, kind))  # type: ignore[misc]
        _quietly(lambda: communicator_layout.read_layout(fd))
        with elf.ElfFile(fd) as file:
            for name in ("segments", "sections", "soname", "run_paths", "needed"):
                _quietly(lambda name=name: getattr(file, name))  # type: ignore[misc]
            table = functions_of(file)
            rows = range(min(len(table), 50))
            demangle(table.raw_names(rows, fd))
            file.functions.covering(0x1000)

    try:
        yield attempt
    finally:
        os.close(fd)


def _quietly(work: Callable[[], object]) -> None:
    """One refusal must not keep the next question from being asked."""
    try:
        work()
    except (IngeroError, UnknownLayoutError):
        return


@contextmanager
def read_code() -> Iterator[Try]:
    def attempt(data: bytes) -> None:
        for machine in MACHINES:
            probe_site(data[:32], machine)
            communicator_layout.field_offset(data, machine)
            communicator_layout.stored_constant(data, machine, 1000, 99999)

    yield attempt


@contextmanager
def read_names() -> Iterator[Try]:
    def attempt(data: bytes) -> None:
        names = data.split(b"\n")
        if len(demangle(names)) != len(names):
            raise AssertionError("a name was lost")

    yield attempt


def line_tables() -> Sequence[bytes]:
    """Of this module's own functions, and of long ones."""
    source = "def f(x):\n" + "\n" * 300 + "".join(f"    x += {n}; y = x\n" for n in range(100))
    scope: dict[str, object] = {}
    exec(compile(source, "f.py", "exec"), scope)
    found = [stub_libraries.__code__.co_linetable, read_elf.__wrapped__.__code__.co_linetable]  # type: ignore[attr-defined]
    return [*found, scope["f"].__code__.co_linetable, b"\x01\x02\xff\x80\x00\x7f"]  # type: ignore[attr-defined]


@contextmanager
def read_lines() -> Iterator[Try]:
    def attempt(data: bytes) -> None:
        for minor in range(9, 15):
            for at in (0, 2, 100, 4000, 1 << 30):
                line_at((3, minor), data, 10, at)

    yield attempt


@contextmanager
def read_proc() -> Iterator[Try]:
    """What /proc shows of a process: its mappings, cgroups, state, environment."""

    def attempt(data: bytes) -> None:
        data = data.replace(b"\0\0", b"") if b"=" in data else data.replace(b"\0", b"")  # it has none
        for mapping in libraries.parse_maps(data) + libraries.parse_executable(data):
            libraries.kind_of(mapping.path)
        text = data.decode("utf-8", "surrogateescape")
        mounts = containers.parse_mounts(text)
        paths = containers.parse_cgroups(text)
        for path in [*paths.values(), text]:
            found = containers.identify(path)
            for said in (found.container_id, found.job):
                if said and any(each < " " or each == "\x7f" for each in said):
                    raise AssertionError(f"it steers a terminal: {said!r}")
        controller, path = containers.chosen_cgroup(paths)
        containers.cgroup_id(controller, path, mounts)
        processes.parse_environment(data)
        processes.printable(data)
        processes._command_line(data)
        processes._allowed_cpus(data)
        with suppress(ValueError):  # as documented: it is no such file
            processes._status_numbers(data, b"Uid")

    yield attempt
