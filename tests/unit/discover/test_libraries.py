"""Libraries that real processes have really mapped."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from ingero.discover import libraries
from ingero.discover.libraries import LibraryFinder, kind_of, parse_maps
from ingero.native.elf import find_symbols

from .conftest import LOAD, Build, Start

RUNTIME = "int cudaMalloc(void **p, unsigned long n) { return p && n; }"
NCCL = "int ncclAllReduce(void) { return 1; }"
DRIVER = "int cuLaunchKernel(void) { return 1; }"

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="map_files and namespaces need root")


def load(start: Start, *paths: Path) -> int:
    return start(sys.executable, "-c", LOAD, *map(str, paths)).pid


@pytest.mark.parametrize(
    "name, kind",
    [
        ("libcudart.so", "runtime"),
        ("libcudart.so.12.9.79", "runtime"),
        ("libcudart-d0da41ae.so.11.0", "runtime"),
        ("libcuda.so.1", "driver"),
        ("libcuda.so.580.65.06", "driver"),
        ("libcudadebugger.so.1", None),
        ("libnccl.so.2", "nccl"),
        ("libnccl-net.so", None),
        ("libnccl-tuner.so.1", None),
        ("libcudart_static.a", None),
        ("libcublas.so.12", None),
        ("xlibcuda.so", None),
        ("libcuda.sox", None),
    ],
)
def test_files_are_known_by_name(name: str, kind: str | None) -> None:
    assert kind_of(f"/some where/{name}") == kind


def test_every_kind_of_library_is_found_with_its_executable_range(
    start: Start, build: Build, tmp_path: Path
) -> None:
    paths = [
        build(tmp_path / "libcudart.so.13", RUNTIME),
        build(tmp_path / "libcuda.so.1", DRIVER),
        build(tmp_path / "libnccl.so.2", NCCL),
    ]
    found = {each.kind: each for each in LibraryFinder().libraries_of(load(start, *paths))}
    assert set(found) == {"runtime", "driver", "nccl"}
    for path in paths:
        library = found[kind_of(str(path)) or "static"]
        assert library.file == (path.stat().st_dev, path.stat().st_ino)
        assert library.path == str(path)
        assert library.ranges
        assert all(start < end for start, end in library.ranges)


@needs_root
def test_the_path_for_the_kernel_leads_to_the_file_itself(start: Start, build: Build, tmp_path: Path) -> None:
    path = build(tmp_path / "libcudart.so.13", RUNTIME)
    (library,) = LibraryFinder().libraries_of(load(start, path))
    assert "/map_files/" in library.path_for_kernel
    assert Path(library.path_for_kernel).samefile(path)
    assert "cudaMalloc" in find_symbols(library.path_for_kernel, ["cudaMalloc"])


@needs_root
def test_a_deleted_and_a_replaced_file_are_still_the_mapped_ones(
    start: Start, build: Build, tmp_path: Path
) -> None:
    path = build(tmp_path / "libcudart.so.13", RUNTIME)
    inode = path.stat().st_ino
    pid = load(start, path)
    path.unlink()
    path.write_text("something else now")
    (library,) = LibraryFinder().libraries_of(pid)
    assert library.deleted
    assert library.inode == inode
    assert "cudaMalloc" in find_symbols(library.path_for_kernel, ["cudaMalloc"])


def test_odd_paths_do_not_confuse(start: Start, build: Build, tmp_path: Path) -> None:
    odd = tmp_path / "with space (deleted)" / "new\nline" / "r-xp 00000000"
    path = build(odd / "libcudart.so.13", RUNTIME)
    (library,) = LibraryFinder().libraries_of(load(start, path))
    assert library.inode == path.stat().st_ino
    assert "\n" not in library.path
    assert not library.deleted


def test_links_and_hard_links_to_one_file_are_one_library(start: Start, build: Build, tmp_path: Path) -> None:
    path = build(tmp_path / "libcudart.so.13", RUNTIME)
    (tmp_path / "libcudart.so").symlink_to(path)
    (tmp_path / "libcudart.so.12").hardlink_to(path)
    pid = load(start, path, tmp_path / "libcudart.so", tmp_path / "libcudart.so.12")
    assert len(LibraryFinder().libraries_of(pid)) == 1


def test_two_copies_are_two_libraries(start: Start, build: Build, tmp_path: Path) -> None:
    path = build(tmp_path / "libcudart.so.13", RUNTIME)
    copy = shutil.copy(path, tmp_path / "libcudart.so.12")
    assert len(LibraryFinder().libraries_of(load(start, path, copy))) == 2


MAIN = """
    #include <stdio.h>
    int main(void) { puts("1"); fflush(stdout); return getchar(); }
"""


@pytest.mark.parametrize("strip", [(), ("-rdynamic", "-s")], ids=["symtab", "dynsym"])
def test_an_executable_with_the_runtime_inside_is_found(
    start: Start, build: Build, tmp_path: Path, strip: tuple[str, ...]
) -> None:
    program = build(tmp_path / "train", RUNTIME + MAIN, "-no-shared", *strip)
    (library,) = LibraryFinder().libraries_of(start(str(program)).pid)
    assert (library.kind, library.inode) == ("static", program.stat().st_ino)


def test_an_executable_that_only_calls_the_runtime_is_not_taken_for_it(
    start: Start, build: Build, tmp_path: Path
) -> None:
    shared = build(tmp_path / "libcudart.so.13", RUNTIME)
    source = "int cudaMalloc(void **, unsigned long); int use(void) { return cudaMalloc(0, 0); }" + MAIN
    program = build(tmp_path / "train", source, "-no-shared", str(shared), f"-Wl,-rpath,{tmp_path}")
    found = LibraryFinder().libraries_of(start(str(program)).pid)
    assert [each.kind for each in found] == ["runtime"]


def test_other_libraries_are_searched_only_in_processes_that_use_a_gpu(
    start: Start, build: Build, tmp_path: Path
) -> None:
    extension = build(tmp_path / "libmodel.so", RUNTIME)
    driver = build(tmp_path / "libcuda.so.1", DRIVER)
    finder = LibraryFinder()
    assert finder.libraries_of(load(start, extension)) == []
    found = finder.libraries_of(load(start, extension, driver))
    assert sorted(each.kind for each in found) == ["driver", "static"]


def test_a_file_is_read_once_until_it_changes(build: Build, tmp_path: Path) -> None:
    path = build(tmp_path / "libx.so", RUNTIME)
    finder = LibraryFinder()
    status = path.stat()
    assert finder.carries(str(path), status)
    path.write_bytes(b"")
    assert finder.carries(str(path), status)
    assert not finder.carries(str(path), path.stat())


def test_a_process_that_is_gone_has_no_libraries(start: Start) -> None:
    child = start()
    child.kill()
    child.wait()
    assert LibraryFinder().libraries_of(child.pid) == []


@needs_root
def test_a_library_in_another_mount_namespace_is_reached(start: Start, build: Build, tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if not unshare or not shutil.which("mount"):
        pytest.skip("no unshare or mount here")
    original = build(tmp_path / "libcudart.so.13", RUNTIME)
    hidden = tmp_path / "inside"
    hidden.mkdir()
    script = 'mount -t tmpfs none "$1" && cp "$2" "$1" && exec "$3" -c "$4" "$1/libcudart.so.13"'
    words = (str(hidden), str(original), sys.executable, LOAD)
    pid = start(unshare, "--mount", "/bin/sh", "-c", script, "sh", *words).pid
    (library,) = LibraryFinder().libraries_of(pid)
    assert not Path(library.path).exists()
    assert "cudaMalloc" in find_symbols(library.path_for_kernel, ["cudaMalloc"])


def test_without_map_files_the_path_below_the_root_follows_no_link(build: Build, tmp_path: Path) -> None:
    path = build(tmp_path / "real" / "libcudart.so.13", RUNTIME)
    (tmp_path / "link").symlink_to(tmp_path / "real")
    inode = path.stat().st_ino
    direct = libraries.Mapping(0, 1, True, 0, inode, str(path), False)
    through = libraries.Mapping(0, 1, True, 0, inode, str(tmp_path / "link" / path.name), False)
    other = libraries.Mapping(0, 1, True, 0, inode + 1, str(path), False)
    reached = libraries.path_for_kernel(os.getpid(), direct)
    assert reached is not None
    assert reached[0] == f"/proc/{os.getpid()}/root{path}"
    assert libraries.path_for_kernel(os.getpid(), through) is None
    assert libraries.path_for_kernel(os.getpid(), other) is None


def test_maps_text_is_parsed_as_the_kernel_writes_it() -> None:
    raw = (
        b"00400000-00452000 r-xp 00000000 08:02 173521                             /usr/bin/dbus daemon\n"
        b"00e03000-00e24000 rw-p 00000000 00:00 0                                  [heap]\n"
        b"7f00-7f10 r-xs 0000a000 00:01 9                          /a\\012b (deleted)\n"
        b"7f20-7f30 r--p 00000000 00:01 9                          /memfd:x (deleted)\n"
        b"7f40-7f50 rw-p 00000000 00:00 0 \n"
        b"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]\n"
        b"rubbish\n"
    )
    first, second, third = parse_maps(raw)
    assert (first.start, first.end, first.executable, first.path) == (
        0x400000,
        0x452000,
        True,
        "/usr/bin/dbus daemon",
    )
    assert (second.path, second.deleted, second.offset) == ("/a\nb", True, 0xA000)
    assert (third.path, third.executable) == ("/memfd:x", False)
