"""What the loader would map along with a program."""

from __future__ import annotations

from pathlib import Path

from ingero.discover.command_files import loaded_with
from ingero.discover.preattach import MACHINE, preattach_candidates

from .conftest import Build

RUNTIME = "int cudaMalloc(void **p, unsigned long n) { return p && n; }"
NONE = Path("/nonexistent")


def test_libraries_of_libraries_are_found_by_the_run_paths_on_the_way(tmp_path: Path, build: Build) -> None:
    build(tmp_path / "deep" / "libcudart.so.12", RUNTIME, "-Wl,-soname,libcudart.so.12")
    middle = build(
        tmp_path / "lib" / "libmiddle.so",
        "int cudaMalloc(void **, unsigned long); int middle(void) { return cudaMalloc(0, 0); }",
        *("-Wl,-soname,libmiddle.so", "-Wl,-rpath,$ORIGIN/../deep"),
        f"-L{tmp_path}/deep",
        "-l:libcudart.so.12",
    )
    program = build(
        tmp_path / "bin" / "job",
        "int middle(void); int main(void) { return middle(); }",
        "-no-shared",
        *(f"-L{tmp_path}/lib", "-l:libmiddle.so", "-Wl,--allow-shlib-undefined"),
    )
    env = {"LD_LIBRARY_PATH": str(tmp_path / "lib")}
    found = [str(Path(path).resolve()) for path in loaded_with([str(program)], env, [], MACHINE)]
    assert found[0] == str(middle)
    assert str(tmp_path / "deep" / "libcudart.so.12") in found
    candidates = preattach_candidates([str(program)], env, ld_cache=NONE)
    assert [Path(each.path).name for each in candidates] == ["libcudart.so.12"]


def test_a_library_of_the_program_with_a_runtime_inside_is_a_candidate(tmp_path: Path, build: Build) -> None:
    library = build(tmp_path / "lib" / "libwork.so", RUNTIME, "-Wl,-soname,libwork.so")
    program = build(
        tmp_path / "bin" / "job",
        "int cudaMalloc(void **, unsigned long); int main(void) { return cudaMalloc(0, 0); }",
        "-no-shared",
        *(f"-L{tmp_path}/lib", "-l:libwork.so", "-Wl,-rpath,$ORIGIN/../lib"),
    )
    (found,) = preattach_candidates([str(program)], {}, ld_cache=NONE)
    assert (found.kind, found.inode) == ("static", library.stat().st_ino)


def test_libraries_that_need_each_other_are_looked_at_once(tmp_path: Path, build: Build) -> None:
    one = build(tmp_path / "libone.so", "int one;", "-Wl,-soname,libone.so")
    build(tmp_path / "libtwo.so", "extern int one; int *two = &one;", f"-L{tmp_path}", "-l:libone.so")
    one.unlink()
    build(one, "extern int *two; int one; int **three = &two;", f"-L{tmp_path}", "-l:libtwo.so")
    found = list(loaded_with([str(one)], {"LD_LIBRARY_PATH": str(tmp_path)}, [], MACHINE))
    assert [Path(path).name for path in found if path.startswith(str(tmp_path))] == ["libtwo.so", "libone.so"]
