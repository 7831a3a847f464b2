"""The stub's files look like the real ones to whoever attaches to them."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from elftools.elf.elffile import ELFFile

from ingero.scenarios import cuda

WORKLOADS = Path(__file__).parents[2] / "workloads"
PUSH_RBP, ENDBR64 = b"\x55", b"\xf3\x0f\x1e\xfa"
# never traced, and too small for the compiler to give them a frame
NO_FRAME = {"cuGetExportTable", "ncclGetErrorString"}
on_x86 = pytest.mark.skipif(os.uname().machine != "x86_64", reason="instructions of x86-64")


def functions(path: Path) -> dict[str, bytes]:
    """First bytes of every exported function."""
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        text = elf.get_section_by_name(".text")
        data, start = text.data(), text["sh_addr"]
        return {
            symbol.name: data[symbol["st_value"] - start :][:8]
            for symbol in elf.get_section_by_name(".dynsym").iter_symbols()
            if symbol["st_info"]["type"] == "STT_FUNC" and symbol["st_shndx"] != "SHN_UNDEF"
        }


def build_id(path: Path) -> str:
    with path.open("rb") as file:
        elf: Any = ELFFile(file)
        notes = elf.get_section_by_name(".note.gnu.build-id").iter_notes()
        return str(next(notes)["n_desc"])


@on_x86
@pytest.mark.parametrize("name", ["libcuda.so.1", "libcudart.so.12", "libnccl.so.2", "alt/libcudart.so.12"])
def test_functions_begin_with_push_like_the_real_ones(stub_dir: Path, name: str) -> None:
    exported = functions(stub_dir / name)
    odd = {function for function, code in exported.items() if not code.startswith(PUSH_RBP)}
    assert len(exported) > 20
    assert {function for function in odd if not function.startswith("__")} <= NO_FRAME


@on_x86
def test_the_endbr_variant_begins_with_endbr64(stub_dir: Path) -> None:
    exported = functions(stub_dir / "endbr" / "libcudart.so.12")
    assert all(code.startswith(ENDBR64) for code in exported.values())


def test_the_three_runtimes_are_different_files_with_the_same_functions(stub_dir: Path) -> None:
    files = [stub_dir / variant / "libcudart.so.12" for variant in ("", "alt", "endbr")]
    assert len({build_id(file) for file in files}) == 3
    assert len({frozenset(functions(file)) for file in files}) == 1


@pytest.mark.parametrize(
    ("library", "some"),
    [
        ("libcuda.so.1", "cuLaunchKernel_ptsz cuMemcpyDtoHAsync_v2 cuMemcpyPeer cuGraphExecUpdate_v2"),
        ("libcudart.so.12", "cudaLaunchKernelExC cudaMallocPitch cudaMemcpyAsync_ptsz cudaStreamWaitEvent"),
        ("libnccl.so.2", "ncclCommInitRankConfig ncclReduceScatter ncclBcast ncclCommAbort"),
    ],
)
def test_real_names_are_exported_and_nothing_else(stub_dir: Path, library: str, some: str) -> None:
    exported = set(functions(stub_dir / library))
    assert set(some.split()) <= exported
    assert all(re.match(r"(__)?(cu|cuda|nccl)[A-Z]", name) for name in exported)


def driver_pointers() -> list[bool]:
    driver, found = cuda.stub_driver(), []
    for name, flags, real in (
        ("cuMemAlloc", 0, "cuMemAlloc_v2"),
        ("cuLaunchKernel", 2, "cuLaunchKernel_ptsz"),
    ):
        pointer, status = ctypes.c_void_p(), ctypes.c_int()
        driver.cuGetProcAddress_v2(name.encode(), ctypes.byref(pointer), 12080, flags, ctypes.byref(status))
        found.append(pointer.value == cuda.symbol_address(driver.loaded, real))
    return found


def test_the_driver_hands_out_its_newest_functions_by_name(processes: Any) -> None:
    assert processes.run(driver_pointers) == [True, True]


def run_workload(command: list[str], stub_dir: Path) -> list[dict[str, Any]]:
    environment = {**os.environ, "INGERO_STUB_DIR": str(stub_dir), "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready ")
        process.stdin.write("\n")
        process.stdin.flush()
        lines = list(iter(process.stdout.readline, "done\n"))
    assert process.returncode == 0
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("options", "calls"),
    [((), 23), (("--layer", "driver"), 23), (("--threads", "3"), 69), (("--forks", "2"), 46)],
)
def test_the_workload_makes_exactly_23_calls_per_thread(
    stub_dir: Path, options: tuple[str, ...], calls: int
) -> None:
    made = run_workload([sys.executable, str(WORKLOADS / "calls23.py"), *options], stub_dir)
    assert len(made) == calls
    assert len({(call["pid"], call["tid"]) for call in made}) == calls // 23
    assert {call["ret"] for call in made} == {0, 1, 2}


def test_the_ranks_of_the_nccl_workload_agree_on_their_id(stub_dir: Path) -> None:
    made = run_workload([sys.executable, str(WORKLOADS / "nccl_ranks.py"), "--rounds", "1"], stub_dir)
    assert {call["rank"] for call in made} == {0, 1, 2}
    assert len({call["id"] for call in made}) == 1
    assert {call["ret"] for call in made} == {0}


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_program_can_carry_the_runtime_inside_it(stub_dir: Path, tmp_path: Path) -> None:
    program = tmp_path / "static_runtime"
    driver = ["-L", str(stub_dir), "-l:libcuda.so.1", f"-Wl,-rpath,{stub_dir}"]
    sources = [str(WORKLOADS / "static_runtime.c"), str(stub_dir / "libcudart_static.a")]
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    subprocess.run(["gcc", *flags, *sources, "-o", str(program), "-ldl", *driver], check=True)
    (counts,) = run_workload([str(program)], stub_dir)
    assert counts["cudaLaunchKernel"] == 10
    assert counts["failed"] == 1


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
@pytest.mark.parametrize(
    ("name", "arguments", "launches"), [("flood", ["500", "4"], 2000), ("hot_loop", ["500"], 500)]
)
def test_the_c_workloads_count_what_they_do(
    stub_dir: Path, tmp_path: Path, name: str, arguments: list[str], launches: int
) -> None:
    program = tmp_path / name
    runtime = ["-L", str(stub_dir), "-l:libcudart.so.12", f"-Wl,-rpath,{stub_dir}:{stub_dir}/.."]
    flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-pthread", f"-Wl,-rpath-link,{stub_dir}"]
    subprocess.run(["gcc", *flags, str(WORKLOADS / f"{name}.c"), "-o", str(program), *runtime], check=True)
    (counts,) = run_workload([str(program), *arguments], stub_dir)
    assert counts.get("cudaLaunchKernel", counts.get("launches")) == launches
    assert counts["failed"] == 0
