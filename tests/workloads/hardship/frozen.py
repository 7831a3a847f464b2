"""A process that maps a file of a file system that never answers a read.

    frozen.py NAME [LIBRARY]

Prints `ready PID ADDRESS`, maps NAME for execution after a line, says `done`, and waits for its input
to end. The file system is one of its own (/dev/fuse, in a mount namespace of its own), served by a
child that knows the file's name and size and nothing else; without the child it is gone.

With LIBRARY the file has what that one has, and whoever reads it is answered. Only the kernel is not, when
it wants a page of the mapping: to put a probe there, say.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import stat
import struct
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x20000, 0x4000, 1 << 18
PROT_READ, PROT_EXEC, MAP_PRIVATE = 1, 4, 2
CONTENT = Path(sys.argv[2]).read_bytes() if len(sys.argv) > 2 else b""
SIZE = len(CONTENT) or 1 << 20
FOPEN_DIRECT_IO = 1  # reads come as they are asked, and only pages of a mapping as pages
LOOKUP, GETATTR, OPEN, READ, STATFS, INIT = 1, 3, 14, 15, 17, 26
ENOSYS = 38
HEADER_BYTES = 40


def attributes(node: int) -> bytes:
    mode = stat.S_IFDIR | 0o755 if node == 1 else stat.S_IFREG | 0o755
    return struct.pack("<6Q3I7I", node, SIZE, SIZE // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(opcode: int, node: int, request: bytes) -> bytes | None:
    if opcode == INIT:
        return struct.pack("<IIIIHHIIHHI7I", 7, 31, 0, 0, 8, 8, 1 << 16, 1, 0, 0, 0, *[0] * 7)
    if opcode == LOOKUP:
        return struct.pack("<QQQQII", 2, 0, 3600, 3600, 0, 0) + attributes(2)
    if opcode == GETATTR:
        return struct.pack("<QII", 3600, 0, 0) + attributes(node)
    if opcode == OPEN:
        return struct.pack("<QII", 1, FOPEN_DIRECT_IO if CONTENT else 0, 0)
    if opcode == STATFS:
        return bytes(80)
    if opcode == READ:
        offset, size = struct.unpack_from("<QI", request, HEADER_BYTES + 8)
        return CONTENT[offset : offset + size]
    return None


def is_answered(opcode: int, request: bytes) -> bool:
    if opcode != READ:
        return True
    offset, size = struct.unpack_from("<QI", request, HEADER_BYTES + 8)
    return bool(CONTENT) and bool(offset % mmap.PAGESIZE or size % mmap.PAGESIZE)


def serve(fuse: int) -> None:
    while True:
        request = os.read(fuse, 1 << 20)
        _, opcode, unique, node = struct.unpack_from("<IIQQ", request)
        if not is_answered(opcode, request):
            continue  # for ever
        body = answer(opcode, node, request)
        error = -ENOSYS if body is None else 0
        body = body or b""
        try:
            os.write(fuse, struct.pack("<IiQ", 16 + len(body), error, unique) + body)
        except OSError:  # the request was given up
            continue


def checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def mount() -> str:
    checked(LIBC.unshare(CLONE_NEWNS))
    checked(LIBC.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
    fuse = os.open("/dev/fuse", os.O_RDWR)
    folder = "/mnt"  # of this namespace alone: nothing is left of it
    options = f"fd={fuse},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    checked(LIBC.mount(b"frozen", folder.encode(), b"fuse", 0, options))
    if os.fork() == 0:
        LIBC.prctl(1, 9, 0, 0, 0)  # ends with its parent
        signal.alarm(60)  # and before what it holds up can hold up this machine for long
        os.closerange(0, 3)
        serve(fuse)
    os.close(fuse)
    return folder


def main() -> None:
    LIBC.mmap.restype = ctypes.c_void_p
    LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    folder = mount()
    fd = os.open(f"{folder}/{sys.argv[1]}", os.O_RDONLY)
    address = LIBC.mmap(None, mmap.PAGESIZE, PROT_READ, MAP_PRIVATE, fd, 0)
    print("ready", os.getpid(), address, flush=True)
    if sys.stdin.readline():
        LIBC.mmap(None, SIZE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0)
        print("done", flush=True)
        sys.stdin.read()
    os._exit(0)


main()
