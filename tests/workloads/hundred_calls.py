"""One allocation and a hundred waits as soon as it runs.

hundred_calls.py LIBRARY [here|fork|spawn|copy]

LIBRARY is loaded by path, by the process itself, a forked child or a spawned one; or a
copy of its folder is, at a place nobody knows in advance.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import shutil
import sys
import tempfile
from pathlib import Path


def call(library: str) -> None:
    cuda = ctypes.CDLL(library)
    at = ctypes.c_void_p()
    cuda.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(1024))
    for _ in range(100):
        cuda.cudaStreamSynchronize(None)


def main() -> None:
    library, how = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "here"
    if how == "fork":
        if os.fork() == 0:
            call(str(library))
            os._exit(0)
        os.wait()
    elif how == "spawn":
        child = multiprocessing.get_context("spawn").Process(target=call, args=(str(library),))
        child.start()
        child.join()
    elif how == "copy":
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(library.parent, folder, dirs_exist_ok=True)
            call(str(Path(folder, library.name)))
    else:
        call(str(library))


if __name__ == "__main__":
    main()
