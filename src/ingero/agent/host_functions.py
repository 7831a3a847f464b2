"""Functions in the memory of traced processes: their symbols, and where they lie.

For host functions of kernels, a few of each process. What is asked once is not asked
again (capture/kernel_names.py); here the last processes' mappings and the last files'
symbols are kept.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress

from ingero.discover.libraries import Mapping, path_for_kernel, read_maps
from ingero.errors import FileFormatError
from ingero.model.kernels import KernelName
from ingero.native import elf

MAX_PROCESSES = 32
MAX_FILES = 16


class HostFunctions:
    """Looks addresses up."""

    def __init__(self) -> None:
        self._maps: OrderedDict[int, list[Mapping]] = OrderedDict()
        self._files: OrderedDict[tuple[int, int, int], elf.Symbols | None] = OrderedDict()

    def forget(self, pids: set[int]) -> None:
        """Processes that ended, or became another program."""
        for pid in pids:
            self._maps.pop(pid, None)

    def functions_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        """The symbols of functions that begin there; places where there is none."""
        return [self._function(pid, address) or self._place(pid, address) for address in addresses]

    def places_at(self, pid: int, addresses: Sequence[int]) -> list[KernelName | None]:
        """`file+0xoffset`, as the file itself counts."""
        return [self._place(pid, address) for address in addresses]

    def _function(self, pid: int, address: int) -> KernelName | None:
        mapping = self._mapping(pid, address)
        symbols = self._symbols(pid, mapping) if mapping else None
        if mapping is None or symbols is None:
            return None
        offset = address - mapping.start + mapping.offset
        found = (symbols.offsets == offset).nonzero()[0]
        return KernelName(symbols.name(int(found[0]))) if len(found) else None

    def _place(self, pid: int, address: int) -> KernelName | None:
        mapping = self._mapping(pid, address)
        if mapping is None:
            return None
        offset = address - mapping.start + mapping.offset
        return KernelName(f"{mapping.path.rpartition('/')[2]}+{offset:#x}", known=False)

    def _mapping(self, pid: int, address: int) -> Mapping | None:
        """Looked at again when the address is in none of the mappings known."""
        found = _covering(self._maps.get(pid, []), address)
        if found is None:
            self._maps[pid] = [each for each in read_maps(pid) if each.executable]
            if len(self._maps) > MAX_PROCESSES:
                self._maps.popitem(last=False)
            found = _covering(self._maps.get(pid, []), address)
        return found

    def _symbols(self, pid: int, mapping: Mapping) -> elf.Symbols | None:
        opened = path_for_kernel(pid, mapping)
        if opened is None:
            return None
        path, status = opened
        key = (status.st_dev, status.st_ino, status.st_mtime_ns)
        if key not in self._files:
            self._files[key] = None
            with suppress(FileFormatError), elf.ElfFile(path) as file:
                self._files[key] = file.functions
            if len(self._files) > MAX_FILES:
                self._files.popitem(last=False)
        return self._files[key]


def _covering(mappings: list[Mapping], address: int) -> Mapping | None:
    at = bisect_right(mappings, address, key=lambda each: each.start) - 1
    return mappings[at] if at >= 0 and address < mappings[at].end else None
