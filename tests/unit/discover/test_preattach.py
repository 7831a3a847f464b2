"""Guessing what a command will load, by looking only."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from ingero.discover import preattach
from ingero.discover.preattach import cached_paths, find_interpreters, preattach_candidates, site_packages

from .conftest import Build

RUNTIME = "int cudaMalloc(void **p, unsigned long n) { return p && n; }"
NONE = Path("/nonexistent")


@pytest.fixture
def venv(tmp_path: Path, build: Build) -> Path:
    """A virtual environment with an NVIDIA wheel and torch, on a base prefix with another wheel."""
    base, venv = tmp_path / "base", tmp_path / "venv"
    for prefix in (base, venv):
        (prefix / "bin").mkdir(parents=True)
    (base / "bin" / "python3").write_bytes(b"\x7fELF")
    (base / "bin" / "python3").chmod(0o755)
    (venv / "bin" / "python").symlink_to(base / "bin" / "python3")
    (venv / "pyvenv.cfg").write_text(f"home = {base}/bin\ninclude-system-site-packages = false\n")
    site = venv / "lib" / "python3.12" / "site-packages"
    build(site / "nvidia" / "cuda_runtime" / "lib" / "libcudart.so.12", RUNTIME)
    build(site / "torch" / "lib" / "libcudart-d0da41ae.so.11.0", RUNTIME)
    (site / "torch" / "lib" / "libtorch.so").write_bytes(b"")
    build(base / "lib" / "python3.12" / "site-packages" / "nvidia" / "nccl" / "lib" / "libnccl.so.2", RUNTIME)
    return venv


def names(command: list[str], env: dict[str, str]) -> list[str]:
    return [Path(each.path).name for each in preattach_candidates(command, env, ld_cache=NONE)]


def test_wheels_of_the_virtual_environment_are_found(venv: Path) -> None:
    env = {"PATH": f"{venv}/bin"}
    assert names(["python", "train.py"], env) == ["libcudart.so.12", "libcudart-d0da41ae.so.11.0"]
    assert names([f"{venv}/bin/python"], {}) == names(["python"], env)


def test_the_base_of_a_venv_counts_only_when_its_settings_say_so(venv: Path) -> None:
    (venv / "pyvenv.cfg").write_text(f"home = {venv.parent}/base/bin\ninclude-system-site-packages = TRUE\n")
    assert "libnccl.so.2" in names([f"{venv}/bin/python"], {})


@pytest.mark.parametrize(
    "shebang",
    ["#!{0}/bin/python\n", "#!/usr/bin/env python\n", "#!/bin/sh\n'''exec' \"{0}/bin/python\" \"$0\""],
)
def test_a_launcher_script_leads_to_its_interpreter(venv: Path, shebang: str) -> None:
    launcher = venv / "bin" / "torchrun"
    launcher.write_text(shebang.format(venv) + "\nimport torch\n")
    launcher.chmod(0o755)
    env = {"PATH": f"{venv}/bin:/usr/bin:/bin"}
    assert find_interpreters([str(launcher)], env) == [venv / "bin" / "python"]
    assert "libcudart.so.12" in names(["torchrun", "train.py"], env)


def test_a_prefix_command_does_not_hide_the_interpreter(venv: Path) -> None:
    env = {"PATH": f"{venv}/bin:/usr/bin:/bin"}
    assert "libcudart.so.12" in names(["env", "A=1", "python", "train.py"], env)
    assert "libcudart.so.12" in names(["/bin/sh", "-c", "nice python train.py"], env)
    assert names(["/bin/sh", "-c", "x"], env) == []
    assert find_interpreters([], env) == []


def test_python_path_and_the_user_site_are_looked_at(tmp_path: Path, venv: Path) -> None:
    user = tmp_path / "home" / ".local" / "lib" / "python3.12" / "site-packages"
    user.mkdir(parents=True)
    found = site_packages(
        venv.parent / "base" / "bin" / "python3", {"PYTHONPATH": "/extra", "HOME": f"{tmp_path}/home"}
    )
    assert Path("/extra") in found
    assert user in found


def test_library_path_preload_and_cuda_home_are_looked_at(tmp_path: Path, build: Build) -> None:
    env = {
        "LD_LIBRARY_PATH": f"{tmp_path}/one::{tmp_path}/missing",
        "LD_PRELOAD": str(build(tmp_path / "pre" / "libnccl.so.2", RUNTIME)),
        "CUDA_HOME": f"{tmp_path}/cuda",
    }
    build(tmp_path / "one" / "libcudart.so.13", RUNTIME)
    build(tmp_path / "cuda" / "targets" / "x" / "lib" / "libcudart.so.12", RUNTIME)
    assert names(["./train"], env) == ["libnccl.so.2", "libcudart.so.13", "libcudart.so.12"]


def test_links_to_one_file_are_one_candidate_and_foreign_files_are_none(tmp_path: Path, build: Build) -> None:
    real = build(tmp_path / "libcudart.so.13.1", RUNTIME)
    (tmp_path / "libcudart.so.13").symlink_to(real)
    (tmp_path / "libcudart.so.9").write_bytes(b"\x7fELF\x01\x01" + bytes(100))  # a 32-bit twin
    (tmp_path / "libcudart.so.8").symlink_to("nowhere")
    (tmp_path / "libcudart.so.7").mkdir()
    assert len(preattach_candidates(["x"], {"LD_LIBRARY_PATH": str(tmp_path)}, ld_cache=NONE)) == 1


def test_a_command_with_the_runtime_inside_is_a_candidate_itself(tmp_path: Path, build: Build) -> None:
    program = build(tmp_path / "train", RUNTIME + "int main(void) { return 0; }", "-no-shared")
    (found,) = preattach_candidates([str(program)], {}, ld_cache=NONE)
    assert (found.kind, found.inode) == ("static", program.stat().st_ino)


@pytest.mark.parametrize("written", ["{0}/lib", "$ORIGIN/../lib", "/nonexistent:${{ORIGIN}}/../lib"])
@pytest.mark.parametrize("tags", ["--enable-new-dtags", "--disable-new-dtags"])
@pytest.mark.parametrize("before", [[], ["env", "-i"]])
def test_folders_written_into_a_program_are_looked_at(
    tmp_path: Path, build: Build, written: str, tags: str, before: list[str]
) -> None:
    build(tmp_path / "lib" / "libcudart.so.12", RUNTIME)
    program = tmp_path / "bin" / "train"
    path = written.format(tmp_path)
    build(program, "int main(void) { return 0; }", "-no-shared", f"-Wl,{tags},-rpath,{path}")
    env = {"PATH": "/usr/bin:/bin"}
    assert names([*before, str(program)], env) == ["libcudart.so.12"]


def ld_cache(paths: list[str]) -> bytes:
    start = 48 + 24 * len(paths)
    strings, rows = b"", b""
    for path in paths:
        key = start + len(strings)
        strings += path.rpartition("/")[2].encode() + b"\0"
        rows += struct.pack("<iIIIQ", 0x303, key, start + len(strings), 0, 0)
        strings += path.encode() + b"\0"
    header = b"glibc-ld.so.cache1.1" + struct.pack("<II", len(paths), len(strings)) + bytes(20)
    return header + rows + strings


def test_the_loader_cache_is_read(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    cache.write_bytes(ld_cache(["/lib/libc.so.6", "/usr/lib/libcuda.so.1", "/opt/libnccl.so.2"]))
    assert cached_paths(cache) == ["/usr/lib/libcuda.so.1", "/opt/libnccl.so.2"]


def test_the_real_loader_cache_agrees_with_its_own_size() -> None:
    if not preattach.LD_CACHE.exists():
        pytest.skip("no loader cache here")
    assert all(path.startswith("/") for path in cached_paths())


def test_a_damaged_loader_cache_yields_what_can_be_read(tmp_path: Path) -> None:
    whole = ld_cache(["/usr/lib/libcuda.so.1"] * 3)
    cache = tmp_path / "cache"
    for cut in range(len(whole)):
        cache.write_bytes(whole[:cut])
        assert set(cached_paths(cache)) <= {"/usr/lib/libcuda.so.1"[:n] for n in range(22)}
    cache.write_bytes(whole[:20] + b"\xff" * 8 + whole[28:])
    assert cached_paths(cache) == ["/usr/lib/libcuda.so.1"]
    assert cached_paths(NONE) == []


@pytest.mark.parametrize("folder", ["some_package.libs", "some_package/deep/down"])
def test_libraries_that_packages_list_are_found_wherever_they_put_them(
    venv: Path, build: Build, folder: str
) -> None:
    site = venv / "lib" / "python3.12" / "site-packages"
    build(site / folder / "libcudart-0a1b2c3d.so.12", RUNTIME)
    (site / "some_package-1.dist-info").mkdir()
    listed = f"some_package/__init__.py,,\n{folder}/libcudart-0a1b2c3d.so.12,sha256=x,1\n"
    (site / "some_package-1.dist-info" / "RECORD").write_text(listed)
    assert "libcudart-0a1b2c3d.so.12" in names([f"{venv}/bin/python"], {})
    few = preattach_candidates([f"{venv}/bin/python"], {}, ld_cache=NONE, everywhere=False)
    assert [Path(each.path).name for each in few] == ["libcudart.so.12", "libcudart-d0da41ae.so.11.0"]


def test_libraries_below_the_folder_of_the_script_or_the_working_folder_are_found(
    tmp_path: Path, build: Build
) -> None:
    build(tmp_path / "job" / "vendor" / "cuda" / "libcudart.so.12", RUNTIME)
    (tmp_path / "job" / "train.py").write_text("")
    (tmp_path / "job" / "round").symlink_to(tmp_path / "job")
    assert names(["python3", f"{tmp_path}/job/train.py"], {"PATH": "/nonexistent"}) == ["libcudart.so.12"]
    found = preattach_candidates(["true"], {}, ld_cache=NONE, cwd=tmp_path)
    assert [each.path for each in found] == [f"{tmp_path}/job/vendor/cuda/libcudart.so.12"]


def test_the_environment_that_is_active_is_looked_at_for_a_shell(venv: Path) -> None:
    assert "libcudart.so.12" in names(["sh", "-c", "x"], {"VIRTUAL_ENV": str(venv), "PATH": "/nonexistent"})
