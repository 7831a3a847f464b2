"""The stub's libraries with fewer functions to probe, for the perf shape.

The kernel takes some 0.1 s to let go of each perf uprobe, and a trace of the whole stub
has three hundred. In these copies every function works as before, but only those that
tests look at are functions by their symbol's type; the agent does not see the others.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

LEFT = """
cudaLaunchKernel cudaMemcpyAsync cudaStreamQuery cudaMalloc cudaMallocHost cudaFree cudaFreeHost
cudaMemcpy cudaMemset cudaSetDevice cudaStreamSynchronize cudaDeviceSynchronize cudaEventSynchronize
cudaEventRecord cuInit cuLaunchKernel cuMemcpyHtoDAsync_v2 cuStreamQuery cuCtxSetCurrent
cuStreamSynchronize cuMemcpyHtoD_v2 cuMemcpyDtoH_v2 cuEventRecord cuEventSynchronize
cuLibraryGetKernel cuLaunchKernelEx cudaLaunchKernelExC cudaEventQuery cuEventQuery
cuMemAlloc_v2 cuMemcpyDtoD_v2
"""
FUNCTION, NO_TYPE = 2, 0


def copy_stub(stub: Path, folder: Path, left: frozenset[str] = frozenset(LEFT.split())) -> Path:
    """A copy of the stub in which little can be probed."""
    shutil.copytree(stub, folder)
    for library in folder.glob("**/lib*.so*"):
        _hide_functions(library, left)
    return folder


def _hide_functions(library: Path, left: frozenset[str]) -> None:
    """The type is in the low half of the byte that follows a symbol's name."""
    data = bytearray(library.read_bytes())
    with library.open("rb") as file:
        for table in ELFFile(file).iter_sections():
            if isinstance(table, SymbolTableSection):
                for index, symbol in enumerate(table.iter_symbols()):
                    at = table["sh_offset"] + index * table["sh_entsize"] + 4
                    if data[at] & 0xF == FUNCTION and symbol.name not in left:
                        data[at] = (data[at] & 0xF0) | NO_TYPE
    library.write_bytes(data)
